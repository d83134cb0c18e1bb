//! What was sent beside what the results say, home by home.

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

    /// What all homes come to, with what was counted once though it came more often.
    pub(super) fn result(self, sensor_repeats: u64, replayed: u64) -> Audit {
        Audit { sensor_repeats, replayed, ..self.audit }
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
        let audit = auditor.result(6, 8);
        assert_eq!(
            audit,
            Audit { sent: 11, processed: 11, sensor_repeats: 6, replayed: 8, homes_behind: 3, invented: 1 }
        );
    }
}
