//! Displays the progress while seeds run: how many are done, the rate, and the remaining time.

use std::io::{IsTerminal, Write};
use std::time::Duration;

/// The interval between lines if the output is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// A terminal, on which one line is rewritten; or a file, to which lines are appended from time to time.
pub(crate) struct Screen {
    terminal: bool,
    shown: Option<Duration>,
    /// Seeds that were done before this process began: they do not count for its rate.
    before: u64,
}

/// The progress of a run.
pub(crate) struct Status {
    /// The time since this process began.
    pub(crate) elapsed: Duration,
    pub(crate) done: u64,
    pub(crate) count: u64,
    pub(crate) broken: usize,
}

impl Screen {
    pub(crate) fn new(before: u64) -> Self {
        Self { terminal: std::io::stdout().is_terminal(), shown: None, before }
    }

    /// Shows the progress, if it is time to.
    pub(crate) fn show(&mut self, status: &Status) {
        let every = if self.terminal { Duration::from_millis(500) } else { LINE_INTERVAL };
        if status.elapsed < self.shown.unwrap_or_default() + every {
            return;
        }
        self.shown = Some(status.elapsed);
        let line = self.line(status);
        if self.terminal {
            print!("\r\x1b[K{line}");
            // A line that fails to appear now appears with the next.
            let _ = std::io::stdout().flush();
        } else {
            println!("{line}");
        }
    }

    /// Prints a line that stays.
    pub(crate) fn print_line(&self, what: impl std::fmt::Display) {
        println!("{}{what}", if self.terminal { "\r\x1b[K" } else { "" });
    }

    fn line(&self, status: &Status) -> String {
        let rate = self.rate(status);
        let left = status.count.saturating_sub(status.done);
        let left = match rate {
            rate if rate > 0.0 => format!("{} left", minutes(Duration::from_secs_f64(left as f64 / rate))),
            _ => "unknown time left".into(),
        };
        format!(
            "{} of {} seeds, {rate:.1} a second, {}, {left}",
            status.done,
            status.count,
            violations(status.broken)
        )
    }

    /// The seeds per second of this process.
    pub(crate) fn rate(&self, status: &Status) -> f64 {
        status.done.saturating_sub(self.before) as f64 / status.elapsed.as_secs_f64().max(0.001)
    }
}

/// `1 violation`, `2 violations`.
pub(crate) fn violations(count: usize) -> String {
    format!("{count} violation{}", if count == 1 { "" } else { "s" })
}

fn minutes(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ ..60 => format!("{seconds} s"),
        seconds @ ..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_progress_rate_and_remaining_time() {
        let screen = Screen { terminal: false, shown: None, before: 100 };
        let status =
            |seconds, done| Status { elapsed: Duration::from_secs(seconds), done, count: 1_000, broken: 1 };
        assert_eq!(screen.line(&status(10, 300)), "300 of 1000 seeds, 20.0 a second, 1 violation, 35 s left");
        assert_eq!(
            screen.line(&status(10, 100)),
            "100 of 1000 seeds, 0.0 a second, 1 violation, unknown time left"
        );
        assert_eq!(minutes(Duration::from_secs(61)), "1 min 1 s");
        assert_eq!(minutes(Duration::from_secs(2 * 3_600 + 65)), "2 h 1 min");
    }
}
