//! Rate-limits log lines that peers can trigger, and counts the suppressed ones.
//!
//! Any peer that may connect can be refused as often as it likes. A line for each refusal would fill the disk
//! that the events need.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ephor_core::time::Monotonic;

/// At most this many lines of one kind are logged within [`WINDOW`].
const MAX_LINES: u32 = 5;
/// The window of the rate limit.
const WINDOW: Duration = Duration::from_secs(10);

/// One limiter for each kind of line, so that they do not suppress each other.
#[derive(Debug, Default)]
pub(crate) struct LogLimits {
    /// Requests that were refused; tokens, mostly.
    pub(crate) requests: LogLimiter,
    /// Links that were refused or detached.
    pub(crate) links: LogLimiter,
    /// SASL PLAIN names and keys that were rejected.
    pub(crate) keys: LogLimiter,
    /// Connections that were closed because of an error of the peer.
    pub(crate) connections: LogLimiter,
    /// Connections that were closed because others needed their memory.
    pub(crate) evictions: LogLimiter,
    /// Links, sessions and tokens that exceeded the limits of all connections together.
    pub(crate) totals: LogLimiter,
    /// Connections that exceeded the connection limit.
    pub(crate) connection_limit: LogLimiter,
}

/// The rate limiter of one kind of line.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    until: Option<Monotonic>,
    shown: u32,
    suppressed: u64,
}

impl LogLimiter {
    /// Returns the number of lines suppressed since the last one if a line may be logged now, or else `None`.
    pub(crate) fn allow(&self, now: Monotonic) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if window.until.is_none_or(|until| now >= until) {
            (window.until, window.shown) = (Some(now + WINDOW), 0);
        }
        if window.shown >= MAX_LINES {
            window.suppressed += 1;
            return None;
        }
        window.shown += 1;
        Some(std::mem::take(&mut window.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lines_of_each_window_are_allowed_and_the_rest_is_counted() {
        let limiter = LogLimiter::default();
        let begin = Monotonic::default() + Duration::from_secs(1_000);
        let allowed: Vec<_> = (0..1_000).filter_map(|_| limiter.allow(begin)).collect();
        assert_eq!(allowed, [0; MAX_LINES as usize]);
        let soon = begin + (WINDOW - Duration::from_millis(1));
        assert_eq!(limiter.allow(soon), None);
        assert_eq!(limiter.allow(begin + WINDOW), Some(1_001 - u64::from(MAX_LINES)));
        assert_eq!(limiter.allow(begin + WINDOW), Some(0));
    }
}
