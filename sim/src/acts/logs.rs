//! What happens to the events that the hub has stored, and what it shows of them.

use std::time::Duration;

use ephor::{PartitionId, SequenceNumber};

use super::Undo;
use super::hubs::LONGEST_LAG;
use crate::events::stamped;
use crate::fleet::log_of;
use crate::run::Run;
use crate::scenario::{Act, Fault};

/// A replica lags at least so long that somebody notices.
const SHORTEST_LAG: Duration = Duration::from_secs(5);
/// A hub that comes back made anew was away for this long at most.
const LONGEST_AWAY: Duration = Duration::from_secs(20);
/// So many partitions of a hub made anew are filled.
const MOST_FILLED: usize = 4;
/// Damage takes fewer events than this.
const MOST_DAMAGED: u64 = 8;

impl Run {
    pub(super) fn happens_to_a_log(&mut self, act: &Act) -> bool {
        let world = self.world.clone();
        // Nothing is stored by a hub that is away.
        if log_of(&world.hub).is_none() {
            return false;
        }
        let all = world.partitions();
        let partition = all[act.target % all.len()];
        let name = format!("{:?}", act.fault);
        match act.fault {
            Fault::HubReplicaLags => {
                let lag = act.lasting.clamp(SHORTEST_LAG, LONGEST_LAG);
                world
                    .history
                    .tell(format_args!("the hub answers as a replica that stands still for {lag:?}"));
                world.cover(&name, &all);
                world.hub.hold_opens();
                self.later(lag / 3, Undo::HubLinks);
                self.later(lag, Undo::HubProperties);
                true
            }
            Fault::HubRefilled => {
                let away = act.lasting.min(LONGEST_AWAY);
                world.history.tell(format_args!("the hub is out of reach for {away:?}, and then made anew"));
                world.cover(&name, &all);
                world.hub.fail(Some("the hub is away"));
                self.later(away, Undo::HubRefilled(act.target));
                true
            }
            Fault::RetentionOvertakes => {
                world.cover(&name, &[partition]);
                self.many_come_at_once(partition);
                let soon = Duration::from_millis(50 + act.target as u64);
                self.later(soon, Undo::Overtake(partition, 1 + act.target as u64 % 5));
                true
            }
            _ => self.events_are_damaged(act, partition),
        }
    }

    /// More events than a reader fetches ahead come to a partition.
    fn many_come_at_once(&self, partition: PartitionId) -> u64 {
        let world = &self.world;
        let count = 6 * world.scenario.style.max_batch_size as u64 + 10;
        world.history.tell(format_args!("the hub gets {count} events for {partition:?} at once"));
        self.fill(partition, count);
        count
    }

    fn fill(&self, partition: PartitionId, count: u64) {
        let world = &self.world;
        let event = |number| stamped(world.guest.body(number as u32), world.judge.life());
        // A hub in memory takes everything while it is up.
        let _ = world.hub.send_batch(partition, (0..count).map(event));
    }

    /// Retention removes all events but the newest, however far the reader is.
    pub(super) fn retention_overtakes(&self, partition: PartitionId, left: u64) {
        let world = &self.world;
        let Some(now) = world.hub.true_properties().into_iter().find(|now| now.id == partition) else {
            return;
        };
        let Some(last) = now.last else { return };
        let kept = SequenceNumber(last.sequence.next().0.saturating_sub(left)).max(now.first);
        world.history.tell(format_args!("the events of {partition:?} before {kept:?} are removed"));
        let _ = world.hub.forget_before(partition, kept);
        // Numbers that were passed over are kept by nobody.
        let now = world.hub.true_properties().into_iter().find(|now| now.id == partition);
        world.judge.removed_before(partition, now.map_or(kept, |now| now.first.max(kept)));
    }

    /// Some events are gone, and neither the oldest of those that they are among nor the newest.
    fn events_are_damaged(&self, act: &Act, partition: PartitionId) -> bool {
        let world = &self.world;
        // What is damaged is mostly unread.
        let fresh = !act.target.is_multiple_of(4);
        let among = fresh.then(|| self.many_come_at_once(partition));
        let Some(now) = world.hub.true_properties().into_iter().find(|now| now.id == partition) else {
            return false;
        };
        let end = now.last.as_ref().map_or(now.first, |last| last.sequence.next());
        let among = among.unwrap_or(end.0.saturating_sub(now.first.0));
        if among < 3 {
            return false;
        }
        let target = act.target as u64;
        let lost = (1 + target % MOST_DAMAGED).min(among - 2);
        let from = SequenceNumber(end.0 - among + 1 + target / 7 % (among - lost - 1));
        let to = SequenceNumber(from.0 + lost);
        world.history.tell(format_args!(
            "the hub has lost the events of {partition:?} from {from:?} to before {to:?}"
        ));
        world.cover("HubDamaged", &[partition]);
        world.judge.passed_over(partition, from..to);
        world.hub.lose(partition, from..to).is_ok()
    }

    /// The hub comes back made anew, and some of its partitions have more events than they had.
    pub(super) fn hub_is_refilled(&self, target: usize) {
        let world = &self.world;
        world.hub.fail(None);
        let before = world.hub.true_properties();
        world.history.tell("the hub comes back made anew");
        world.hub.recreate(before.len() as u32);
        world.judge.hub_was_made_anew(log_of(&world.hub));
        for number in 0..MOST_FILLED.min(before.len()) {
            let was = &before[(target + number) % before.len()];
            self.fill(was.id, was.next.0 + 1 + ((target + number) % 9) as u64);
        }
    }
}
