//! The audit: compares the sent readings with the results, home by home, and counts readings that are
//! overdue.

use std::collections::VecDeque;
use std::time::Duration;

use ephor::Monotonic;

use super::model::Audit;
use crate::city::Sent;

/// Compares one home after the other.
#[derive(Debug, Default)]
pub(super) struct Auditor {
    audit: Audit,
}

impl Auditor {
    /// One home: what was sent, and what the results say.
    pub(super) fn compare(&mut self, sent: Sent, found: Sent) {
        self.audit.sent += sent.readings;
        self.audit.processed += found.readings;
        self.audit.invented += found.readings.saturating_sub(sent.readings);
        self.audit.homes_behind += u32::from(sent != found);
    }

    /// The number of sent readings.
    pub(super) fn sent(&self) -> u64 {
        self.audit.sent
    }

    /// Returns the audit of all homes.
    pub(super) fn result(self, sensor_repeats: u64, replayed: u64, long_sent: u64) -> Audit {
        let overdue = long_sent.saturating_sub(self.audit.processed);
        Audit { sensor_repeats, replayed, overdue, ..self.audit }
    }
}

/// Readings that are not in the results after this time are overdue.
const PATIENCE: Duration = Duration::from_secs(30);

/// Remembers how many were sent.
#[derive(Debug, Default)]
pub(super) struct LongSent {
    marks: VecDeque<(Monotonic, u64)>,
}

impl LongSent {
    /// Notes the number of sent readings, and returns how many of them should have arrived by now.
    pub(super) fn of(&mut self, now: Monotonic, sent: u64) -> u64 {
        self.marks.push_back((now, sent));
        let is_long =
            |mark: Option<&(Monotonic, u64)>| mark.is_some_and(|(at, _)| now.since(*at) >= PATIENCE);
        while is_long(self.marks.get(1)) {
            self.marks.pop_front();
        }
        if is_long(self.marks.front()) { self.marks.front().map_or(0, |(_, sent)| *sent) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_behind_when_anything_differs() {
        let count = |readings, fingerprint| Sent { readings, fingerprint };
        let mut auditor = Auditor::default();
        auditor.compare(count(3, 7), count(3, 7));
        auditor.compare(count(5, 9), count(4, 2));
        auditor.compare(count(2, 1), count(2, 3));
        auditor.compare(count(1, 1), count(2, 3));
        let audit = auditor.result(6, 8, 12);
        assert_eq!(
            audit,
            Audit {
                sent: 11,
                processed: 11,
                sensor_repeats: 6,
                replayed: 8,
                homes_behind: 3,
                overdue: 1,
                invented: 1
            }
        );
    }

    #[test]
    fn what_was_sent_half_a_minute_ago_should_have_arrived() {
        let mut sent = LongSent::default();
        let at = |second: u64| Monotonic(second * 1_000_000_000);
        assert_eq!(sent.of(at(0), 5), 0);
        assert_eq!(sent.of(at(29), 50), 0);
        assert_eq!(sent.of(at(30), 60), 5);
        assert_eq!(sent.of(at(58), 90), 5);
        assert_eq!(sent.of(at(59), 90), 50);
        assert_eq!(sent.of(at(500), 90), 90);
        assert_eq!(sent.marks.len(), 2, "nothing older is kept than is needed");
    }
}
