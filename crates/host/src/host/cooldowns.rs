//! The cooldowns of partitions: times during which this host does not claim a partition, because a foreign
//! reader took it or it failed here.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;
use ephor_core::time::Monotonic;

use super::foreign_readers::Foreign;
use crate::error::HostError;
use crate::limits::{FOREIGN_BACKOFF, MAX_FOREIGN_ATTEMPTS};

/// The most doublings of the pause after a processor did not open: from 5 to 80 s.
const MAX_OPEN_DOUBLINGS: u32 = 4;

#[derive(Debug, Default)]
pub(super) struct Cooldowns(BTreeMap<PartitionId, Cooldown>);

#[derive(Debug)]
struct Cooldown {
    until: Monotonic,
    /// The foreign reader that took it, if one did.
    foreign: Option<Foreign>,
    /// The number of times in a row that its processor did not open here.
    unopened: u32,
}

/// The reaction to a foreign reader of a partition whose lease is ours.
#[derive(Debug, Default)]
pub(super) struct ForeignReaction {
    /// Reported once each time that the reader takes the partition.
    pub(super) report: Option<HostError>,
    /// The time from which to claim the partition back and the epoch to claim above, unless that
    /// was tried often enough.
    pub(super) claim_back: Option<(Monotonic, Epoch)>,
}

impl Cooldowns {
    pub(super) fn is_cooling_down(&self, partition: PartitionId, now: Monotonic) -> bool {
        self.0.get(&partition).is_some_and(|cooldown| now < cooldown.until)
    }

    /// The epoch above which to claim because of a foreign reader.
    pub(super) fn claim_above(&self, partition: PartitionId) -> Epoch {
        let foreign = self.0.get(&partition).and_then(|cooldown| cooldown.foreign.as_ref());
        foreign.map_or(Epoch::NONE, Foreign::above)
    }

    /// Notes that the processor opened.
    pub(super) fn opened(&mut self, partition: PartitionId) {
        if let Some(cooldown) = self.0.get_mut(&partition) {
            cooldown.unopened = 0;
        }
    }

    /// Forgets the earlier failures of a partition.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        self.0.remove(&partition);
    }

    /// Notes that a foreign reader took a partition with this epoch. After too many attempts it is
    /// left alone for `rest`. `chance` is drawn only if it is needed.
    pub(super) fn displaced(
        &mut self,
        partition: PartitionId,
        (epoch, by): (Epoch, Option<String>),
        now: Monotonic,
        rest: Duration,
        chance: impl FnOnce() -> u64,
    ) {
        let before = self.0.get(&partition).and_then(|cooldown| cooldown.foreign.as_ref());
        let attempts = before.map_or(1, |foreign| foreign.attempts + 1);
        let wait =
            if attempts <= MAX_FOREIGN_ATTEMPTS { FOREIGN_BACKOFF.delay(attempts, chance()) } else { rest };
        let foreign = Some(Foreign { epoch, by, attempts, reported: false });
        self.0.insert(partition, Cooldown { until: now + wait, foreign, unopened: 0 });
    }

    /// Notes that a partition failed. If its processor did not open, the pause is longer each time,
    /// until another host finds the partition free for too long and tries it.
    pub(super) fn failed(
        &mut self,
        partition: PartitionId,
        now: Monotonic,
        pause: Duration,
        is_unopened: bool,
    ) {
        let before = self.0.get(&partition).map_or(0, |cooldown| cooldown.unopened);
        let unopened = if is_unopened { before + 1 } else { 0 };
        let until = now + pause * 2_u32.pow(unopened.saturating_sub(1).min(MAX_OPEN_DOUBLINGS));
        self.0.insert(partition, Cooldown { until, foreign: None, unopened });
    }

    /// The reaction to the foreign reader of a partition, if one took it. `highest` is the highest
    /// epoch of the fleet.
    pub(super) fn react_to_foreign_reader(
        &mut self,
        partition: PartitionId,
        highest: Epoch,
    ) -> ForeignReaction {
        let Some(Cooldown { until, foreign: Some(foreign), .. }) = self.0.get_mut(&partition) else {
            return ForeignReaction::default();
        };
        let claims_back = foreign.attempts <= MAX_FOREIGN_ATTEMPTS;
        // A reader beyond reach is reported for as long as it lasts, because nothing of the
        // partition is processed meanwhile.
        let is_news = (claims_back || foreign.is_beyond_reach(highest)) && !foreign.reported;
        foreign.reported |= is_news;
        ForeignReaction {
            report: is_news.then(|| foreign.error(partition, highest)),
            claim_back: claims_back.then(|| (*until, foreign.above())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_values::at;
    use super::*;

    const PARTITION: PartitionId = PartitionId(3);
    const PAUSE: Duration = Duration::from_secs(5);
    const REST: Duration = Duration::from_secs(60);

    /// The whole seconds until the partition may be claimed.
    fn left(cooldowns: &Cooldowns) -> u64 {
        (0..).find(|second| !cooldowns.is_cooling_down(PARTITION, at(*second))).unwrap()
    }

    fn taken(cooldowns: &mut Cooldowns, epoch: u64) {
        let reader = (Epoch::from_stored(epoch), Some("reader".into()));
        cooldowns.displaced(PARTITION, reader, at(0), REST, || 0);
    }

    #[test]
    fn a_processor_that_does_not_open_pauses_its_partition_longer_each_time() {
        let mut cooldowns = Cooldowns::default();
        assert_eq!(left(&cooldowns), 0);
        let mut fail = |is_unopened| {
            cooldowns.failed(PARTITION, at(0), PAUSE, is_unopened);
            left(&cooldowns)
        };
        assert_eq!([true; 7].map(&mut fail), [5, 10, 20, 40, 80, 80, 80]);
        assert_eq!(fail(false), 5, "another failure");
        assert_eq!(fail(true), 5);
        cooldowns.opened(PARTITION);
        cooldowns.failed(PARTITION, at(0), PAUSE, true);
        assert_eq!(left(&cooldowns), 5, "it had opened");
        cooldowns.forget(PARTITION);
        assert_eq!(left(&cooldowns), 0);
    }

    #[test]
    fn a_partition_is_claimed_back_a_few_times_above_the_reader_and_then_left_alone() {
        let mut cooldowns = Cooldowns::default();
        for attempt in 1..=MAX_FOREIGN_ATTEMPTS {
            taken(&mut cooldowns, 7);
            assert!(left(&cooldowns) < REST.as_secs());
            let reaction = cooldowns.react_to_foreign_reader(PARTITION, Epoch::FIRST);
            assert!(
                matches!(reaction.report, Some(HostError::ForeignReader { attempt: told, .. }) if told == attempt)
            );
            assert_eq!(reaction.claim_back.map(|(_, above)| above), Some(Epoch::from_stored(7)));
            assert!(cooldowns.react_to_foreign_reader(PARTITION, Epoch::FIRST).report.is_none(), "told once");
        }
        taken(&mut cooldowns, 7);
        assert_eq!(left(&cooldowns), REST.as_secs());
        let reaction = cooldowns.react_to_foreign_reader(PARTITION, Epoch::FIRST);
        assert!(reaction.report.is_none() && reaction.claim_back.is_none());
        assert_eq!(cooldowns.claim_above(PARTITION), Epoch::from_stored(7));
    }

    #[test]
    fn a_reader_beyond_reach_is_reported_as_long_as_it_lasts() {
        let mut cooldowns = Cooldowns::default();
        for _ in 0..2 * MAX_FOREIGN_ATTEMPTS {
            taken(&mut cooldowns, u64::MAX);
            let reaction = cooldowns.react_to_foreign_reader(PARTITION, Epoch::FIRST);
            assert!(matches!(reaction.report, Some(HostError::ForeignReaderBeyondReach { .. })));
        }
        assert_eq!(cooldowns.claim_above(PARTITION), Epoch::NONE);
    }

    #[test]
    fn a_partition_without_a_foreign_reader_needs_no_reaction() {
        let mut cooldowns = Cooldowns::default();
        cooldowns.failed(PARTITION, at(0), PAUSE, false);
        let reaction = cooldowns.react_to_foreign_reader(PARTITION, Epoch::FIRST);
        assert!(reaction.report.is_none() && reaction.claim_back.is_none());
    }
}
