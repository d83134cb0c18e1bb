//! Injects faults of the hub, and foreign readers that take its partitions.

use std::time::Duration;

use ephor::memory::MemoryHub;
use ephor::{Epoch, EventSource, PartitionId, SequenceNumber, StartPosition};
use ephor_core::source::OpenRequest;

use super::Undo;
use crate::executor::Machine;
use crate::fleet::log_of;
use crate::run::Run;
use crate::scenario::{Fault, Injection};

/// The most partitions that a hub grows to.
const MAX_PARTITIONS: u32 = 40;
/// The pause of a foreign reader between two attempts to read.
const FOREIGN_READER_PAUSE: Duration = Duration::from_secs(2);
/// The longest lag of properties. Hosts may assume that they lag by no more than half a minute.
pub(super) const MAX_LAG: Duration = Duration::from_secs(20);
/// A power failure loses fewer events of a partition than this.
const MAX_LOST: usize = 12;

/// The names under which foreign readers attach.
const FOREIGN_READER_NAMES: [&str; 5] = [
    "stranger",
    "",
    "it's \"me\"",
    "a' with higher epoch of '18446744073709551615' is created",
    "åäö 日本 🏠",
];
/// Epochs that only foreign readers use: the highest that hosts go above, and higher ones that they do not
/// follow.
const EXTREME_EPOCHS: [u64; 6] = [
    Epoch::MAX_FOREIGN.get(),
    Epoch::MAX_FOREIGN.get() + 1,
    Epoch::MAX.get() - 1,
    Epoch::MAX.get(),
    Epoch::MAX.get() + 1,
    u64::MAX,
];

/// An epoch a little above the owner's; for one foreign reader in four, one of [`EXTREME_EPOCHS`].
fn foreign_epoch(target: usize, owners: Epoch) -> Epoch {
    let which = target / 4;
    if target % 4 == 1 {
        Epoch::from_stored(EXTREME_EPOCHS[which % EXTREME_EPOCHS.len()])
    } else {
        Epoch::from_stored(owners.get() + 1 + target as u64 % 3)
    }
}

impl Run {
    pub(super) fn inject_into_hub(&mut self, injection: &Injection) -> bool {
        let world = self.world.clone();
        if log_of(&world.hub).is_none() {
            // The hub is unreachable.
            return false;
        }
        let all = world.partitions();
        let partition = all[injection.target % all.len()];
        let name = format!("{:?}", injection.fault);
        match injection.fault {
            Fault::HubRestart => {
                world.history.append("the hub restarts");
                world.cover(&name, &all);
                world.hub.restart();
                true
            }
            Fault::LinkCut => {
                world.history.append(format_args!("the links of {partition:?} are cut"));
                world.cover(&name, &[partition]);
                world.hub.disconnect(partition).is_ok()
            }
            Fault::HubLosesPower => {
                world.history.append("the hub loses power");
                world.cover(&name, &all);
                self.hub_loses_power(injection);
                true
            }
            Fault::HubPropertiesLag => {
                let lasting = injection.lasting.min(MAX_LAG);
                world.history.append(format_args!("the hub's properties do not change for {lasting:?}"));
                world.cover(&name, &all);
                world.hub.hold_properties(true);
                self.later(lasting, Undo::HubProperties);
                true
            }
            Fault::HubRecreated => {
                let now = all.len() as u32;
                let partitions = if injection.target.is_multiple_of(3) { now.div_ceil(2) } else { now };
                world.history.append(format_args!("the hub is created again with {partitions} partitions"));
                world.cover(&name, &all);
                world.hub.recreate(partitions);
                world.judge.note_hub_recreated(log_of(&world.hub));
                true
            }
            Fault::HubGrows => {
                let to = (all.len() as u32 + 1 + injection.target as u32 % 4).min(MAX_PARTITIONS);
                world.history.append(format_args!("the hub grows to {to} partitions"));
                world.cover(&name, &all);
                world.hub.grow(to);
                true
            }
            Fault::Retention => {
                // In half of the cases, all events of the partition that is read most slowly are removed.
                let slowest = world.judge.furthest_behind(&world.hub.ends());
                let slowest = slowest.filter(|_| injection.target.is_multiple_of(2));
                let partition = slowest.unwrap_or(partition);
                let last =
                    world.hub.ends().iter().find(|(id, _)| *id == partition).and_then(|(_, last)| *last);
                let Some(end) = last.map(|last| last.next()) else { return false };
                let percent = if slowest.is_some() { 100 } else { injection.target as u64 % 101 };
                let kept = SequenceNumber(end.0 * percent / 100);
                world.history.append(format_args!("the events of {partition:?} before {kept:?} are removed"));
                world.cover(&name, &[partition]);
                let forgotten = world.hub.forget_before(partition, kept).is_ok();
                // Numbers without an event that follow `kept` count as removed, too.
                let now = world.hub.true_properties().into_iter().find(|now| now.id == partition);
                world.judge.removed_before(partition, now.map_or(kept, |now| now.first.max(kept)));
                forgotten
            }
            Fault::ForeignReader => {
                let late = world.scenario.shared_with_other_sdks && injection.target.is_multiple_of(2);
                let epoch = if late {
                    // A processor of another SDK that does not know yet that it has lost the partition.
                    Epoch::NONE
                } else {
                    foreign_epoch(injection.target, world.judge.epoch_of(partition))
                };
                let foreign_reader = FOREIGN_READER_NAMES[injection.target % FOREIGN_READER_NAMES.len()];
                world.history.append(format_args!(
                    "a foreign reader, {foreign_reader:?}, reads {partition:?} in {epoch:?} for {:?}",
                    injection.lasting
                ));
                world.cover(&name, &[partition]);
                let until = world.handle.now() + injection.lasting;
                let (hub, handle) = (world.hub.clone(), world.handle.clone());
                let task = world.handle.spawn_on(Machine::WORLD, async move {
                    while handle.now() < until {
                        tokio::select! {
                            biased;
                            () = handle.sleep_until(until) => {}
                            () = read(&hub, partition, foreign_reader, epoch) => {}
                        }
                        handle.sleep(FOREIGN_READER_PAUSE).await;
                    }
                });
                self.foreign_readers.push(task);
                true
            }
            other => unreachable!("{other:?} is no fault of the hub"),
        }
    }
}

impl Run {
    /// Removes some of the newest events of each partition, without a report; some partitions lose none.
    fn hub_loses_power(&self, injection: &Injection) {
        let world = &self.world;
        let lost = |partition: PartitionId| ((injection.target + 5 * partition.0 as usize) % MAX_LOST) as u64;
        let before = world.hub.true_properties();
        world.hub.lose_power(lost);
        let after = world.hub.true_properties();
        for (was, is) in before.iter().zip(after).filter(|(was, _)| lost(was.id) > 0) {
            let from = is.last.as_ref().map_or(was.first, |last| last.sequence.next());
            world.history.append(format_args!(
                "{:?} has lost the events from {from:?} to before {:?}",
                was.id, is.next
            ));
            world.judge.passed_over(was.id, from..is.next);
            world.judge.removed_before(was.id, is.first);
        }
    }
}

/// Reads until the link ends, and drops the events.
async fn read(hub: &MemoryHub, partition: PartitionId, name: &str, epoch: Epoch) {
    let request = OpenRequest {
        epoch: Some(epoch),
        start: StartPosition::Earliest,
        receiver: name.into(),
        ..OpenRequest::probe(&ephor::ConsumerGroup::default_group(), partition, name)
    };
    let Ok(mut receiver) = hub.open(request).await else { return };
    let mut events = vec![];
    while receiver.receive(&mut events, 100).await.is_ok() {
        events.clear();
    }
}
