//! Finds hosts of this group that read another hub of the same name while this host runs, and reports each
//! once.

use std::collections::BTreeSet;
use std::time::Duration;

use ephor_core::host_record::ReadHub;
use ephor_core::hub_tracker::{HubFinding, HubTracker};
use ephor_core::ids::HostId;
use ephor_core::store::HostEntry;
use ephor_core::time::Monotonic;

use crate::error::HostError;

#[derive(Debug)]
pub(super) struct OtherHubs {
    patience: Duration,
    /// Tracks the hubs that the other hosts read, since we know which one is ours.
    tracker: HubTracker,
    reported: BTreeSet<HostId>,
}

impl OtherHubs {
    /// Within `patience`, every living host asks its hub and writes the result.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, tracker: HubTracker::new(patience), reported: BTreeSet::new() }
    }

    /// Starts again, because our hub has a new log: the other hosts learn of it at their own times.
    pub(super) fn start_again(&mut self) {
        self.tracker = HubTracker::new(self.patience);
    }

    /// Takes in the records of a view. Returns the error to report. Hosts that started at the same
    /// time may find each other only later.
    pub(super) fn notice(
        &mut self,
        me: &HostId,
        ours: Option<ReadHub>,
        hosts: &[HostEntry],
        now: Monotonic,
    ) -> Option<HostError> {
        self.reported.retain(|id| hosts.iter().any(|entry| entry.record.id == *id));
        let ours = ours?;
        match self.tracker.observe(me, &ours, hosts, now) {
            HubFinding::Different { host, reads } if self.reported.insert(host.clone()) => {
                Some(HostError::AnotherHub { ours, host, theirs: reads })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use ephor_core::host_record::HostRecord;
    use ephor_core::ids::LogId;

    use super::super::test_values::{at, host, record, view_of};
    use super::*;

    fn hub(name: &str) -> ReadHub {
        ReadHub { endpoint: format!("hub of {name}"), log: LogId::new(name) }
    }

    /// Counts the reports about a host that writes a heartbeat every 10 s and reads another hub.
    fn reports(others: &mut OtherHubs, seconds: std::ops::Range<u64>) -> usize {
        let seen = |second| {
            let other = HostRecord { hub: Some(hub("b")), ..record(host("b", 1), second) };
            others.notice(&host("a", 1), Some(hub("a")), &view_of([other]).hosts, at(second))
        };
        seconds.step_by(10).filter_map(seen).count()
    }

    #[test]
    fn a_host_that_reads_another_hub_is_reported_once_as_long_as_it_has_a_record() {
        let mut others = OtherHubs::new(Duration::ZERO);
        assert_eq!(reports(&mut others, 0..60), 0, "it may be about to learn of our log");
        assert_eq!(reports(&mut others, 60..300), 1);
        assert_eq!(reports(&mut others, 300..600), 0, "it is reported");
        assert!(others.notice(&host("a", 1), None, &[], at(600)).is_none());
        assert_eq!(reports(&mut others, 600..900), 1, "it left and came back");
    }

    #[test]
    fn a_new_log_of_our_hub_gives_the_others_their_time_again() {
        let mut others = OtherHubs::new(Duration::ZERO);
        assert_eq!(reports(&mut others, 0..60), 0);
        others.start_again();
        assert_eq!(reports(&mut others, 60..120), 0);
    }
}
