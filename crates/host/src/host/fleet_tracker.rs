//! Tracks the fleet from scan to scan: which hosts are alive, which problems were reported already, and
//! which partitions wait too long for their first owner.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor_core::balance::PartitionSlot;
use ephor_core::expiry::LivenessTracker;
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::store::View;
use ephor_core::time::Monotonic;

use super::hosts_with_our_name::HostsWithOurName;
use crate::error::HostError;

pub(super) struct FleetTracker {
    pub(super) liveness: LivenessTracker,
    same_name: HostsWithOurName,
    /// Damaged records that were reported.
    damaged: Vec<String>,
    /// The number of partitions without an owner that was reported.
    without_owner: usize,
    /// Partitions that never had an owner, and the time since which they are seen so.
    unclaimed: BTreeMap<PartitionId, Monotonic>,
}

impl FleetTracker {
    pub(super) fn new(liveness: LivenessTracker) -> Self {
        Self {
            liveness,
            same_name: HostsWithOurName::default(),
            damaged: vec![],
            without_owner: 0,
            unclaimed: BTreeMap::new(),
        }
    }

    /// The errors to report because of a view: each one once, until it is over.
    pub(super) fn notice(&mut self, me: &HostId, view: &View) -> Vec<HostError> {
        let mut errors = vec![];
        if self.damaged != view.damaged {
            self.damaged.clone_from(&view.damaged);
            errors.extend(view.damaged.iter().map(|what| HostError::Damaged { what: what.clone() }));
        }
        let same_name = self.same_name.notice(me, view);
        errors.extend(same_name.into_iter().map(|other| HostError::NameInUse { other }));
        errors
    }

    /// The error to report if no host may take some partitions: once for each number of them.
    pub(super) fn notice_without_owner(&mut self, partitions: usize) -> Option<HostError> {
        let before = std::mem::replace(&mut self.without_owner, partitions);
        (partitions > 0 && partitions != before).then_some(HostError::PartitionsWithoutOwner { partitions })
    }

    /// Marks the partitions that had no record for so long that any host may claim them, as with
    /// one that was released. A partition without a record has no age, and the host that should
    /// claim it may be alive and never do so.
    pub(super) fn mark_overdue(
        &mut self,
        slots: &mut [PartitionSlot],
        view: &View,
        now: Monotonic,
        patience: Duration,
    ) {
        let mut before = std::mem::take(&mut self.unclaimed);
        for slot in slots.iter_mut().filter(|slot| view.lease(slot.partition).is_none()) {
            let since = before.remove(&slot.partition).unwrap_or(now);
            slot.overdue = now.since(since) >= patience;
            self.unclaimed.insert(slot.partition, since);
        }
    }
}

#[cfg(test)]
mod tests {
    use ephor_core::expiry::Tolerance;

    use super::super::test_values::{at, host, record, view_of};
    use super::*;

    fn tracker() -> FleetTracker {
        FleetTracker::new(LivenessTracker::new(Tolerance::default(), Duration::from_secs(120)))
    }

    #[test]
    fn damage_is_reported_when_it_changes() {
        let (mut tracker, me) = (tracker(), host("a", 1));
        let mut reported = |damaged: &[&str]| {
            let damaged = damaged.iter().map(ToString::to_string).collect();
            tracker.notice(&me, &View { damaged, ..View::default() }).len()
        };
        assert_eq!(reported(&["lease 3"]), 1);
        assert_eq!(reported(&["lease 3"]), 0, "it is known");
        assert_eq!(reported(&["lease 3", "lease 4"]), 2);
        assert_eq!(reported(&[]), 0);
        assert_eq!(reported(&["lease 3"]), 1, "it is back");
    }

    #[test]
    fn a_living_namesake_is_reported() {
        let (mut tracker, me) = (tracker(), host("a", 1));
        assert!(tracker.notice(&me, &view_of([record(host("a", 2), 1)])).is_empty());
        let errors = tracker.notice(&me, &view_of([record(host("a", 2), 2)]));
        assert!(matches!(&errors[..], [HostError::NameInUse { other }] if *other == host("a", 2)));
    }

    #[test]
    fn partitions_without_a_place_are_reported_once_for_each_number() {
        let mut tracker = tracker();
        let reported =
            [0, 2, 2, 1, 0, 1].map(|partitions| tracker.notice_without_owner(partitions).is_some());
        assert_eq!(reported, [false, true, false, true, false, true]);
    }

    #[test]
    fn a_partition_that_nobody_claims_is_overdue_after_a_while() {
        let (mut tracker, patience) = (tracker(), Duration::from_secs(10));
        let mut overdue = |partitions: &[u32], second| {
            let slot = |partition: &u32| PartitionSlot {
                partition: PartitionId(*partition),
                holder: None,
                preferred_owner: None,
                overdue: false,
            };
            let mut slots: Vec<_> = partitions.iter().map(slot).collect();
            tracker.mark_overdue(&mut slots, &View::default(), at(second), patience);
            slots.iter().map(|slot| slot.overdue).collect::<Vec<_>>()
        };
        assert_eq!(overdue(&[0], 100), [false]);
        assert_eq!(overdue(&[0, 1], 109), [false, false]);
        assert_eq!(overdue(&[0, 1], 110), [true, false]);
        assert_eq!(overdue(&[1], 111), [false]);
        assert_eq!(overdue(&[0, 1], 119), [false, true], "the first one was gone meanwhile");
    }
}
