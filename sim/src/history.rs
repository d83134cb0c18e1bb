//! The recorded history of a run, line by line: the source of reports, and of the comparison of two runs of
//! one seed.
//!
//! Lines are only ever appended. All are kept: a run of ten minutes writes some thousands of them.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephor_core::time::{Clock, Monotonic};

use crate::fingerprint::Fingerprint;

/// An append-only log of lines such as `[  12.345s] host-3 claims p7`. Clones
/// write to the same log.
#[derive(Clone)]
pub struct History {
    clock: Arc<dyn Clock>,
    lines: Arc<Mutex<Lines>>,
}

#[derive(Default)]
struct Lines {
    /// Every line, each with its line feed.
    text: String,
    /// The time of each line, and the position in the text at which it ends.
    ends: Vec<(Monotonic, usize)>,
    fingerprint: Fingerprint,
}

impl History {
    /// An empty history whose lines carry the time of this clock.
    pub fn new(clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), lines: Arc::default() }
    }

    /// Appends a line: `history.append(format_args!("{host} claims {partition:?}"))`.
    ///
    /// The `Display` of `what` must not write to this history.
    pub fn append(&self, what: impl fmt::Display) {
        let Monotonic(now) = self.clock.now();
        self.with(|lines| {
            let start = lines.text.len();
            let (seconds, milliseconds) = (now / 1_000_000_000, now / 1_000_000 % 1_000);
            writeln!(lines.text, "[{seconds:>4}.{milliseconds:03}s] {what}").expect("a String takes it all");
            lines.fingerprint.add(&lines.text.as_bytes()[start..]);
            lines.ends.push((Monotonic(now), lines.text.len()));
        });
    }

    /// The fingerprint of all lines so far.
    pub fn fingerprint(&self) -> Fingerprint {
        self.with(|lines| lines.fingerprint)
    }

    /// The number of lines.
    pub fn len(&self) -> usize {
        self.with(|lines| lines.ends.len())
    }

    /// True if there are no lines.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All lines.
    pub fn text(&self) -> String {
        self.with(|lines| lines.text.clone())
    }

    /// The last `max` lines.
    pub fn tail(&self, max: usize) -> String {
        self.with(|lines| {
            let left_out = lines.ends.len().saturating_sub(max);
            let start = left_out.checked_sub(1).map_or(0, |last| lines.ends[last].1);
            lines.text[start..].to_owned()
        })
    }

    /// Every line without its line feed and its time, and that time.
    pub fn lines(&self) -> Vec<(Duration, String)> {
        self.with(|lines| {
            let mut start = 0;
            let line = |&(Monotonic(at), end): &(Monotonic, usize)| {
                let whole = lines.text[start..end].trim_end_matches('\n');
                start = end;
                let text = whole.split_once("] ").map_or(whole, |(_, text)| text);
                (Duration::from_nanos(at), text.to_owned())
            };
            lines.ends.iter().map(line).collect()
        })
    }

    /// The time of the first line that begins with this.
    pub fn time_of(&self, beginning: &str) -> Option<Duration> {
        self.lines().into_iter().find(|(_, text)| text.starts_with(beginning)).map(|(at, _)| at)
    }

    fn with<T>(&self, access: impl FnOnce(&mut Lines) -> T) -> T {
        // The history matters most after a panic, so a poisoned lock is ignored.
        access(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "History({} lines, {})", self.len(), self.fingerprint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ephor_core::time::Timestamp;

    struct Stopped(u64);

    impl Clock for Stopped {
        fn now(&self) -> Monotonic {
            Monotonic(self.0)
        }
        fn wall(&self) -> Timestamp {
            Timestamp(0)
        }
    }

    #[test]
    fn a_line_carries_the_time() {
        let history = History::new(Stopped(12_345_678_901));
        assert!(history.is_empty());
        history.append("host-3 claims p7");
        assert_eq!(history.text(), "[  12.345s] host-3 claims p7\n");
        assert_eq!(format!("{history:?}"), format!("History(1 lines, {})", history.fingerprint()));
    }

    #[test]
    fn lines_come_back_with_their_time_and_are_found_by_their_beginning() {
        let history = History::new(Stopped(61_000_000_007));
        assert!(history.lines().is_empty());
        history.append("host-3 claims [p7] now");
        history.append("it is done");
        let at = Duration::from_nanos(61_000_000_007);
        assert_eq!(history.lines(), [(at, "host-3 claims [p7] now".into()), (at, "it is done".into())]);
        assert_eq!(history.time_of("it is"), Some(at));
        assert_eq!(history.time_of("done"), None);
    }

    #[test]
    fn the_tail_is_the_last_lines() {
        let history = History::new(Stopped(0));
        assert_eq!(history.tail(2), "");
        for word in ["one", "two", "three"] {
            history.clone().append(word);
        }
        assert_eq!(history.len(), 3);
        assert_eq!(history.tail(0), "");
        assert_eq!(history.tail(2), "[   0.000s] two\n[   0.000s] three\n");
        assert_eq!(history.tail(9), history.text());
    }

    #[test]
    fn the_fingerprint_is_of_every_byte() {
        let (a, b) = (History::new(Stopped(0)), History::new(Stopped(1_000_000)));
        assert_eq!(a.fingerprint(), b.fingerprint());
        a.append("same words");
        b.append("same words");
        assert_ne!(a.fingerprint(), b.fingerprint());
        let mut whole = Fingerprint::default();
        whole.add(a.text().as_bytes());
        assert_eq!(a.fingerprint(), whole);
    }
}
