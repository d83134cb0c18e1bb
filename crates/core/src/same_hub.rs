//! Notices that hosts of one group read different hubs.
//!
//! A group is named after its hub, and two hubs may bear one name: development hubs on two ports of one address, for
//! example. Their hosts would share one set of leases, and each would read only a part of its own hub. A hub that was
//! made anew looks the same at first: its hosts learn of the new log one by one. So another log counts only when a
//! host that is alive still reports it after everybody has had the time to look at the hub again.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::host_record::{HostRecord, ReadHub};
use crate::ids::{HostId, LogId};
use crate::store::HostEntry;
use crate::time::Monotonic;

/// Watches which hubs the other hosts of a group read.
#[derive(Clone, Debug)]
pub struct HubWatch {
    patience: Duration,
    /// The hosts that report another log.
    others: BTreeMap<HostId, Other>,
}

/// A host that reports another log.
#[derive(Clone, Copy, Debug)]
struct Other {
    /// When it was first seen to.
    since: Monotonic,
    /// Its last heartbeat.
    beat: u64,
    /// When that was first seen.
    heard_at: Monotonic,
}

/// What the records of the others say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubFinding {
    /// Everybody who is alive reads our hub, as far as they tell.
    Same,
    /// Somebody reports another log, and may be dead or about to learn of ours.
    Unsure,
    /// Somebody alive reads another hub.
    Different {
        /// Who.
        host: HostId,
        /// Which.
        reads: ReadHub,
    },
}

impl HubWatch {
    /// Begins to watch. Within `patience`, everybody who is alive looks at the hub, and says so.
    pub fn new(patience: Duration) -> Self {
        Self { patience, others: BTreeMap::new() }
    }

    /// Looks at the records of a view that was read just now. `log` is ours.
    pub fn look(&mut self, me: &HostId, log: &LogId, hosts: &[HostEntry], now: Monotonic) -> HubFinding {
        let reads = |record: &HostRecord| record.hub.clone().filter(|hub| hub.log != *log);
        let conflicting = hosts.iter().filter(|entry| entry.record.id != *me);
        let conflicting: Vec<(&HostEntry, ReadHub)> =
            conflicting.filter_map(|entry| Some((entry, reads(&entry.record)?))).collect();
        self.others.retain(|id, _| conflicting.iter().any(|(entry, _)| entry.record.id == *id));
        let mut finding = HubFinding::Same;
        for (HostEntry { record, age, age_known }, reads) in conflicting {
            let new = Other { since: now, beat: record.beat, heard_at: now };
            let other = self.others.entry(record.id.clone()).or_insert(new);
            if record.beat > other.beat {
                (other.beat, other.heard_at) = (record.beat, now);
                if now.since(other.since) >= self.patience {
                    return HubFinding::Different { host: record.id.clone(), reads };
                }
            }
            let silent = now.since(other.heard_at) >= record.lease_duration;
            let old = *age_known && *age >= record.lease_duration;
            if !silent && !old {
                finding = HubFinding::Unsure;
            }
        }
        finding
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_record::{HostState, HostStatistics};
    use crate::ids::Incarnation;

    const PATIENCE: Duration = Duration::from_secs(50);

    fn id(name: &str) -> HostId {
        HostId { name: name.parse().unwrap(), incarnation: Incarnation(1) }
    }

    fn entry(name: &str, beat: u64, log: Option<&str>, age: u64) -> HostEntry {
        let reads = |log| ReadHub { endpoint: format!("hub of {name}"), log: LogId::new(log) };
        let record = HostRecord {
            id: id(name),
            beat,
            state: HostState::Active,
            lease_duration: Duration::from_secs(30),
            max_partitions: None,
            wants: vec![],
            answers: vec![],
            statistics: HostStatistics::default(),
            software: String::new(),
            hub: log.map(reads),
        };
        HostEntry { record, age: Duration::from_secs(age), age_known: true }
    }

    /// What host `a` of log `x` finds, look by look.
    fn watched(looks: &[(u64, &[HostEntry])]) -> Vec<HubFinding> {
        let at = |seconds| Monotonic(0) + Duration::from_secs(seconds);
        let mut watch = HubWatch::new(PATIENCE);
        let look = |(seconds, hosts): &(u64, &[HostEntry])| {
            watch.look(&id("a"), &LogId::new("x"), hosts, at(*seconds))
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn who_reads_our_hub_or_does_not_tell_is_no_matter() {
        let hosts = [entry("a", 1, Some("y"), 0), entry("b", 1, Some("x"), 0), entry("c", 1, None, 0)];
        assert_eq!(watched(&[(0, &hosts)]), [HubFinding::Same]);
    }

    #[test]
    fn who_goes_on_with_another_log_reads_another_hub() {
        let beats = [1, 2, 3].map(|beat| [entry("b", beat, Some("y"), 1)]);
        let reads = ReadHub { endpoint: "hub of b".into(), log: LogId::new("y") };
        let different = HubFinding::Different { host: id("b"), reads };
        assert_eq!(
            watched(&[(0, &beats[0]), (40, &beats[1]), (49, &beats[1]), (51, &beats[1]), (52, &beats[2])]),
            [HubFinding::Unsure, HubFinding::Unsure, HubFinding::Unsure, HubFinding::Unsure, different]
        );
    }

    #[test]
    fn who_learns_of_the_new_log_in_time_reads_our_hub() {
        let old = [entry("b", 1, Some("y"), 1)];
        let away = [entry("b", 5, None, 1)];
        let new = [entry("b", 9, Some("x"), 1)];
        assert_eq!(
            watched(&[(0, &old), (30, &away), (60, &new)]),
            [HubFinding::Unsure, HubFinding::Same, HubFinding::Same]
        );
    }

    #[test]
    fn who_learns_of_a_new_log_before_us_waits_for_us() {
        let same = [entry("b", 1, Some("x"), 1)];
        let beats = [2, 3, 4].map(|beat| [entry("b", beat, Some("y"), 1)]);
        let found = watched(&[(0, &same), (100, &beats[0]), (120, &beats[1]), (151, &beats[2])]);
        assert_eq!(found[1..3], [HubFinding::Unsure, HubFinding::Unsure]);
        assert!(matches!(found[3], HubFinding::Different { .. }), "we have had our time, too");
    }

    #[test]
    fn the_dead_are_not_asked() {
        assert_eq!(watched(&[(0, &[entry("b", 1, Some("y"), 30)])]), [HubFinding::Same]);
        let silent = HostEntry { age_known: false, ..entry("b", 1, Some("y"), 0) };
        let silent = std::slice::from_ref(&silent);
        assert_eq!(
            watched(&[(0, silent), (29, silent), (30, silent)])[1..],
            [HubFinding::Unsure, HubFinding::Same]
        );
    }
}
