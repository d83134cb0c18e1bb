//! Runs your own processor, or your own store, in simulated fleets under faults, for tests.
//!
//! [`seeds`] plays one fleet for each seed: hosts that crash, pause and lose their connection to the store or
//! the hub, for ten minutes of virtual time; then all faults end and everything has to be in order. You
//! supply the code that runs in it and the conditions that must hold for every event in the end. The first
//! seed that breaks a promise is shrunk to the smallest scenario that still breaks it, and comes back as an
//! error that reports it.
//!
//! ```
//! use std::collections::BTreeSet;
//! use std::sync::{Arc, Mutex};
//!
//! use ephor::environment::Environment;
//! use ephor::{BoxError, Event, EventProcessor, PartitionContext};
//! use ephor_sim::testing; // or `ephor_testkit::simulation`
//!
//! /// Writes events to a table. A write takes a moment.
//! struct Recorder {
//!     table: Arc<Mutex<BTreeSet<String>>>,
//!     environment: Arc<dyn Environment>,
//! }
//!
//! impl EventProcessor for Recorder {
//!     async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
//!         for event in events {
//!             self.environment.sleep_until(self.environment.now() + std::time::Duration::from_millis(20)).await;
//!             self.table.lock().unwrap().extend(event.text().map(str::to_owned));
//!         }
//!         context.checkpoint().await?; // not before all of them are written
//!         Ok(())
//!     }
//! }
//!
//! let report = testing::seeds(0..2).play(|world| {
//!     let table = Arc::new(Mutex::new(BTreeSet::new())); // outlives every crash, as a database does
//!     let written = table.clone();
//!     world.processor(move |environment, _| Recorder { table: table.clone(), environment });
//!     world.every_event(move |_, event| event.text().is_some_and(|text| written.lock().unwrap().contains(text)));
//! });
//! assert_eq!(report.unwrap().seeds, 2);
//! ```
//!
//! # What can be seen
//!
//! Of a processor, the simulation sees every opening, call and closing, with its events, host and epoch, and
//! each moment at which its code runs. All promises of the host are judged as usual. It does not see the work
//! within a call, so the processor may checkpoint every event that it was called with. A checkpoint that came
//! too soon shows in the end, by [`World::every_event`].
//!
//! Of a store, it sees the answers. The store is judged by the steps that it reports as carried out, in that
//! order.
//!
//! # What your code must do
//!
//! - Take time, tasks and random numbers from the [`Environment`] that it is given: there is no tokio runtime
//!   here, and values from elsewhere make each run of a seed different. (Do not iterate over a `HashMap`,
//!   either.)
//! - Keep up: some thousand events come in ten minutes, on two partitions or more. [`World::events`] makes it
//!   fewer.
//! - A store answers `Err` only if nothing was carried out. The simulation adds lost requests, lost answers
//!   and errors of the network.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use ephor::environment::Environment;
use ephor::{Event, EventProcessor, EventProcessorOptions, PartitionContext, PartitionId};
use ephor_core::rules::Rules;
use ephor_core::store::Store;
use ephor_core::time::Clock;

use crate::failure_report::FailureReport;
use crate::observed_processor::ObservedProcessor;
use crate::run::Run;
use crate::run_result::{RunResult, attempt_run};
pub use crate::scenario::Fault;
use crate::scenario::{Ending, HostConfig, Scenario};
use crate::shrink::{Limits, search};
use crate::user_code::UserCode;

/// A search for a smaller scenario takes at most this many plays, so that a test ends in reasonable time.
const MAX_PLAYS: usize = 200;

/// Plays one fleet for each of these seeds.
pub fn seeds(seeds: Range<u64>) -> Seeds {
    Seeds { seeds }
}

/// Seeds to play.
#[derive(Clone, Debug)]
#[must_use = "nothing is played before `play`"]
pub struct Seeds {
    seeds: Range<u64>,
}

/// The totals of a run without failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of seeds.
    pub seeds: u64,
    /// The number of injected faults, an operator's actions included.
    pub faults: u64,
    /// The number of events that the processors finished, repetitions included.
    pub finished: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} seeds, {} faults, {} events finished", self.seeds, self.faults, self.finished)
    }
}

/// A seed that broke a promise. `Debug` shows its report, too, because `unwrap` prints that.
#[derive(Clone)]
pub struct Failure {
    /// The seed: `seeds(seed..seed + 1)` plays it again.
    pub seed: u64,
    /// The broken promise, and how it was broken, in the words of the judge.
    pub broken: String,
    /// The number of faults in the shrunk run.
    pub faults: usize,
    /// The report of the shrunk run: the fleet, the faults, and what happens.
    pub report: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, broken, report, .. } = self;
        write!(
            f,
            "seed {seed} breaks a promise: {broken}\n\n{report}\n\nto play it again: seeds({seed}..{})",
            seed + 1
        )
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}

impl Seeds {
    /// Plays them, one after the other, until one breaks a promise.
    ///
    /// `set_up` is called for every single play, those of the search for a smaller scenario included, and must
    /// make everything new.
    pub fn play(self, set_up: impl Fn(&mut World)) -> Result<Report, Failure> {
        let mut report = Report::default();
        for seed in self.seeds {
            let (_, played) = play(Scenario::draw(seed), &set_up);
            if played.broken.is_some() {
                return Err(explain(seed, &set_up));
            }
            report.seeds += 1;
            if let Some(outcome) = played.outcome {
                report.faults += outcome.injections as u64;
                report.finished += outcome.figures.finished;
            }
        }
        Ok(report)
    }
}

/// Plays a scenario with the user's parts, and returns it as it was changed for them.
fn play(scenario: Scenario, set_up: &dyn Fn(&mut World)) -> (Scenario, RunResult) {
    let mut world = World::default();
    set_up(&mut world);
    let scenario = world.shape(scenario);
    let run = Run::with_user_code(scenario.clone(), Rules::default(), world.user_code);
    (scenario, attempt_run(run))
}

/// Shrinks a failing seed, and reports it.
fn explain(seed: u64, set_up: &dyn Fn(&mut World)) -> Failure {
    let limits = Limits { plays: MAX_PLAYS, ..Limits::default() };
    let (first, _) = play(Scenario::draw(seed), set_up);
    let shrunk = search(first, limits, &|scenario| {
        let (_, played) = play(scenario, set_up);
        Some((played.broken?, played.history))
    });
    let Some(mut shrunk) = shrunk else {
        let broken =
            "the failure did not occur again; does your code depend on real time or real random numbers?"
                .to_owned();
        return Failure {
            seed,
            broken,
            faults: 0,
            report: "(no report: two runs of this seed differ)".to_owned(),
        };
    };
    let mut world = World::default();
    set_up(&mut world);
    shrunk.scenario = world.shape(shrunk.scenario);
    Failure {
        seed,
        broken: shrunk.broken.to_string(),
        faults: shrunk.scenario.injections.len(),
        report: FailureReport::new(&shrunk, None).to_string(),
    }
}

/// The parts that you bring into a fleet. The simulation supplies all others.
#[derive(Default)]
pub struct World {
    user_code: UserCode,
    events: Option<u32>,
    faults: Option<Box<dyn Fn(Fault) -> bool>>,
    processor_faults: bool,
}

impl World {
    /// Sets the processor: one is made for each partition that a host owns, with that host's time, tasks and
    /// random numbers.
    ///
    /// Its options are the usual ones, unless [`World::options`] says otherwise. The simulation does not make
    /// it fail or hang, unless [`World::inject_processor_faults`]. Crashes, pauses, and faults of store and
    /// hub stay.
    pub fn processor<P: EventProcessor>(
        &mut self,
        make: impl Fn(Arc<dyn Environment>, &PartitionContext) -> P + Send + Sync + 'static,
    ) {
        let make = Arc::new(make);
        self.user_code.build = Some(Arc::new(move |builder, observer| {
            let make = make.clone();
            builder.processor(move |context| {
                ObservedProcessor::new(make(observer.environment.clone(), context), observer.clone())
            })
        }));
    }

    /// Lets calls of the processor also take long, fail, panic and not return for a while, before or after
    /// your own code has run. If the failure policy skips events, it skips some.
    pub fn inject_processor_faults(&mut self) {
        self.processor_faults = true;
    }

    /// Adds a condition that must hold for every event in the end. If called several times, all conditions
    /// must hold.
    ///
    /// It is checked for every event that the hub still keeps, except those that the processor need not have
    /// seen: before a position that an operator's seek moved, before the position where reading began, and
    /// those that the failure policy skipped.
    pub fn every_event(&mut self, holds: impl Fn(PartitionId, &Event) -> bool + Send + Sync + 'static) {
        self.user_code.conditions.push(Arc::new(holds));
    }

    /// Sets the options of all hosts. Without this they are the usual ones, with batches of up to twenty
    /// events.
    ///
    /// The simulation still chooses the initial position, the reaction to a lost position, and `on_error`.
    pub fn options(&mut self, options: EventProcessorOptions) {
        self.user_code.options = Some(options);
    }

    /// Sets the bodies of the events, by their number. Without this a body is the number, as text.
    pub fn bodies<B: Into<Bytes>>(&mut self, body: impl Fn(u32) -> B + Send + Sync + 'static) {
        self.user_code.body = Some(Arc::new(move |number| body(number).into()));
    }

    /// Limits the number of events that are sent to `max`, and at least one. Without this it is some
    /// thousands.
    pub fn events(&mut self, max: u32) {
        self.events = Some(max.max(1));
    }

    /// Limits the faults that may happen. Without this all of them may: each seed draws some from
    /// [`Fault::ALL`].
    pub fn faults(&mut self, may_happen: impl Fn(Fault) -> bool + 'static) {
        self.faults = Some(Box::new(may_happen));
    }

    /// Sets the store, made for each play. It uses this clock, which is set forward and back when a server
    /// fails over.
    ///
    /// It is never restored from a copy, as the simulation's own is.
    pub fn store(&mut self, make: impl Fn(Arc<dyn Clock>) -> Arc<dyn Store> + Send + Sync + 'static) {
        self.user_code.store = Some(Arc::new(make));
    }

    /// Changes a scenario for the user's parts. Doing it twice changes nothing more.
    fn shape(&self, mut scenario: Scenario) -> Scenario {
        if let Some(may_happen) = &self.faults {
            scenario.injections.retain(|injection| may_happen(injection.fault));
        }
        if self.user_code.store.is_some() {
            scenario.injections.retain(|injection| injection.fault != Fault::StoreRestored);
        }
        if self.user_code.build.is_some() {
            scenario
                .injections
                .retain(|injection| !is_processor_fault(injection.fault, self.processor_faults));
            if scenario.ending == Ending::OneBroken {
                scenario.ending = Ending::Healthy;
            }
            scenario.call = std::time::Duration::ZERO;
            scenario.by_hand = 0.0;
            self.configure(&mut scenario.config);
            self.configure(&mut scenario.upgraded);
        } else if let Some(options) = &self.user_code.options {
            copy_options(&mut scenario.config, options);
            copy_options(&mut scenario.upgraded, options);
        }
        scenario.events = self.events.map_or(scenario.events, |max| max.min(scenario.events));
        scenario
    }

    fn configure(&self, config: &mut HostConfig) {
        let usual = EventProcessorOptions {
            max_batch_size: config.max_batch_size,
            ..EventProcessorOptions::default()
        };
        copy_options(config, self.user_code.options.as_ref().unwrap_or(&usual));
        config.max_partitions = None;
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

/// Copies the options to the host's configuration, from which the judge knows them.
fn copy_options(config: &mut HostConfig, options: &EventProcessorOptions) {
    config.max_batch_size = options.max_batch_size;
    config.checkpoint = options.checkpoint.clone();
    config.failure = options.failure;
    config.process_timeout = options.process_timeout;
}

/// True for faults that only the simulation's own processor can have.
fn is_processor_fault(fault: Fault, processor_faults: bool) -> bool {
    match fault {
        Fault::SlowProcessor | Fault::FailingProcessor | Fault::HangingProcessor => !processor_faults,
        Fault::LongStop | Fault::StoreHangsAtStop | Fault::StopTwice | Fault::StopCallerLeaves => {
            !processor_faults
        }
        Fault::BlockedProcessor | Fault::OddCheckpoints => true,
        Fault::Crash
        | Fault::PauseProcess
        | Fault::Freeze
        | Fault::Suspend
        | Fault::Restart
        | Fault::Upgrade
        | Fault::BrokenUpgrade
        | Fault::Join
        | Fault::Namesake
        | Fault::Leave
        | Fault::ClockDrift
        | Fault::ClockJump
        | Fault::WallClockSet
        | Fault::StoreTrouble
        | Fault::StoreCutOff
        | Fault::StoreAnswersLost
        | Fault::HostUnseenInStore
        | Fault::StoreThrottles
        | Fault::StoreWakesNobody
        | Fault::StoreOutage
        | Fault::StoreFailover
        | Fault::StoreRestored
        | Fault::HubTrouble
        | Fault::HubCutOff
        | Fault::HubAnswersLost
        | Fault::HubRestart
        | Fault::LinkCut
        | Fault::HubLosesPower
        | Fault::HubPropertiesLag
        | Fault::HubReplicaLags
        | Fault::HubRecreated
        | Fault::HubRefilled
        | Fault::HubGrows
        | Fault::Retention
        | Fault::RetentionOvertakes
        | Fault::HubDamaged
        | Fault::ForeignReader
        | Fault::Seek
        | Fault::Drain
        | Fault::PausePartition
        | Fault::StopDuringStart
        | Fault::HubCompacted => false,
    }
}
