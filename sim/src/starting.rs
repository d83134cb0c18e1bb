//! Starts a simulated host process, with its connections to store and hub.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephor::environment::Environment;
use ephor::{
    BuildError, ErrorHandler, EventProcessorHost, EventProcessorOptions, HostBuilder, HostError,
    PartitionError, StartError,
};
use ephor_core::ids::PartitionId;
use fastrand::Rng;

use crate::call_faults::FaultKind;
use crate::fleet::{SimHost, World};
use crate::judge::{Promise, ReportTarget};
use crate::observed_processor::CallObserver;
use crate::processor::SimProcessor;
use crate::scenario::HostConfig;
use crate::source::{FaultySource, HubMessage};
use crate::store::FaultyStore;

impl SimHost {
    /// Starts the process, unless it runs. Returns false if one is still stopping.
    pub(crate) fn start(&mut self, world: &World) -> bool {
        self.start_unless_cut_off(world, None)
    }

    /// Starts the process, drops the start after this time, stops the process, and starts it again.
    pub(crate) fn start_cut_off(&mut self, world: &World, after: Duration) {
        self.start_unless_cut_off(world, Some(after));
    }

    fn start_unless_cut_off(&mut self, world: &World, cut_off_after: Option<Duration>) -> bool {
        self.reap();
        if self.stopping.is_some() {
            return false;
        }
        if self.process.is_some() || self.gone {
            return true;
        }
        world.history.append(format_args!("{} starts", self.name));
        world.judge.note_process_gone(self.machine);
        let environment: Arc<dyn Environment> = Arc::new(world.handle.environment(self.machine));
        let random = world.handle.fork_random();
        let builder = EventProcessorHost::builder(self.connect_hub(world), self.connect_store(world))
            .host_name(self.name.clone())
            .environment(environment.clone())
            .options(EventProcessorOptions {
                on_error: Some(self.error_handler(world)),
                ..self.options(world)
            })
            .manager_options(self.config.manager_options())
            .rules(world.rules);
        let built = match &world.user_code.build {
            Some(build) => build(builder, self.call_observer(world, environment)),
            None => self.with_processor(world, builder, environment, random),
        };
        let process = Arc::new(built.expect("the options of a scenario are valid"));
        self.process = Some(process.clone());
        let (history, judge, name) = (world.history.clone(), world.judge.clone(), self.name.clone());
        let handle = world.handle.clone();
        world.handle.spawn_on(self.machine, async move {
            let cut_off = async {
                match cut_off_after {
                    Some(after) => handle.sleep(after).await,
                    None => std::future::pending().await,
                }
            };
            let started = tokio::select! {
                biased;
                started = process.start() => started,
                () = cut_off => {
                    history.append(format_args!("{name} is told to stop while it starts, and started again"));
                    if let Ok(report) = process.stop(Duration::ZERO).await {
                        let what = format!("{name} was stopped before it had started: {report}");
                        judge.report_violation(Promise::StopMeansStopped, None, what);
                    }
                    process.start().await
                }
            };
            if let Err(error) = started {
                history.append(format_args!("{name} does not start: {error}"));
                if matches!(error, StartError::AnotherHub { .. } | StartError::AlreadyStarted { .. }) {
                    judge.report_violation(
                        Promise::LoopNeverDies,
                        None,
                        format!("{name} does not start: {error}"),
                    );
                }
            }
        });
        true
    }

    /// The options of its host: drawn, or the user's.
    fn options(&self, world: &World) -> EventProcessorOptions {
        world.user_code.options(self.config.options(&world.scenario))
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
        let (handle, late_checkpoints) = (world.handle.clone(), Arc::new(Mutex::new(vec![])));
        builder.processor(move |_| SimProcessor {
            judge: judge.clone(),
            handle: handle.clone(),
            machine,
            environment: environment.clone(),
            faults: faults.clone(),
            random: random.lock().unwrap_or_else(PoisonError::into_inner).fork(),
            old: None,
            panicked: false,
            late_checkpoints: late_checkpoints.clone(),
        })
    }

    fn call_observer(&self, world: &World, environment: Arc<dyn Environment>) -> CallObserver {
        CallObserver {
            judge: world.judge.clone(),
            machine: self.machine,
            environment,
            skipped: world.user_code.skipped.clone(),
            faults: self.processor.clone(),
        }
    }

    /// Passes the errors that the host reports to the judge.
    fn error_handler(&self, world: &World) -> ErrorHandler {
        let (judge, machine) = (world.judge.clone(), self.machine);
        ErrorHandler::new(move |error| {
            let (partition, error) = match error {
                HostError::Partition { partition, error } => (partition, error),
                // There is only one hub, and only user code may panic.
                HostError::AnotherHub { .. }
                | HostError::TaskPanicked { .. }
                | HostError::TaskEnded { .. } => {
                    return judge.report_violation(Promise::LoopNeverDies, None, error.to_string());
                }
                HostError::Store { .. }
                | HostError::Hub { .. }
                | HostError::NameInUse { .. }
                | HostError::ClockSkew
                | HostError::OpenFailed { .. }
                | HostError::CloseFailed { .. }
                | HostError::Halted { .. }
                | HostError::ForeignReader { .. }
                | HostError::ForeignReaderBeyondReach { .. }
                | HostError::Displaced { .. }
                | HostError::SelfFenced { .. }
                | HostError::Stuck { .. }
                | HostError::FinalCheckpointMissing { .. }
                | HostError::Damaged { .. }
                | HostError::PartitionsWithoutOwner { .. } => return,
                unknown => return judge.does_not_know(unknown),
            };
            match error {
                PartitionError::PositionGone { cause, resumes_at, .. } => {
                    judge.position_gone(machine, *partition, cause, *resumes_at);
                }
                PartitionError::Gaps { .. } => judge.gaps_were_reported(machine, *partition, error),
                PartitionError::Processing { .. } => {
                    judge.failure_was_reported(*partition, ReportTarget::Handler)
                }
                PartitionError::Skipped { .. }
                | PartitionError::Source { .. }
                | PartitionError::Checkpoint { .. } => {}
                unknown => judge.does_not_know(unknown),
            }
        })
    }

    fn connect_store(&self, world: &World) -> FaultyStore {
        // The judge uses the options that the host really has.
        let EventProcessorOptions { checkpoint, failure, process_timeout, .. } = self.options(world);
        let config = HostConfig { checkpoint, failure, process_timeout, ..self.config.clone() };
        let (judge, machine) = (world.judge.clone(), self.machine);
        FaultyStore::new(&world.handle, world.any_store(), self.store.clone())
            .with_common(world.common.clone())
            .with_distance(world.scenario.distance)
            .with_observer(self.observer(world, "store"))
            .with_heartbeat_observer(Arc::new(move |record| judge.note_heartbeat(record, machine, &config)))
    }

    fn connect_hub(&self, world: &World) -> FaultySource {
        let observer = self.observer(world, "hub");
        let (judge, machine) = (world.judge.clone(), self.machine);
        let on_message = Arc::new(move |message: HubMessage<'_>| match message {
            HubMessage::Opens(request) => judge.reads(machine, request),
            HubMessage::Displaced(partition, epoch) => judge.displaced(machine, partition, epoch),
        });
        let hub = Arc::new(world.hub.clone());
        FaultySource::observed(&world.handle, hub, self.source.clone(), observer, on_message)
            .with_reattaching(world.scenario.reattaches)
    }

    /// Counts a network fault, and writes it to the history.
    fn observer<Call: std::fmt::Debug>(
        &self,
        world: &World,
        place: &'static str,
    ) -> Arc<dyn Fn(FaultKind, Call, Option<PartitionId>) + Send + Sync> {
        let (world, name, machine) = (world.clone(), self.name.clone(), self.machine);
        Arc::new(move |kind, call, partition| {
            world.history.append(format_args!("{place}: {kind:?} hits {call:?} of {name} {partition:?}"));
            let hit = partition.map_or_else(|| world.judge.owned_by(machine), |partition| vec![partition]);
            world.cover(&format!("{place}: {kind:?}"), &hit);
            let mut coverage = world.coverage.lock().unwrap_or_else(PoisonError::into_inner);
            coverage.call(format!("{place}: {kind:?} in {call:?}"));
        })
    }
}
