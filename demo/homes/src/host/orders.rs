//! What comes from outside: commands on standard input, one a line, and signals.
//!
//! | order | meaning |
//! |---|---|
//! | `slow N` | take N milliseconds more for each batch; 0 for as fast as it goes |
//! | `stop`, the end of the input, SIGTERM, SIGINT | stop in good order |

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// By how much each batch is slowed down. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Pace(Arc<AtomicU32>);

impl Pace {
    /// So many milliseconds more for each batch.
    pub fn set(&self, milliseconds: u32) {
        self.0.store(milliseconds, Ordering::Relaxed);
    }

    /// Waits for as long as a batch takes longer.
    pub async fn keep(&self) {
        let milliseconds = self.0.load(Ordering::Relaxed);
        if milliseconds > 0 {
            tokio::time::sleep(Duration::from_millis(milliseconds.into())).await;
        }
    }
}

/// What one line says.
#[derive(Debug, PartialEq, Eq)]
enum Order {
    Slow(u32),
    Stop,
    Unknown,
}

fn read(line: &str) -> Order {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["slow", by] => by.parse().map_or(Order::Unknown, Order::Slow),
        ["stop"] => Order::Stop,
        _ => Order::Unknown,
    }
}

/// Listens for orders.
#[derive(Debug)]
pub struct Orders {
    pace: Pace,
    lines: mpsc::UnboundedReceiver<String>,
    terminate: Signal,
    interrupt: Signal,
}

impl Orders {
    /// Begins to listen.
    pub fn listen() -> std::io::Result<Self> {
        let (sender, lines) = mpsc::unbounded_channel();
        // A thread of its own, that nobody waits for: it hangs in a read when the program ends.
        std::thread::Builder::new().name("orders".into()).spawn(move || {
            let lines = std::io::stdin().lock().lines();
            let _ = lines.map_while(Result::ok).try_for_each(|line| sender.send(line));
        })?;
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { pace: Pace::default(), lines, terminate, interrupt })
    }

    /// What `slow` sets.
    pub fn pace(&self) -> Pace {
        self.pace.clone()
    }

    /// Carries out orders until it is time to stop, and says why.
    pub async fn stop(&mut self) -> &'static str {
        loop {
            let line = tokio::select! {
                _ = self.terminate.recv() => return "told to by a signal",
                _ = self.interrupt.recv() => return "told to by a signal",
                line = self.lines.recv() => line,
            };
            let Some(line) = line else { return "its parent is gone" };
            match read(&line) {
                Order::Slow(by) => self.pace.set(by),
                Order::Stop => return "told to",
                Order::Unknown => tracing::warn!(line, "no such order; there are `slow N` and `stop`"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_orders() {
        assert_eq!(read("slow 250"), Order::Slow(250));
        assert_eq!(read(" stop "), Order::Stop);
        for line in ["", "slow", "slow x", "slow -1", "stop now", "slow 1 2"] {
            assert_eq!(read(line), Order::Unknown, "{line}");
        }
    }

    #[tokio::test]
    async fn a_pace_is_kept() {
        let pace = Pace::default();
        pace.keep().await;
        let begin = std::time::Instant::now();
        pace.clone().set(70);
        pace.keep().await;
        assert!(begin.elapsed() >= Duration::from_millis(70));
    }
}
