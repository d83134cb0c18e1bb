//! Tracks the hub that each host of a group reads, and detects hosts that read different hubs.
//!
//! A group is named after its hub, and two hubs may have the same name: development hubs on two
//! ports of one address, for example. Their hosts would share one set of leases, and each would
//! read only a part of its own hub. A hub that was deleted and created again looks the same at
//! first, because its hosts learn of the new log one by one. So another log counts only if a host
//! that is alive still reports it after every host has had the time to ask the hub again.
//!
//! A heartbeat is dated by when it was seen, not by when it was written: the store may be
//! unreachable in between, for the host that writes or for the one that watches. So a heartbeat is
//! evidence only if it
//!
//! - reports the same log as all others since the time began to count,
//! - does not end a silence of a lease or more, after which the time starts again,
//! - was absent from an earlier view that came after that time, so that it was written later.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::host_record::ReadHub;
use crate::ids::{HostId, LogId};
use crate::loopback::is_loopback;
use crate::store::HostEntry;
use crate::time::Monotonic;

/// The interval at which every host asks its hub for its properties.
pub const HUB_REFRESH: Duration = Duration::from_secs(30);

/// Tracks the hubs that the other hosts of a group read.
#[derive(Clone, Debug)]
pub struct HubTracker {
    patience: Duration,
    /// The time of the last view.
    last_view_at: Option<Monotonic>,
    /// The hosts that report another log.
    others: BTreeMap<HostId, Other>,
}

/// A host that reports another log.
#[derive(Clone, Debug)]
struct Other {
    /// The log.
    log: LogId,
    /// The time at which it was first seen to report it, without a silence since.
    since: Monotonic,
    /// Its last heartbeat.
    beat: u64,
    /// The time at which that heartbeat was first seen.
    heard_at: Monotonic,
}

/// The conclusion from the records of the other hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubFinding {
    /// All living hosts read our hub, as far as they report it.
    Same,
    /// A host reports another log, but may be dead or about to learn of ours.
    Unsure {
        /// The host.
        host: HostId,
        /// The hub that it reads.
        reads: ReadHub,
    },
    /// A living host reads another hub.
    Different {
        /// The host.
        host: HostId,
        /// The hub that it reads.
        reads: ReadHub,
    },
}

impl HubTracker {
    /// Starts to watch. Within `patience`, every living host asks its hub and reports the log. A
    /// host whose own lease is long gets [longer](patience_with).
    pub fn new(patience: Duration) -> Self {
        Self { patience, last_view_at: None, others: BTreeMap::new() }
    }

    /// Takes in the records of a view that was read just now. `ours` is the hub that `me` reads.
    pub fn observe(
        &mut self,
        me: &HostId,
        ours: &ReadHub,
        hosts: &[HostEntry],
        now: Monotonic,
    ) -> HubFinding {
        let before = self.last_view_at.replace(now);
        let conflicting = hosts.iter().filter(|entry| entry.record.id != *me);
        let conflicting: Vec<(&HostEntry, &ReadHub)> = conflicting
            .filter_map(|entry| Some((entry, entry.record.hub.as_ref()?)))
            .filter(|(_, reads)| reads.log != ours.log && !is_one_place(&reads.endpoint, &ours.endpoint))
            .collect();
        self.others.retain(|id, _| conflicting.iter().any(|(entry, _)| entry.record.id == *id));
        let mut finding = HubFinding::Same;
        for (HostEntry { record, age, age_known }, reads) in conflicting {
            let new = Other { log: reads.log.clone(), since: now, beat: record.beat, heard_at: now };
            let other = self.others.entry(record.id.clone()).or_insert_with(|| new.clone());
            let speaks = record.beat > other.beat;
            let back = speaks && now.since(other.heard_at) >= record.lease_duration;
            if other.log != reads.log || back {
                *other = new;
            } else if speaks {
                (other.beat, other.heard_at) = (record.beat, now);
                let ripe = patience_with(self.patience, record.lease_duration);
                let proven = before.is_some_and(|before| before.since(other.since) >= ripe);
                if proven && !matches!(finding, HubFinding::Different { .. }) {
                    finding = HubFinding::Different { host: record.id.clone(), reads: reads.clone() };
                }
            }
            let silent = now.since(other.heard_at) >= record.lease_duration;
            let old = *age_known && *age >= record.lease_duration;
            if !silent && !old && finding == HubFinding::Same {
                finding = HubFinding::Unsure { host: record.id.clone(), reads: reads.clone() };
            }
        }
        finding
    }
}

/// The time for which a host with this lease may report a log that no longer exists. Its options
/// are its own; all that is known of them is that a heartbeat and a read of the store fit into its
/// lease.
pub fn patience_with(patience: Duration, lease_duration: Duration) -> Duration {
    patience.max(HUB_REFRESH.saturating_add(lease_duration.saturating_mul(2)))
}

/// True if two hosts that name these endpoints reach one hub, whatever log they found there: then
/// it was deleted and created again. An address of the own machine, a name without a domain (of a
/// container, for example) and a path in the file system mean something else on another machine.
fn is_one_place(one: &str, other: &str) -> bool {
    let host = one.split_once('/').and_then(|(address, _)| address.rsplit_once(':')).map(|(host, _)| host);
    one == other && host.is_some_and(means_the_same_everywhere)
}

fn means_the_same_everywhere(host: &str) -> bool {
    if is_loopback(host) {
        return false;
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(address) => !address.is_unspecified(),
        Err(_) => {
            let host = host.trim_end_matches('.').to_ascii_lowercase();
            host.contains('.') && !host.ends_with(".localhost") && !host.ends_with(".localdomain")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_record::{HostRecord, HostState, HostStatistics};
    use crate::ids::Incarnation;

    /// Shorter than the patience for a lease of 30 s, which is 90 s.
    const PATIENCE: Duration = Duration::from_secs(50);

    fn id(name: &str) -> HostId {
        HostId { name: name.parse().unwrap(), incarnation: Incarnation(1) }
    }

    fn hub(name: &str, log: &str) -> ReadHub {
        ReadHub { endpoint: format!("hub of {name}"), log: LogId::new(log) }
    }

    fn entry(name: &str, beat: u64, log: Option<&str>, age: u64) -> HostEntry {
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
            hub: log.map(|log| hub(name, log)),
        };
        HostEntry { record, age: Duration::from_secs(age), age_known: true }
    }

    /// The findings of host `a` with log `x`, view by view.
    fn watched(views: &[(u64, &[HostEntry])]) -> Vec<HubFinding> {
        let at = |seconds| Monotonic(0) + Duration::from_secs(seconds);
        let mut tracker = HubTracker::new(PATIENCE);
        let observe = |(seconds, hosts): &(u64, &[HostEntry])| {
            tracker.observe(&id("a"), &hub("a", "x"), hosts, at(*seconds))
        };
        views.iter().map(observe).collect()
    }

    /// The same, if host `b` writes its record with these logs at these seconds, one heartbeat
    /// each.
    fn heard(beats: &[(u64, &str)]) -> Vec<HubFinding> {
        let entries: Vec<(u64, [HostEntry; 1])> = (1..)
            .zip(beats)
            .map(|(beat, (seconds, log))| (*seconds, [entry("b", beat, Some(log), 1)]))
            .collect();
        let views: Vec<(u64, &[HostEntry])> =
            entries.iter().map(|(seconds, hosts)| (*seconds, &hosts[..])).collect();
        watched(&views)
    }

    fn unsure(log: &str) -> HubFinding {
        HubFinding::Unsure { host: id("b"), reads: hub("b", log) }
    }

    fn different(log: &str) -> HubFinding {
        HubFinding::Different { host: id("b"), reads: hub("b", log) }
    }

    #[test]
    fn who_reads_our_hub_or_does_not_tell_is_no_matter() {
        let hosts = [entry("a", 1, Some("y"), 0), entry("b", 1, Some("x"), 0), entry("c", 1, None, 0)];
        assert_eq!(watched(&[(0, &hosts)]), [HubFinding::Same]);
    }

    #[test]
    fn who_goes_on_with_another_log_reads_another_hub() {
        let found = heard(&[(0, "y"), (25, "y"), (50, "y"), (75, "y"), (91, "y"), (101, "y")]);
        assert_eq!(
            found[..5],
            [(); 5].map(|()| unsure("y")),
            "the beat at 91 s may have been written at 76 s"
        );
        assert_eq!(found[5], different("y"));
    }

    #[test]
    fn a_beat_that_was_there_before_is_no_evidence() {
        let beats = [1, 2, 3, 4, 5].map(|beat| [entry("b", beat, Some("y"), 1)]);
        let found = watched(&[
            (0, &beats[0]),
            (25, &beats[1]),
            (50, &beats[2]),
            (75, &beats[3]),
            (91, &beats[3]),
            (96, &beats[3]),
            (97, &beats[4]),
        ]);
        assert_eq!(found[..6], [(); 6].map(|()| unsure("y")));
        assert_eq!(found[6], different("y"));
    }

    #[test]
    fn who_learns_of_the_new_log_in_time_reads_our_hub() {
        let old = [entry("b", 1, Some("y"), 1)];
        let away = [entry("b", 5, None, 1)];
        let new = [entry("b", 9, Some("x"), 1)];
        assert_eq!(
            watched(&[(0, &old), (30, &away), (60, &new)]),
            [unsure("y"), HubFinding::Same, HubFinding::Same]
        );
    }

    #[test]
    fn who_learns_of_a_new_log_before_us_waits_for_us() {
        let found = heard(&[
            (0, "x"),
            (100, "y"),
            (120, "y"),
            (140, "y"),
            (160, "y"),
            (180, "y"),
            (191, "y"),
            (201, "y"),
        ]);
        assert_eq!(found[0], HubFinding::Same);
        assert_eq!(found[1..7], [(); 6].map(|()| unsure("y")));
        assert_eq!(found[7], different("y"), "we have had our time, too");
    }

    /// A hub that was created again twice: the time that a host reported the first log says nothing
    /// about the third.
    #[test]
    fn the_time_begins_anew_with_each_log() {
        let found = heard(&[(0, "y"), (25, "y"), (50, "y"), (75, "y"), (95, "z"), (105, "z"), (115, "z")]);
        assert_eq!(found[4..], [(); 3].map(|()| unsure("z")));
        // The same with a host that could not write its record for longer than a lease.
        let old = [entry("b", 1, Some("y"), 1)];
        let silent = [entry("b", 1, Some("y"), 70)];
        let back = [entry("b", 9, Some("z"), 0)];
        assert_eq!(
            watched(&[(11, &old), (81, &silent), (93, &silent), (104, &back)]),
            [unsure("y"), HubFinding::Same, HubFinding::Same, unsure("z")]
        );
    }

    /// The store was unreachable for all: a record that is first seen afterwards may have been
    /// written just before.
    #[test]
    fn a_watcher_that_saw_nothing_for_a_while_does_not_take_an_old_beat_for_a_new_one() {
        let found = heard(&[(0, "y"), (10, "y"), (20, "y"), (26, "y"), (56, "y")]);
        assert_eq!(found[4], unsure("y"));
        let found = heard(&[(0, "y"), (25, "y"), (50, "y"), (75, "y"), (85, "y"), (114, "y")]);
        assert_eq!(found[5], unsure("y"), "no look in between was late enough");
    }

    #[test]
    fn after_a_silence_of_a_lease_the_time_begins_anew() {
        let found = heard(&[(0, "y"), (25, "y"), (50, "y"), (75, "y"), (91, "y"), (121, "y"), (131, "y")]);
        assert_eq!(found[5..], [unsure("y"), unsure("y")]);
    }

    #[test]
    fn a_host_with_a_long_lease_has_longer() {
        let slow = |beat| {
            let mut slow = entry("b", beat, Some("y"), 1);
            slow.record.lease_duration = Duration::from_secs(60);
            [slow]
        };
        let beats: Vec<[HostEntry; 1]> = (0..18).map(slow).collect();
        let views: Vec<(u64, &[HostEntry])> =
            (0..).step_by(10).zip(&beats).map(|(seconds, hosts)| (seconds, &hosts[..])).collect();
        let found = watched(&views);
        let first = found.iter().position(|found| *found == different("y"));
        assert_eq!(first, Some(16), "30 s and twice 60 s, and the next look");
    }

    #[test]
    fn one_host_of_another_hub_does_not_hide_the_others() {
        let hosts = |beat, of_c| [entry("b", beat, Some("y"), 1), entry("c", beat, Some(of_c), 1)];
        let rounds = [
            hosts(1, "y"),
            hosts(2, "y"),
            hosts(3, "y"),
            hosts(4, "y"),
            hosts(5, "y"),
            hosts(6, "z"),
            hosts(7, "z"),
        ];
        let mut views: Vec<(u64, &[HostEntry])> =
            (0..).step_by(25).zip(&rounds).map(|(seconds, hosts)| (seconds, &hosts[..])).collect();
        let alone = [entry("c", 8, Some("z"), 1)];
        views.push((175, &alone));
        let found = watched(&views);
        assert_eq!(found[5..7], [different("y"), different("y")]);
        let c = HubFinding::Unsure { host: id("c"), reads: hub("c", "z") };
        assert_eq!(found[7], c, "its change of the log was noticed");
    }

    #[test]
    fn the_dead_are_not_asked() {
        assert_eq!(watched(&[(0, &[entry("b", 1, Some("y"), 30)])]), [HubFinding::Same]);
        let silent = HostEntry { age_known: false, ..entry("b", 1, Some("y"), 0) };
        let silent = std::slice::from_ref(&silent);
        assert_eq!(watched(&[(0, silent), (29, silent), (30, silent)])[1..], [unsure("y"), HubFinding::Same]);
    }

    #[test]
    fn one_address_is_one_hub_unless_it_means_something_else_on_another_machine() {
        let one =
            ["homes.servicebus.windows.net:5671/homes", "10.0.0.7:5672/homes", "[2001:db8::7]:5672/homes"];
        for endpoint in one {
            assert!(is_one_place(endpoint, endpoint), "{endpoint}");
        }
        let unknown = [
            "localhost:5672/homes",
            "dev.localhost:5672/homes",
            "127.0.0.1:5672/homes",
            "127.8.0.1:5672/homes",
            "0.0.0.0:5672/homes",
            "[::1]:5672/homes",
            "hub:5672/homes",
            "memory/homes",
            "local.example/homes in /var/lib/hub:1/homes",
        ];
        for endpoint in unknown {
            assert!(!is_one_place(endpoint, endpoint), "{endpoint}");
        }
        assert!(!is_one_place("one.example:5672/homes", "one.example:7672/homes"));
        let mut tracker = HubTracker::new(PATIENCE);
        let at = |log| ReadHub { endpoint: "hub.example:5671/homes".into(), log: LogId::new(log) };
        for beat in 1..100 {
            let mut other = entry("b", beat, None, 0);
            other.record.hub = Some(at("y"));
            let now = Monotonic(0) + Duration::from_secs(10 * beat);
            assert_eq!(tracker.observe(&id("a"), &at("x"), &[other], now), HubFinding::Same);
        }
    }
}
