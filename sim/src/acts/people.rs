//! What people do in the middle of it all: seek, drain, hold.

use ephor::{HostId, PartitionId, Position, SequenceNumber, StartPosition};
use ephor_core::store::{HostOrders, SeekRequest, Store};
use futures_util::FutureExt;

use super::Undo;
use crate::coverage::PartitionState;
use crate::fleet::log_of;
use crate::run::Run;
use crate::scenario::Act;

impl Run {
    pub(super) fn a_person_seeks(&mut self, act: &Act) -> bool {
        let ends = self.world.hub.ends();
        let (partition, last) = ends[act.target % ends.len()];
        let (kept, end) = (self.world.judge.kept(partition).0, last.map_or(0, |last| last.0 + 1));
        let next = SequenceNumber(kept + end.saturating_sub(kept) * (act.target as u64 % 101) / 100);
        self.world.cover("Seek", &[partition]);
        self.seek(partition, next);
        true
    }

    /// Moves a position. A person's own way to the store is good, and a store in memory answers at once.
    pub(super) fn seek(&mut self, partition: PartitionId, next: SequenceNumber) {
        let world = &self.world;
        world.history.tell(format_args!("a person seeks {partition:?} to {next:?}"));
        world.judge.expects_seek(partition, next);
        let request = SeekRequest {
            partition,
            position: Position::Start(StartPosition::at(next)),
            log: log_of(&world.hub),
            by: "a person".into(),
            force: false,
        };
        let sought = world.store.seek(&world.group(), &request).now_or_never();
        debug_assert!(matches!(sought, Some(Ok(_))), "a store in memory answers at once");
    }

    pub(super) fn a_person_drains(&mut self, act: &Act) -> bool {
        let Some(number) = self.pick(act, |host| host.id().is_some()) else { return false };
        let host = &self.hosts[number];
        let Some(id) = host.id() else { return false };
        self.world.cover_host("Drain", host);
        self.order_drain(&id, true);
        self.later(act.lasting, Undo::Drain(id));
        true
    }

    /// Tells a host to drain, or to take part again.
    pub(super) fn order_drain(&mut self, host: &HostId, drain: bool) {
        let world = &self.world;
        world.history.tell(format_args!("a person tells {host}: drain {drain}"));
        let known = world.store.order(&world.group(), host, HostOrders { drain }).now_or_never();
        debug_assert!(matches!(known, Some(Ok(_))), "a store in memory answers at once");
    }

    pub(super) fn a_person_holds(&mut self, act: &Act) -> bool {
        let world = self.world.clone();
        let all = world.partitions();
        let partition = all[act.target % all.len()];
        let held = world.judge.state_of(partition) == PartitionState::Held;
        let owner = world.judge.owner_of(partition).filter(|_| !held);
        let number = self.hosts.iter().position(|host| Some(host.machine) == owner);
        let Some((number, process)) = number.and_then(|it| Some((it, self.hosts[it].process.clone()?)))
        else {
            return false;
        };
        world.history.tell(format_args!("a person holds {partition:?} on {}", self.hosts[number].name));
        world.cover_host("Hold", &self.hosts[number]);
        process.pause(partition);
        world.judge.holds(partition, self.hosts[number].machine, true);
        self.later(act.lasting, Undo::Hold(number, partition));
        true
    }

    pub(crate) fn let_go(&mut self, number: usize, partition: PartitionId) {
        let host = &self.hosts[number];
        self.world.history.tell(format_args!("a person lets {partition:?} go on {}", host.name));
        self.world.judge.holds(partition, host.machine, false);
        if let Some(process) = &host.process {
            process.resume(partition);
        }
    }
}
