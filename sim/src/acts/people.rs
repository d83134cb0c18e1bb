//! What people do in the middle of it all: seek, drain, hold.

use ephor::{HostId, PartitionId, Position, SequenceNumber, StartPosition};
use ephor_core::BoxFuture;
use ephor_core::store::{HostOrders, SeekRequest};
use futures_util::FutureExt;

use super::Undo;
use crate::coverage::HostCondition;
use crate::executor::Machine;
use crate::fleet::{SimHost, log_of};
use crate::run::Run;
use crate::scenario::Act;

impl Run {
    pub(super) fn a_person_seeks(&mut self, act: &Act) -> bool {
        if log_of(&self.world.hub).is_none() {
            // Who moves a position asks the hub first.
            return false;
        }
        let ends = self.world.hub.ends();
        let (partition, last) = ends[act.target % ends.len()];
        let (kept, end) = (self.world.judge.kept(partition).0, last.map_or(0, |last| last.0 + 1));
        let next = SequenceNumber(kept + end.saturating_sub(kept) * (act.target as u64 % 101) / 100);
        self.world.cover("Seek", &[partition]);
        self.seek(partition, next);
        true
    }

    /// Moves a position.
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
        let (store, group) = (world.any_store(), world.group());
        self.ask_the_store(async move {
            let _ = store.seek(&group, &request).await;
        });
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
        let (store, group, host) = (world.any_store(), world.group(), host.clone());
        self.ask_the_store(async move {
            let _ = store.order(&group, &host, HostOrders { drain }).await;
        });
    }

    /// A person's own way to the store is good. A store in memory answers at once; another may take its time.
    fn ask_the_store(&self, call: impl Future<Output = ()> + Send + 'static) {
        let mut call: BoxFuture<'static, ()> = Box::pin(call);
        if (&mut call).now_or_never().is_none() {
            self.world.handle.spawn_on(Machine::WORLD, call);
        }
    }

    pub(super) fn a_person_holds(&mut self, act: &Act) -> bool {
        let world = self.world.clone();
        let all = world.partitions();
        let partition = all[act.target % all.len()];
        // A host that does not work as the others draws people's eyes, whether the partition is there or will be.
        let odd = |host: &SimHost| host.process.is_some() && host.condition(&world) != HostCondition::Active;
        let odd = self.pick(act, odd).filter(|_| !act.target.is_multiple_of(3));
        let owner = world.judge.owner_of(partition);
        let number = odd.or_else(|| self.hosts.iter().position(|host| Some(host.machine) == owner));
        let Some((number, process)) = number.and_then(|it| Some((it, self.hosts[it].process.clone()?)))
        else {
            return false;
        };
        if world.judge.held().contains(&(partition, self.hosts[number].machine)) {
            return false;
        }
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
