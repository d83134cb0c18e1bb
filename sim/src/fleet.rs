//! The hosts of a run: starting them, and doing things to them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephor::environment::Environment;
use ephor::memory::{MemoryHub, MemoryStore};
use ephor::{EventProcessorHost, EventProcessorOptions, PartitionManagerOptions};
use ephor_core::ids::PartitionId;
use ephor_core::rules::Rules;

use crate::coverage::Coverage;
use crate::executor::{Handle, Machine};
use crate::faults::FaultKind;
use crate::history::History;
use crate::judge::Judge;
use crate::processor::{ProcessorFaults, SimProcessor};
use crate::scenario::Scenario;
use crate::source::{SlowSource, SourceFaults};
use crate::store::{FaultyStore, StoreFaults};

/// How long a stop may take.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// What all hosts of a run share.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) handle: Handle,
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) hub: MemoryHub,
    pub(crate) store: MemoryStore,
    pub(crate) judge: Judge,
    pub(crate) history: History,
    pub(crate) coverage: Arc<Mutex<Coverage>>,
    pub(crate) rules: Rules,
}

impl World {
    /// Counts a fault that hit these partitions.
    pub(crate) fn cover(&self, fault: &str, partitions: &[PartitionId]) {
        let mut coverage = self.coverage.lock().unwrap_or_else(PoisonError::into_inner);
        for partition in partitions {
            coverage.count(fault, self.judge.state_of(*partition));
        }
    }
}

/// A host: its machine, its ways to store and hub, and its process, if it runs.
pub(crate) struct SimHost {
    pub(crate) name: String,
    pub(crate) machine: Machine,
    pub(crate) process: Option<Arc<EventProcessorHost>>,
    /// Left for good: it is not started again.
    pub(crate) gone: bool,
    pub(crate) store: Arc<Mutex<StoreFaults>>,
    pub(crate) source: Arc<Mutex<SourceFaults>>,
    pub(crate) processor: Arc<Mutex<ProcessorFaults>>,
}

/// The user's code on a good day.
pub(crate) fn good_day(scenario: &Scenario) -> ProcessorFaults {
    ProcessorFaults {
        call: scenario.call,
        fail: 0.0,
        panic: 0.0,
        open_fails: 0.0,
        close_fails: 0.0,
        by_hand: scenario.by_hand,
    }
}

impl SimHost {
    pub(crate) fn new(world: &World, number: usize) -> Self {
        let name = format!("host-{number}");
        Self {
            machine: world.handle.add_machine(&name),
            name,
            process: None,
            gone: false,
            store: Arc::default(),
            source: Arc::default(),
            processor: Arc::new(Mutex::new(good_day(&world.scenario))),
        }
    }

    /// Starts the process, unless it runs.
    pub(crate) fn start(&mut self, world: &World) {
        if self.process.is_some() || self.gone {
            return;
        }
        world.history.tell(format_args!("{} starts", self.name));
        let environment: Arc<dyn Environment> = Arc::new(world.handle.environment(self.machine));
        let store = FaultyStore::new(&world.handle, Arc::new(world.store.clone()), self.store.clone());
        let store = store.with_observer(self.observer(world, "store"));
        let source = SlowSource::with_observer(
            &world.handle,
            Arc::new(world.hub.clone()),
            self.source.clone(),
            self.observer(world, "hub"),
        );
        let scenario = &world.scenario;
        let options = EventProcessorOptions {
            max_batch_size: scenario.max_batch_size,
            prefetch_count: scenario.max_batch_size * 3,
            checkpoint: scenario.checkpoint.clone(),
            failure: scenario.failure,
            process_timeout: scenario.process_timeout,
            ..EventProcessorOptions::default()
        };
        let (judge, machine, faults) = (world.judge.clone(), self.machine, self.processor.clone());
        let (users, random) = (environment.clone(), Mutex::new(world.handle.fork_random()));
        let built = EventProcessorHost::builder_from(Arc::new(source), Arc::new(store))
            .host_name(self.name.clone())
            .environment(environment)
            .options(options)
            .manager_options(PartitionManagerOptions::default())
            .rules(world.rules)
            .processor(move |_| SimProcessor {
                judge: judge.clone(),
                machine,
                environment: users.clone(),
                faults: faults.clone(),
                random: random.lock().unwrap_or_else(PoisonError::into_inner).fork(),
            });
        let process = Arc::new(built.expect("the options of a scenario are valid"));
        self.process = Some(process.clone());
        let (history, name) = (world.history.clone(), self.name.clone());
        world.handle.spawn_on(self.machine, async move {
            if let Err(error) = process.start().await {
                history.tell(format_args!("{name} does not start: {error}"));
            }
        });
    }

    /// Counts a fault on the way, and tells of it.
    fn observer<Call: std::fmt::Debug>(
        &self,
        world: &World,
        place: &'static str,
    ) -> Arc<dyn Fn(FaultKind, Call, Option<PartitionId>) + Send + Sync> {
        let (world, name) = (world.clone(), self.name.clone());
        Arc::new(move |kind, call, partition| {
            world.history.tell(format_args!("{place}: {kind:?} hits {call:?} of {name} {partition:?}"));
            let hit = partition.map_or_else(|| world.judge.owned_by(&name), |partition| vec![partition]);
            world.cover(&format!("{place}: {kind:?} in {call:?}"), &hit);
        })
    }

    /// The process is gone from one moment to the next.
    pub(crate) fn crash(&mut self, world: &World) {
        if self.process.is_some() {
            world.handle.resume(self.machine);
            world.handle.crash(self.machine);
            self.process = None;
        }
    }

    /// Stops the process in good order, in its own time.
    pub(crate) fn stop(&mut self, world: &World) {
        let Some(process) = self.process.take() else { return };
        let (history, name) = (world.history.clone(), self.name.clone());
        world.handle.spawn_on(self.machine, async move {
            match process.stop(STOP_WITHIN).await {
                Ok(report) => history.tell(format_args!("{name} stopped: {report}")),
                Err(error) => history.tell(format_args!("{name} does not stop: {error}")),
            }
        });
    }

    pub(crate) fn runs(&self) -> bool {
        self.process.is_some()
    }
}

/// Changes what is behind a lock.
pub(crate) fn set<T>(place: &Mutex<T>, value: T) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = value;
}
