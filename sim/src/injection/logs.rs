//! Injects faults of the hub's log: bursts, retention, damage, compaction, stale replicas, and a hub that is
//! created again with more events.

use std::time::Duration;

use ephor::{PartitionId, SequenceNumber};

use super::Undo;
use super::hubs::MAX_LAG;
use crate::events::stamped;
use crate::fleet::log_of;
use crate::run::Run;
use crate::scenario::{Fault, Injection};

/// The shortest lag of a replica, so that hosts notice it.
const MIN_LAG: Duration = Duration::from_secs(5);
/// The longest time for which a hub that is created again is unreachable.
const MAX_AWAY: Duration = Duration::from_secs(20);
/// At most this many partitions of a hub that was created again get events.
const MAX_FILLED: usize = 4;
/// Damage destroys at most this many events.
const MAX_DAMAGED: u64 = 8;

/// The number of events before a log is compacted.
const COMPACTED: u64 = 60;

impl Run {
    pub(super) fn inject_into_log(&mut self, injection: &Injection) -> bool {
        let world = self.world.clone();
        // An unreachable hub stores nothing.
        if log_of(&world.hub).is_none() {
            return false;
        }
        let all = world.partitions();
        let partition = all[injection.target % all.len()];
        let name = format!("{:?}", injection.fault);
        match injection.fault {
            Fault::HubReplicaLags => {
                let lag = injection.lasting.clamp(MIN_LAG, MAX_LAG);
                world.history.append(format_args!("the hub answers as a replica that lags for {lag:?}"));
                world.cover(&name, &all);
                world.hub.hold_opens();
                self.later(lag / 3, Undo::HubLinks);
                self.later(lag, Undo::HubProperties);
                true
            }
            Fault::HubRefilled => {
                let away = injection.lasting.min(MAX_AWAY);
                world
                    .history
                    .append(format_args!("the hub is unreachable for {away:?}, and then created again"));
                world.cover(&name, &all);
                world.hub.fail(Some("the hub is away"));
                self.later(away, Undo::HubRefilled(injection.target));
                true
            }
            Fault::RetentionOvertakes => {
                world.cover(&name, &[partition]);
                self.send_burst(partition);
                let soon = Duration::from_millis(50 + injection.target as u64);
                self.later(soon, Undo::Overtake(partition, 1 + injection.target as u64 % 5));
                true
            }
            Fault::HubCompacted => {
                world.cover(&name, &[partition]);
                self.compact_events(partition);
                true
            }
            Fault::HubDamaged => self.damage_events(injection, partition),
            other => unreachable!("{other:?} is no fault of the log"),
        }
    }

    /// Sends more events to a partition than a reader prefetches.
    fn send_burst(&self, partition: PartitionId) -> u64 {
        let world = &self.world;
        let count = 6 * world.scenario.config.max_batch_size as u64 + 10;
        world.history.append(format_args!("the hub gets {count} events for {partition:?} at once"));
        self.fill(partition, count);
        count
    }

    fn fill(&self, partition: PartitionId, count: u64) {
        let world = &self.world;
        let event = |number| stamped(world.user_code.body(number as u32), world.judge.log_generation());
        // A hub in memory accepts everything while it is up.
        let _ = world.hub.send_batch(partition, (0..count).map(event));
    }

    /// Removes all events but the newest by retention, regardless of the reader's position.
    pub(super) fn retention_overtakes(&self, partition: PartitionId, count: u64) {
        let world = &self.world;
        let Some(now) = world.hub.true_properties().into_iter().find(|now| now.id == partition) else {
            return;
        };
        let Some(last) = now.last else { return };
        let kept = SequenceNumber(last.sequence.next().0.saturating_sub(count)).max(now.first);
        world.history.append(format_args!("the events of {partition:?} before {kept:?} are removed"));
        let _ = world.hub.forget_before(partition, kept);
        // Numbers without an event that follow `kept` count as removed, too.
        let now = world.hub.true_properties().into_iter().find(|now| now.id == partition);
        world.judge.removed_before(partition, now.map_or(kept, |now| now.first.max(kept)));
    }

    /// Destroys some events in the middle of a range; its oldest and its newest event stay.
    fn damage_events(&self, injection: &Injection, partition: PartitionId) -> bool {
        let world = &self.world;
        // In three of four cases the damaged range is new, so mostly unread.
        let fresh = !injection.target.is_multiple_of(4);
        let among = fresh.then(|| self.send_burst(partition));
        let Some(now) = world.hub.true_properties().into_iter().find(|now| now.id == partition) else {
            return false;
        };
        let end = now.last.as_ref().map_or(now.first, |last| last.sequence.next());
        let among = among.unwrap_or(end.0.saturating_sub(now.first.0));
        if among < 3 {
            return false;
        }
        let target = injection.target as u64;
        let lost = (1 + target % MAX_DAMAGED).min(among - 2);
        let from = SequenceNumber(end.0 - among + 1 + target / 7 % (among - lost - 1));
        let to = SequenceNumber(from.0 + lost);
        world.history.append(format_args!(
            "the hub has lost the events of {partition:?} from {from:?} to before {to:?}"
        ));
        world.cover("HubDamaged", &[partition]);
        world.judge.passed_over(partition, from..to);
        world.hub.lose(partition, from..to).is_ok()
    }

    /// Sends many events, and destroys every second one of them; the newest stays.
    fn compact_events(&self, partition: PartitionId) {
        let world = &self.world;
        world.history.append(format_args!(
            "the hub gets {COMPACTED} events for {partition:?}, and has lost every second one"
        ));
        self.fill(partition, COMPACTED);
        let now = world.hub.true_properties().into_iter().find(|now| now.id == partition);
        let Some(last) = now.and_then(|now| now.last) else { return };
        for lost in (1..COMPACTED).step_by(2).map(|before| SequenceNumber(last.sequence.0 - before)) {
            world.judge.passed_over(partition, lost..lost.next());
            let _ = world.hub.lose(partition, lost..lost.next());
        }
    }

    /// Brings the hub back, created again, with more events in some of its partitions than they had.
    pub(super) fn refill_recreated_hub(&self, target: usize) {
        let world = &self.world;
        world.hub.fail(None);
        let before = world.hub.true_properties();
        world.history.append("the hub comes back, created again");
        world.hub.recreate(before.len() as u32);
        world.judge.note_hub_recreated(log_of(&world.hub));
        for number in 0..MAX_FILLED.min(before.len()) {
            let was = &before[(target + number) % before.len()];
            self.fill(was.id, was.next.0 + 1 + ((target + number) % 9) as u64);
        }
    }
}
