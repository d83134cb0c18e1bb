//! Injects operator actions: seek, drain, hold.

use ephor::{HostId, PartitionId, Position, SequenceNumber, StartPosition};
use ephor_core::BoxFuture;
use ephor_core::store::{DesiredState, SeekRequest};
use futures_util::FutureExt;

use super::Undo;
use crate::coverage::HostCondition;
use crate::executor::Machine;
use crate::fleet::{SimHost, log_of};
use crate::run::Run;
use crate::scenario::Injection;

impl Run {
    pub(super) fn operator_seeks(&mut self, injection: &Injection) -> bool {
        if log_of(&self.world.hub).is_none() {
            // An operator's tool asks the hub before it moves a position.
            return false;
        }
        let ends = self.world.hub.ends();
        let (partition, last) = ends[injection.target % ends.len()];
        let (kept, end) = (self.world.judge.oldest_kept(partition).0, last.map_or(0, |last| last.0 + 1));
        let next = SequenceNumber(kept + end.saturating_sub(kept) * (injection.target as u64 % 101) / 100);
        self.world.cover("Seek", &[partition]);
        self.seek(partition, next);
        true
    }

    /// Moves the position of a partition.
    pub(super) fn seek(&mut self, partition: PartitionId, next: SequenceNumber) {
        let world = &self.world;
        world.history.append(format_args!("an operator seeks {partition:?} to {next:?}"));
        world.judge.note_expected_seek(partition, next);
        let request = SeekRequest {
            partition,
            position: Position::Start(StartPosition::at(next)),
            log: log_of(&world.hub),
            by: "an operator".into(),
            force: false,
        };
        let (store, group) = (world.any_store(), world.group());
        self.call_store(async move {
            let _ = store.seek(&group, &request).await;
        });
    }

    pub(super) fn operator_drains(&mut self, injection: &Injection) -> bool {
        let Some(number) = self.pick(injection, |host| host.id().is_some()) else { return false };
        let host = &self.hosts[number];
        let Some(id) = host.id() else { return false };
        self.world.cover_host("Drain", host);
        self.order_drain(&id, true);
        self.later(injection.lasting, Undo::Drain(id));
        true
    }

    /// Tells a host to drain, or to take part again.
    pub(super) fn order_drain(&mut self, host: &HostId, drain: bool) {
        let world = &self.world;
        world.history.append(format_args!("an operator sets drain to {drain} for {host}"));
        let (store, group, host) = (world.any_store(), world.group(), host.clone());
        self.call_store(async move {
            let _ = store.set_desired_state(&group, &host, DesiredState { drain }).await;
        });
    }

    /// Calls the store over a good connection, as an operator's tool does. A store in memory answers at once;
    /// a user's own may take its time.
    fn call_store(&self, call: impl Future<Output = ()> + Send + 'static) {
        let mut call: BoxFuture<'static, ()> = Box::pin(call);
        if (&mut call).now_or_never().is_none() {
            self.world.handle.spawn_on(Machine::WORLD, call);
        }
    }

    pub(super) fn operator_holds(&mut self, injection: &Injection) -> bool {
        let world = self.world.clone();
        let all = world.partitions();
        let partition = all[injection.target % all.len()];
        // In two of three cases the operator picks a host that is not in its normal state, even if it does
        // not own the partition.
        let odd = |host: &SimHost| host.process.is_some() && host.condition(&world) != HostCondition::Active;
        let odd = self.pick(injection, odd).filter(|_| !injection.target.is_multiple_of(3));
        let owner = world.judge.owner_of(partition);
        let number = odd.or_else(|| self.hosts.iter().position(|host| Some(host.machine) == owner));
        let Some((number, process)) = number.and_then(|it| Some((it, self.hosts[it].process.clone()?)))
        else {
            return false;
        };
        if world.judge.held().contains(&(partition, self.hosts[number].machine)) {
            return false;
        }
        world.history.append(format_args!("an operator holds {partition:?} on {}", self.hosts[number].name));
        world.cover_host("PausePartition", &self.hosts[number]);
        process.pause(partition);
        world.judge.note_hold(partition, self.hosts[number].machine, true);
        self.later(injection.lasting, Undo::Hold(number, partition));
        true
    }

    pub(crate) fn end_hold(&mut self, number: usize, partition: PartitionId) {
        let host = &self.hosts[number];
        self.world.history.append(format_args!("an operator lets {partition:?} continue on {}", host.name));
        self.world.judge.note_hold(partition, host.machine, false);
        if let Some(process) = &host.process {
            process.resume(partition);
        }
    }
}
