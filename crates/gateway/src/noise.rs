//! Rate-limits log lines that peers can trigger, and counts the suppressed ones.
//!
//! Any peer that may connect can be refused as often as it likes. A line for each refusal would fill the disk
//! that the events need.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ephor_core::time::Monotonic;

/// At most this many lines of one kind are logged within [`WHILE`].
const MOST_LINES: u32 = 5;
/// The window of the rate limit.
const WHILE: Duration = Duration::from_secs(10);

/// One limiter for each kind of line, so that they do not suppress each other.
#[derive(Debug, Default)]
pub(crate) struct Noise {
    /// Requests that were refused; tokens, mostly.
    pub(crate) requests: Muffler,
    /// Links that were refused or detached.
    pub(crate) links: Muffler,
    /// SASL PLAIN names and keys that were rejected.
    pub(crate) keys: Muffler,
    /// Connections that were closed because of an error of the peer.
    pub(crate) connections: Muffler,
    /// Connections that were closed because others needed their memory.
    pub(crate) hoarders: Muffler,
    /// Links, sessions and tokens that exceeded the limits of all connections together.
    pub(crate) totals: Muffler,
    /// Connections that exceeded the connection limit.
    pub(crate) too_many: Muffler,
}

/// The rate limiter of one kind of line.
#[derive(Debug, Default)]
pub(crate) struct Muffler(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    until: Option<Monotonic>,
    shown: u32,
    muffled: u64,
}

impl Muffler {
    /// Returns the number of lines suppressed since the last one if a line may be logged now, or else `None`.
    pub(crate) fn hear(&self, now: Monotonic) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if window.until.is_none_or(|until| now >= until) {
            (window.until, window.shown) = (Some(now + WHILE), 0);
        }
        if window.shown >= MOST_LINES {
            window.muffled += 1;
            return None;
        }
        window.shown += 1;
        Some(std::mem::take(&mut window.muffled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lines_in_a_while_and_then_how_many_there_were() {
        let muffler = Muffler::default();
        let begin = Monotonic::default() + Duration::from_secs(1_000);
        let heard: Vec<_> = (0..1_000).filter_map(|_| muffler.hear(begin)).collect();
        assert_eq!(heard, [0; MOST_LINES as usize]);
        let soon = begin + (WHILE - Duration::from_millis(1));
        assert_eq!(muffler.hear(soon), None);
        assert_eq!(muffler.hear(begin + WHILE), Some(1_001 - u64::from(MOST_LINES)));
        assert_eq!(muffler.hear(begin + WHILE), Some(0));
    }
}
