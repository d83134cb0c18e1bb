//! Reads commands of the demo from standard input, one per line, and handles signals.
//!
//! | command | meaning |
//! |---|---|
//! | `slow N` | take N milliseconds more for each batch; 0 for as fast as it goes |
//! | `stop`, the end of the input, SIGTERM, SIGINT | graceful shutdown |

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::os::StopSignals;

/// The slowdown of each batch. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Slowdown(Arc<AtomicU32>);

impl Slowdown {
    /// Sets the milliseconds that each batch takes longer.
    pub fn set(&self, milliseconds: u32) {
        self.0.store(milliseconds, Ordering::Relaxed);
    }

    /// Waits for the slowdown of one batch.
    pub async fn wait(&self) {
        let milliseconds = self.0.load(Ordering::Relaxed);
        if milliseconds > 0 {
            tokio::time::sleep(Duration::from_millis(milliseconds.into())).await;
        }
    }
}

/// One command.
#[derive(Debug, PartialEq, Eq)]
enum Command {
    Slow(u32),
    Stop,
    Unknown,
}

fn read(line: &str) -> Command {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["slow", by] => by.parse().map_or(Command::Unknown, Command::Slow),
        ["stop"] => Command::Stop,
        _ => Command::Unknown,
    }
}

/// Listens for orders.
#[derive(Debug)]
pub struct Commands {
    slowdown: Slowdown,
    lines: mpsc::UnboundedReceiver<String>,
    signals: StopSignals,
}

impl Commands {
    /// Begins to listen.
    pub fn listen() -> std::io::Result<Self> {
        let (sender, lines) = mpsc::unbounded_channel();
        // A thread of its own, that nobody waits for: it hangs in a read when the program ends.
        std::thread::Builder::new().name("orders".into()).spawn(move || {
            let lines = std::io::stdin().lock().lines();
            let _ = lines.map_while(Result::ok).try_for_each(|line| sender.send(line));
        })?;
        let signals = StopSignals::listen()?;
        Ok(Self { slowdown: Slowdown::default(), lines, signals })
    }

    /// Returns the slowdown that `slow` sets.
    pub fn slowdown(&self) -> Slowdown {
        self.slowdown.clone()
    }

    /// Carries out commands until it has to stop, and returns why.
    pub async fn stop(&mut self) -> &'static str {
        loop {
            let line = tokio::select! {
                () = self.signals.next() => return "because of a signal",
                line = self.lines.recv() => line,
            };
            let Some(line) = line else { return "because its parent process ended" };
            match read(&line) {
                Command::Slow(by) => self.slowdown.set(by),
                Command::Stop => return "because of a command",
                Command::Unknown => {
                    tracing::warn!(line, "unknown command; the commands are `slow N` and `stop`")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_orders() {
        assert_eq!(read("slow 250"), Command::Slow(250));
        assert_eq!(read(" stop "), Command::Stop);
        for line in ["", "slow", "slow x", "slow -1", "stop now", "slow 1 2"] {
            assert_eq!(read(line), Command::Unknown, "{line}");
        }
    }

    #[tokio::test]
    async fn a_pace_is_kept() {
        let slowdown = Slowdown::default();
        slowdown.wait().await;
        let begin = std::time::Instant::now();
        slowdown.clone().set(70);
        slowdown.wait().await;
        assert!(begin.elapsed() >= Duration::from_millis(70));
    }
}
