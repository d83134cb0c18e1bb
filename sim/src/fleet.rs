//! The simulated hosts of a run (`SimHost`) and the parts that they share (`World`): crashes, pauses and
//! suspends hosts, and sets their clocks and store faults. `starting.rs` and `stopping.rs` start and stop
//! them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephor::memory::{MemoryHub, MemoryStore};
use ephor::{EventProcessorHost, EventSource, HostId};
use ephor_core::host_record::HostState;
use ephor_core::ids::{GroupId, LogId, PartitionId};
use ephor_core::rules::Rules;
use ephor_core::store::Store;
use ephor_core::time::Monotonic;
use futures_util::FutureExt;

use crate::coverage::{Coverage, HostCondition};
use crate::executor::{Handle, Machine};
use crate::history::History;
use crate::judge::Judge;
use crate::processor::ProcessorFaults;
use crate::scenario::{HostConfig, Scenario};
use crate::source::SourceFaults;
use crate::stopping::PendingStops;
use crate::store::StoreFaults;
use crate::user_code::UserCode;

/// The parts that all hosts of a run share.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) handle: Handle,
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) hub: MemoryHub,
    pub(crate) store: MemoryStore,
    /// The user's own store, which is used instead of `store`.
    pub(crate) user_store: Option<Arc<dyn Store>>,
    /// The machine whose clock the store uses.
    pub(crate) store_clock: Machine,
    /// The faults of the store for all hosts.
    pub(crate) common: Arc<Mutex<StoreFaults>>,
    pub(crate) judge: Judge,
    pub(crate) history: History,
    pub(crate) coverage: Arc<Mutex<Coverage>>,
    pub(crate) rules: Rules,
    /// The user's own parts of the run.
    pub(crate) user_code: UserCode,
}

impl World {
    /// Counts a fault that hit these partitions.
    pub(crate) fn cover(&self, fault: &str, partitions: &[PartitionId]) {
        let mut coverage = self.coverage.lock().unwrap_or_else(PoisonError::into_inner);
        for partition in partitions {
            coverage.partition(fault, self.judge.state_of(*partition));
        }
    }

    /// Counts a fault that hit a host, and the partitions that it owns.
    pub(crate) fn cover_host(&self, fault: &str, host: &SimHost) {
        let condition = host.condition(self);
        self.coverage.lock().unwrap_or_else(PoisonError::into_inner).host(fault, condition);
        self.cover(fault, &self.judge.owned_by(host.machine));
    }

    /// The partitions that the hub has now.
    pub(crate) fn partitions(&self) -> Vec<PartitionId> {
        self.hub.ends().into_iter().map(|(partition, _)| partition).collect()
    }

    /// The store that all hosts use.
    pub(crate) fn any_store(&self) -> Arc<dyn Store> {
        self.user_store.clone().unwrap_or_else(|| Arc::new(self.store.clone()))
    }

    /// The group that all hosts work for.
    pub(crate) fn group(&self) -> GroupId {
        let group = ephor::ConsumerGroup::default_group();
        GroupId { namespace: self.hub.namespace().clone(), hub: self.hub.hub().clone(), group }
    }
}

/// The id of the hub's present log. A hub in memory answers at once.
pub(crate) fn log_of(hub: &MemoryHub) -> Option<LogId> {
    hub.hub_properties().now_or_never()?.ok()?.log
}

/// A host: its machine, its connections to store and hub, and its process, if it runs.
pub(crate) struct SimHost {
    pub(crate) name: String,
    pub(crate) machine: Machine,
    pub(crate) config: HostConfig,
    pub(crate) process: Option<Arc<EventProcessorHost>>,
    /// Set while it is stopping.
    pub(crate) stopping: Option<PendingStops>,
    /// True once it has left for good: it is not started again.
    pub(crate) gone: bool,
    /// True while its clock stands still.
    frozen: bool,
    /// True while its machine sleeps.
    asleep: bool,
    /// The drift of its clock while it runs.
    rate_ppm: i32,
    pub(crate) store: Arc<Mutex<StoreFaults>>,
    pub(crate) source: Arc<Mutex<SourceFaults>>,
    pub(crate) processor: Arc<Mutex<ProcessorFaults>>,
}

/// The longest `close` without faults.
const MAX_CLOSE: Duration = Duration::from_millis(30);

/// The user code of the simulation without faults.
pub(crate) fn fault_free(scenario: &Scenario) -> ProcessorFaults {
    ProcessorFaults {
        call: scenario.call,
        close: MAX_CLOSE,
        fail: 0.0,
        panic: 0.0,
        block: 0.0,
        hang: 0.0,
        open_fails: 0.0,
        close_fails: 0.0,
        by_hand: scenario.by_hand,
        odd: 0.0,
    }
}

impl SimHost {
    pub(crate) fn new(world: &World, number: usize) -> Self {
        Self::named(world, &format!("host-{number}"))
    }

    pub(crate) fn named(world: &World, name: &str) -> Self {
        Self {
            machine: world.handle.add_machine(name),
            name: name.to_owned(),
            config: world.scenario.config.clone(),
            process: None,
            stopping: None,
            gone: false,
            frozen: false,
            asleep: false,
            rate_ppm: 0,
            store: Arc::default(),
            source: Arc::default(),
            processor: Arc::new(Mutex::new(fault_free(&world.scenario))),
        }
    }

    /// Ends the process from one moment to the next.
    pub(crate) fn crash(&mut self, world: &World) {
        if self.process.is_some() {
            self.wake(world);
            world.judge.note_process_gone(self.machine);
            world.handle.crash(self.machine);
            self.process = None;
            self.stopping = None;
        }
    }

    /// Notices that a stop is over.
    pub(crate) fn reap(&mut self) {
        if self.stopping.as_ref().is_some_and(PendingStops::is_zero) {
            self.stopping = None;
            self.process = None;
        }
    }

    /// Pauses the process, and its clock with it if `frozen`.
    pub(crate) fn pause(&mut self, world: &World, frozen: bool) {
        world.handle.pause(self.machine);
        world.judge.note_fault(self.machine, Duration::ZERO);
        world.judge.note_time_fault(self.machine, Duration::ZERO);
        self.frozen |= frozen;
        if frozen {
            world.handle.change_clock(self.machine, |clock, now| clock.run_at(now, STOPPED_CLOCK_PPM));
        }
    }

    /// Lets the machine sleep: nothing runs, and its clock goes on.
    pub(crate) fn fall_asleep(&mut self, world: &World) {
        world.handle.pause(self.machine);
        world.judge.note_sleep(self.machine);
        self.asleep = true;
    }

    /// Lets the process go on, and its clock, too.
    pub(crate) fn wake(&mut self, world: &World) {
        if std::mem::take(&mut self.asleep) {
            world.judge.note_wake_up(self.machine);
            world.handle.resume(self.machine);
            return;
        }
        if std::mem::take(&mut self.frozen) {
            let rate = self.rate_ppm;
            world.handle.change_clock(self.machine, |clock, now| clock.run_at(now, rate));
            world.judge.note_clock_stopped(self.machine);
        }
        world.judge.note_fault(self.machine, Duration::ZERO);
        world.judge.note_time_fault(self.machine, Duration::ZERO);
        world.handle.resume(self.machine);
    }

    /// Lets its clock run fast or slow from now on.
    pub(crate) fn drift(&mut self, world: &World, rate_ppm: i32) {
        self.rate_ppm = rate_ppm;
        if !self.frozen {
            world.handle.change_clock(self.machine, |clock, now| clock.run_at(now, rate_ppm));
        }
    }

    /// Sets the faults of its connection to the store.
    pub(crate) fn set_store(&self, world: &World, faults: StoreFaults) {
        world.judge.note_store_bad(self.machine, faults.is_bad());
        set(&self.store, faults);
    }

    /// Lets its store hang until this time, at a stop.
    pub(crate) fn hang_store(&self, world: &World, until: Monotonic) {
        world.judge.note_store_hangs(self.machine);
        set(&self.store, StoreFaults::hanging(until));
    }

    /// True if it runs and is not stopping.
    pub(crate) fn runs(&self) -> bool {
        self.process.is_some() && self.stopping.is_none()
    }

    /// The id of its present process, once it has started.
    pub(crate) fn id(&self) -> Option<HostId> {
        Some(self.process.as_ref()?.snapshot()?.host)
    }

    pub(crate) fn condition(&self, world: &World) -> HostCondition {
        let Some(process) = &self.process else { return HostCondition::Down };
        if world.handle.is_paused(self.machine) {
            return HostCondition::Paused;
        }
        if self.stopping.is_some() {
            return HostCondition::Stopping;
        }
        match process.snapshot().filter(|snapshot| snapshot.scans > 0).map(|snapshot| snapshot.state) {
            None => HostCondition::Starting,
            Some(HostState::Active) => HostCondition::Active,
            Some(HostState::Standby) => HostCondition::Standby,
            Some(HostState::Draining) => HostCondition::Draining,
            // Unhealthy, and states of later versions.
            Some(_) => HostCondition::Unfit,
        }
    }
}

/// The rate of a clock that does not move.
const STOPPED_CLOCK_PPM: i32 = -1_000_000;

/// Replaces the value in a lock.
pub(crate) fn set<T>(place: &Mutex<T>, value: T) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = value;
}
