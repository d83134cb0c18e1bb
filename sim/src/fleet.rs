//! The hosts of a run: starts them, and crashes, pauses or disturbs them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephor::environment::Environment;
use ephor::memory::{MemoryHub, MemoryStore};
use ephor::{
    BuildError, ErrorHandler, EventProcessorHost, EventProcessorOptions, EventSource, HostBuilder, HostError,
    HostId, PartitionError, StartError,
};
use ephor_core::host_record::HostState;
use ephor_core::ids::{GroupId, LogId, PartitionId};
use ephor_core::rules::Rules;
use ephor_core::store::Store;
use fastrand::Rng;
use futures_util::FutureExt;

use crate::coverage::{Coverage, HostCondition};
use crate::executor::{Handle, Machine};
use crate::faults::FaultKind;
use crate::guest::Guest;
use crate::history::History;
use crate::judge::{Judge, Promise, Told};
use crate::processor::{ProcessorFaults, SimProcessor};
use crate::scenario::{Scenario, Style};
use crate::source::{SlowSource, SourceFaults, Word};
use crate::store::{FaultyStore, StoreFaults};
use crate::watched::Watch;

/// The parts that all hosts of a run share.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) handle: Handle,
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) hub: MemoryHub,
    pub(crate) store: MemoryStore,
    /// The user's own store, which is used instead of `store`.
    pub(crate) foreign: Option<Arc<dyn Store>>,
    /// The machine whose clock the store uses.
    pub(crate) store_clock: Machine,
    /// The faults of the store for all hosts.
    pub(crate) common: Arc<Mutex<StoreFaults>>,
    pub(crate) judge: Judge,
    pub(crate) history: History,
    pub(crate) coverage: Arc<Mutex<Coverage>>,
    pub(crate) rules: Rules,
    /// The user's own parts of the run.
    pub(crate) guest: Guest,
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
        self.foreign.clone().unwrap_or_else(|| Arc::new(self.store.clone()))
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
    pub(crate) style: Style,
    pub(crate) process: Option<Arc<EventProcessorHost>>,
    /// Set while it is stopping; the flag is true once it has stopped.
    pub(crate) stopping: Option<Arc<AtomicBool>>,
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
const A_CLOSE: Duration = Duration::from_millis(30);

/// The user code of the simulation without faults.
pub(crate) fn good_day(scenario: &Scenario) -> ProcessorFaults {
    ProcessorFaults {
        call: scenario.call,
        close: A_CLOSE,
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
            style: world.scenario.style.clone(),
            process: None,
            stopping: None,
            gone: false,
            frozen: false,
            asleep: false,
            rate_ppm: 0,
            store: Arc::default(),
            source: Arc::default(),
            processor: Arc::new(Mutex::new(good_day(&world.scenario))),
        }
    }

    /// Starts the process, unless it runs. Returns false if one is still stopping.
    pub(crate) fn start(&mut self, world: &World) -> bool {
        self.reap();
        if self.stopping.is_some() {
            return false;
        }
        if self.process.is_some() || self.gone {
            return true;
        }
        world.history.tell(format_args!("{} starts", self.name));
        world.judge.lets_go(self.machine);
        let environment: Arc<dyn Environment> = Arc::new(world.handle.environment(self.machine));
        let random = world.handle.fork_random();
        let builder = EventProcessorHost::builder_from(
            Arc::new(self.way_to_hub(world)),
            Arc::new(self.way_to_store(world)),
        )
        .host_name(self.name.clone())
        .environment(environment.clone())
        .options(EventProcessorOptions { on_error: Some(self.ears(world)), ..self.options(world) })
        .manager_options(self.style.manager_options())
        .rules(world.rules);
        let built = match &world.guest.build {
            Some(build) => build(builder, self.watch(world, environment)),
            None => self.with_processor(world, builder, environment, random),
        };
        let process = Arc::new(built.expect("the options of a scenario are valid"));
        self.process = Some(process.clone());
        let (history, judge, name) = (world.history.clone(), world.judge.clone(), self.name.clone());
        world.handle.spawn_on(self.machine, async move {
            if let Err(error) = process.start().await {
                history.tell(format_args!("{name} does not start: {error}"));
                if matches!(error, StartError::AnotherHub { .. }) {
                    judge.object(Promise::LoopNeverDies, None, format!("{name} does not start: {error}"));
                }
            }
        });
        true
    }

    /// The options of its host: drawn, or the user's.
    fn options(&self, world: &World) -> EventProcessorOptions {
        world.guest.options(self.style.options(&world.scenario))
    }

    /// Builds a host with the simulation's own processor.
    fn with_processor(
        &self,
        world: &World,
        builder: HostBuilder,
        environment: Arc<dyn Environment>,
        random: Rng,
    ) -> Result<EventProcessorHost, BuildError> {
        let (judge, machine, faults) = (world.judge.clone(), self.machine, self.processor.clone());
        let random = Mutex::new(random);
        let (handle, afterthoughts) = (world.handle.clone(), Arc::new(Mutex::new(vec![])));
        builder.processor(move |_| SimProcessor {
            judge: judge.clone(),
            handle: handle.clone(),
            machine,
            environment: environment.clone(),
            faults: faults.clone(),
            random: random.lock().unwrap_or_else(PoisonError::into_inner).fork(),
            old: None,
            broken: false,
            afterthoughts: afterthoughts.clone(),
        })
    }

    fn watch(&self, world: &World, environment: Arc<dyn Environment>) -> Watch {
        Watch {
            judge: world.judge.clone(),
            machine: self.machine,
            environment,
            skipped: world.guest.skipped.clone(),
            faults: self.processor.clone(),
        }
    }

    /// Passes the errors that the host reports to the judge.
    fn ears(&self, world: &World) -> ErrorHandler {
        let (judge, machine) = (world.judge.clone(), self.machine);
        ErrorHandler::new(move |error| {
            let (partition, error) = match error {
                HostError::Partition { partition, error } => (partition, error),
                // There is only one hub, and only user code may panic.
                HostError::AnotherHub { .. } | HostError::Fault { .. } | HostError::TaskEnded { .. } => {
                    return judge.object(Promise::LoopNeverDies, None, error.to_string());
                }
                _ => return,
            };
            match error {
                PartitionError::LostGround(ground) => judge.lost_ground(machine, *partition, ground),
                PartitionError::Processing { .. } => judge.tells_of_failure(*partition, Told::Handler),
                _ => {}
            }
        })
    }

    fn way_to_store(&self, world: &World) -> FaultyStore {
        // The judge uses the options that the host really has.
        let EventProcessorOptions { checkpoint, failure, process_timeout, .. } = self.options(world);
        let style = Style { checkpoint, failure, process_timeout, ..self.style.clone() };
        let (judge, machine) = (world.judge.clone(), self.machine);
        FaultyStore::new(&world.handle, world.any_store(), self.store.clone())
            .with_common(world.common.clone())
            .with_distance(world.scenario.distance)
            .with_observer(self.observer(world, "store"))
            .with_introduction(Arc::new(move |record| judge.meets(record, machine, &style)))
    }

    fn way_to_hub(&self, world: &World) -> SlowSource {
        let observer = self.observer(world, "hub");
        let (judge, machine) = (world.judge.clone(), self.machine);
        let ear = Arc::new(move |word: Word<'_>| match word {
            Word::Opens(request) => judge.reads(machine, request),
            Word::Displaced(partition, epoch) => judge.displaced(machine, partition, epoch),
        });
        let hub = Arc::new(world.hub.clone());
        SlowSource::observed(&world.handle, hub, self.source.clone(), observer, ear)
    }

    /// Counts a network fault, and writes it to the history.
    fn observer<Call: std::fmt::Debug>(
        &self,
        world: &World,
        place: &'static str,
    ) -> Arc<dyn Fn(FaultKind, Call, Option<PartitionId>) + Send + Sync> {
        let (world, name, machine) = (world.clone(), self.name.clone(), self.machine);
        Arc::new(move |kind, call, partition| {
            world.history.tell(format_args!("{place}: {kind:?} hits {call:?} of {name} {partition:?}"));
            let hit = partition.map_or_else(|| world.judge.owned_by(machine), |partition| vec![partition]);
            world.cover(&format!("{place}: {kind:?}"), &hit);
            let mut coverage = world.coverage.lock().unwrap_or_else(PoisonError::into_inner);
            coverage.call(format!("{place}: {kind:?} in {call:?}"));
        })
    }

    /// Ends the process from one moment to the next.
    pub(crate) fn crash(&mut self, world: &World) {
        if self.process.is_some() {
            self.wake(world);
            world.judge.lets_go(self.machine);
            world.handle.crash(self.machine);
            self.process = None;
            self.stopping = None;
        }
    }

    /// Notices that a stop is over.
    pub(crate) fn reap(&mut self) {
        if self.stopping.as_ref().is_some_and(|stopped| stopped.load(Ordering::Relaxed)) {
            self.stopping = None;
            self.process = None;
        }
    }

    /// Pauses the process, and its clock with it if `frozen`.
    pub(crate) fn pause(&mut self, world: &World, frozen: bool) {
        world.handle.pause(self.machine);
        world.judge.disturbed(self.machine, Duration::ZERO);
        world.judge.stands(self.machine, Duration::ZERO);
        self.frozen |= frozen;
        if frozen {
            world.handle.change_clock(self.machine, |clock, now| clock.run_at(now, STANDS_STILL));
        }
    }

    /// Lets the machine sleep: nothing runs, and its clock goes on.
    pub(crate) fn fall_asleep(&mut self, world: &World) {
        world.handle.pause(self.machine);
        world.judge.falls_asleep(self.machine);
        self.asleep = true;
    }

    /// Lets the process go on, and its clock, too.
    pub(crate) fn wake(&mut self, world: &World) {
        if std::mem::take(&mut self.asleep) {
            world.judge.wakes_up(self.machine);
            world.handle.resume(self.machine);
            return;
        }
        if std::mem::take(&mut self.frozen) {
            let rate = self.rate_ppm;
            world.handle.change_clock(self.machine, |clock, now| clock.run_at(now, rate));
            world.judge.clock_stood(self.machine);
        }
        world.judge.disturbed(self.machine, Duration::ZERO);
        world.judge.stands(self.machine, Duration::ZERO);
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
        world.judge.store_is_bad(self.machine, faults.is_bad());
        set(&self.store, faults);
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
            Some(HostState::Unfit) => HostCondition::Unfit,
        }
    }
}

/// The rate of a clock that does not move.
const STANDS_STILL: i32 = -1_000_000;

/// Replaces the value in a lock.
pub(crate) fn set<T>(place: &Mutex<T>, value: T) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = value;
}
