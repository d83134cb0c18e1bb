//! The heartbeats of this host: when its host record is written, the number of the heartbeat, and the
//! desired state that the store returned.

use std::time::Duration;

use ephor_core::host_record::HostRecord;
use ephor_core::store::DesiredState;
use ephor_core::time::Monotonic;

#[derive(Debug, Default)]
pub(super) struct Heartbeat {
    /// The number of the last heartbeat, written or not.
    number: u64,
    /// The record that was written last, and its time.
    written: Option<(Monotonic, HostRecord)>,
    desired: DesiredState,
}

impl Heartbeat {
    /// The record to write now, with the next number: if it says something new, or the last one is
    /// `interval` old.
    pub(super) fn next(
        &mut self,
        record: HostRecord,
        now: Monotonic,
        interval: Duration,
    ) -> Option<HostRecord> {
        let due = self.written.as_ref().is_none_or(|(at, old)| {
            now >= *at + interval
                || (&old.wants, &old.answers, old.state) != (&record.wants, &record.answers, record.state)
                || old.hub != record.hub
        });
        due.then(|| {
            self.number += 1;
            HostRecord { beat: self.number, ..record }
        })
    }

    /// Notes that the record was written at this time, and the store's answer.
    pub(super) fn written(&mut self, at: Monotonic, record: HostRecord, desired: DesiredState) {
        self.written = Some((at, record));
        self.desired = desired;
    }

    /// Makes the next heartbeat due, because there may be a new desired state, which only a
    /// heartbeat returns.
    pub(super) fn make_due(&mut self) {
        self.written = None;
    }

    /// True if an operator drains this host.
    pub(super) fn is_drained(&self) -> bool {
        self.desired.drain
    }
}

#[cfg(test)]
mod tests {
    use ephor_core::host_record::{HostState, ReadHub};
    use ephor_core::ids::LogId;

    use super::super::test_values::{at, host, record};
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    fn ours() -> HostRecord {
        record(host("a", 1), 0)
    }

    /// The heartbeats of a host that wrote its record at second 100.
    fn written() -> Heartbeat {
        let mut heartbeat = Heartbeat::default();
        let first = heartbeat.next(ours(), at(100), INTERVAL).expect("the first one is due");
        heartbeat.written(at(100), first, DesiredState::default());
        heartbeat
    }

    #[test]
    fn a_record_without_news_is_written_once_an_interval() {
        let mut heartbeat = written();
        assert_eq!(heartbeat.next(ours(), at(109), INTERVAL), None);
        assert_eq!(heartbeat.next(ours(), at(110), INTERVAL).map(|record| record.beat), Some(2));
    }

    #[test]
    fn news_are_written_at_once_and_statistics_are_no_news() {
        let hub = Some(ReadHub { endpoint: "here".into(), log: LogId::new("x") });
        let state = HostState::Draining;
        for news in [HostRecord { state, ..ours() }, HostRecord { hub, ..ours() }] {
            assert!(written().next(news, at(101), INTERVAL).is_some());
        }
        let mut busier = ours();
        busier.statistics.events += 1;
        assert_eq!(written().next(busier, at(101), INTERVAL), None);
    }

    #[test]
    fn a_heartbeat_that_could_not_be_written_is_due_again_with_a_new_number() {
        let mut heartbeat = Heartbeat::default();
        let numbers = [100, 101].map(|second| heartbeat.next(ours(), at(second), INTERVAL).unwrap().beat);
        assert_eq!(numbers, [1, 2]);
    }

    #[test]
    fn a_heartbeat_brings_the_desired_state() {
        let mut heartbeat = written();
        assert!(!heartbeat.is_drained());
        heartbeat.make_due();
        let record = heartbeat.next(ours(), at(101), INTERVAL).expect("it was made due");
        assert!(!heartbeat.is_drained());
        heartbeat.written(at(101), record, DesiredState { drain: true });
        assert!(heartbeat.is_drained());
    }
}
