//! Your own processor, or your own store, in fleets under faults.
//!
//! [`seeds`] plays one fleet for each seed: hosts that crash, stand still and lose their way to the store or the
//! hub, for ten minutes of virtual time; then all trouble ends and everything has to be in order. You say what
//! runs in it and what must be true of every event in the end. The first seed that breaks a promise is reduced to
//! the least that still breaks it, and comes back as an error that tells its story.
//!
//! ```
//! use std::collections::BTreeSet;
//! use std::sync::{Arc, Mutex};
//!
//! use ephor::environment::Environment;
//! use ephor::{BoxError, Event, EventProcessor, PartitionContext};
//! use ephor_sim::kit; // or `ephor_testkit::simulation`
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
//! let report = kit::seeds(0..2).play(|world| {
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
//! Of a processor: when it is opened, called and closed, with what, on which host and in which epoch, and whenever
//! its code runs. All promises of the host are judged as ever. What it does within a call is its own: it may
//! checkpoint whatever it was called with. Whether it did so too soon shows in the end, by
//! [`World::every_event`].
//!
//! Of a store: its answers. It is judged by what it says to have carried out, in the order in which it says so.
//!
//! # What your code must do
//!
//! - Take time, tasks and chance from the [`Environment`] that it is given: there is no tokio runtime here, and
//!   whatever comes from elsewhere makes a seed another run each time. (No `HashMap` that is iterated, either.)
//! - Keep up: some thousand events come in ten minutes, on two partitions or more. [`World::events`] makes it fewer.
//! - A store answers `Err` only if nothing was carried out. Lost requests, lost answers and errors are added on the way.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use ephor::environment::Environment;
use ephor::{Event, EventProcessor, EventProcessorOptions, PartitionContext, PartitionId};
use ephor_core::rules::Rules;
use ephor_core::store::Store;
use ephor_core::time::Clock;

use crate::attempt::{Attempt, attempt_run};
use crate::guest::Guest;
use crate::reduce::{Limits, search};
use crate::run::Run;
pub use crate::scenario::Fault;
use crate::scenario::{Ending, Scenario, Style};
use crate::story::Story;
use crate::watched::Watched;

/// A reduction takes at most so many plays: a test has to come to its end.
const PLAYS: usize = 200;

/// One fleet for each of these seeds.
pub fn seeds(seeds: Range<u64>) -> Seeds {
    Seeds { seeds }
}

/// Seeds to be played.
#[derive(Clone, Debug)]
#[must_use = "nothing is played before `play`"]
pub struct Seeds {
    seeds: Range<u64>,
}

/// What was played, and nothing was wrong with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many seeds.
    pub seeds: u64,
    /// How many things went wrong on purpose, or were done by a person.
    pub faults: u64,
    /// How many events the processors finished, repetitions included.
    pub finished: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} seeds, {} faults, {} events finished", self.seeds, self.faults, self.finished)
    }
}

/// A seed that broke a promise. `Debug` is its story, too: that is what `unwrap` shows.
#[derive(Clone)]
pub struct Failure {
    /// Which one: `seeds(seed..seed + 1)` plays it again.
    pub seed: u64,
    /// Which promise, and how it was broken, in the words of the judge.
    pub broken: String,
    /// How many faults are left in the reduced run.
    pub faults: usize,
    /// The reduced run, told: the fleet, what goes wrong, and what happens.
    pub story: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, broken, story, .. } = self;
        write!(
            f,
            "seed {seed} breaks a promise: {broken}\n\n{story}\n\nto play it again: seeds({seed}..{})",
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
    /// `set_up` is called for every single play, those of the reduction included, and makes everything anew.
    pub fn play(self, set_up: impl Fn(&mut World)) -> Result<Report, Failure> {
        let mut report = Report::default();
        for seed in self.seeds {
            let (_, played) = play(Scenario::draw(seed), &set_up);
            if played.broken.is_some() {
                return Err(explain(seed, &set_up));
            }
            report.seeds += 1;
            if let Some(outcome) = played.outcome {
                report.faults += outcome.acts as u64;
                report.finished += outcome.figures.finished;
            }
        }
        Ok(report)
    }
}

/// Plays a scenario with what the user brings, and says what it was then.
fn play(scenario: Scenario, set_up: &dyn Fn(&mut World)) -> (Scenario, Attempt) {
    let mut world = World::default();
    set_up(&mut world);
    let scenario = world.shape(scenario);
    let run = Run::with_guest(scenario.clone(), Rules::default(), world.guest);
    (scenario, attempt_run(run))
}

/// Reduces a failing seed, and tells its story.
fn explain(seed: u64, set_up: &dyn Fn(&mut World)) -> Failure {
    let limits = Limits { plays: PLAYS, ..Limits::default() };
    let (first, _) = play(Scenario::draw(seed), set_up);
    let reduced = search(first, limits, &|scenario| {
        let (_, played) = play(scenario, set_up);
        Some((played.broken?, played.history))
    });
    let Some(mut reduced) = reduced else {
        let broken =
            "it did not break it again; does something in it depend on real time or real chance?".to_owned();
        return Failure {
            seed,
            broken,
            faults: 0,
            story: "(no story: no two runs of it are the same)".to_owned(),
        };
    };
    let mut world = World::default();
    set_up(&mut world);
    reduced.scenario = world.shape(reduced.scenario);
    Failure {
        seed,
        broken: reduced.broken.to_string(),
        faults: reduced.scenario.acts.len(),
        story: Story::new(&reduced, None).to_string(),
    }
}

/// What you bring into a fleet. Whatever you leave out is the simulation's own.
#[derive(Default)]
pub struct World {
    guest: Guest,
    events: Option<u32>,
    faults: Option<Box<dyn Fn(Fault) -> bool>>,
    stumbles: bool,
}

impl World {
    /// The processor: made for each partition that a host owns, on that host's time, tasks and chance.
    ///
    /// Its options are the usual ones, unless [`World::options`] says otherwise. The simulation does not make it
    /// fail or hang, unless [`World::the_processor_stumbles`]. Crashes, pauses, and trouble with store and hub stay.
    pub fn processor<P: EventProcessor>(
        &mut self,
        make: impl Fn(Arc<dyn Environment>, &PartitionContext) -> P + Send + Sync + 'static,
    ) {
        let make = Arc::new(make);
        self.guest.build = Some(Arc::new(move |builder, watch| {
            let make = make.clone();
            builder.processor(move |context| {
                Watched::new(make(watch.environment.clone(), context), watch.clone())
            })
        }));
    }

    /// Calls of the processor also take long, fail, panic and do not return for a while, before or after your own code
    /// has run. If the failure policy skips events, it skips some.
    pub fn the_processor_stumbles(&mut self) {
        self.stumbles = true;
    }

    /// What must be true of every event in the end. May be called several times: all of it must be true.
    ///
    /// It is asked about every event that the hub still keeps, except those that the processor need not have
    /// seen: before a position that a person has moved, before the place where reading began, and those that
    /// the failure policy has skipped.
    pub fn every_event(&mut self, holds: impl Fn(PartitionId, &Event) -> bool + Send + Sync + 'static) {
        self.guest.conditions.push(Arc::new(holds));
    }

    /// The options of all hosts. Without this they are the usual ones, with batches of up to twenty events.
    ///
    /// Where reading begins and what becomes of a lost position stay the simulation's, and so does `on_error`.
    pub fn options(&mut self, options: EventProcessorOptions) {
        self.guest.options = Some(options);
    }

    /// The bodies of the events, by their number. Without this it is the number, as text.
    pub fn bodies<B: Into<Bytes>>(&mut self, body: impl Fn(u32) -> B + Send + Sync + 'static) {
        self.guest.body = Some(Arc::new(move |number| body(number).into()));
    }

    /// No more than so many events are sent, and at least one. Without this it is some thousands.
    pub fn events(&mut self, most: u32) {
        self.events = Some(most.max(1));
    }

    /// Which faults may happen. Without this it is all of them: a part of the menu for each seed.
    pub fn faults(&mut self, may_happen: impl Fn(Fault) -> bool + 'static) {
        self.faults = Some(Box::new(may_happen));
    }

    /// The store, made for each play. It goes by this clock, which is set forward and back when a server fails over.
    ///
    /// It is never restored from a copy, as the simulation's own is.
    pub fn store(&mut self, make: impl Fn(Arc<dyn Clock>) -> Arc<dyn Store> + Send + Sync + 'static) {
        self.guest.store = Some(Arc::new(make));
    }

    /// The scenario as it is with what was brought. Done twice it is the same.
    fn shape(&self, mut scenario: Scenario) -> Scenario {
        if let Some(may_happen) = &self.faults {
            scenario.acts.retain(|act| may_happen(act.fault));
        }
        if self.guest.store.is_some() {
            scenario.acts.retain(|act| act.fault != Fault::StoreRestored);
        }
        if self.guest.build.is_some() {
            scenario.acts.retain(|act| !is_of_the_code(act.fault, self.stumbles));
            if scenario.ending == Ending::OneBroken {
                scenario.ending = Ending::Well;
            }
            scenario.call = std::time::Duration::ZERO;
            scenario.by_hand = 0.0;
            self.dress(&mut scenario.style);
            self.dress(&mut scenario.upgraded);
        } else if let Some(options) = &self.guest.options {
            wear(&mut scenario.style, options);
            wear(&mut scenario.upgraded, options);
        }
        scenario.events = self.events.map_or(scenario.events, |most| most.min(scenario.events));
        scenario
    }

    fn dress(&self, style: &mut Style) {
        let usual = EventProcessorOptions {
            max_batch_size: style.max_batch_size,
            ..EventProcessorOptions::default()
        };
        wear(style, self.guest.options.as_ref().unwrap_or(&usual));
        style.max_partitions = None;
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

/// The judge knows the options by the style.
fn wear(style: &mut Style, options: &EventProcessorOptions) {
    style.max_batch_size = options.max_batch_size;
    style.checkpoint = options.checkpoint.clone();
    style.failure = options.failure;
    style.process_timeout = options.process_timeout;
}

/// Faults that only the simulation's own processor has.
fn is_of_the_code(fault: Fault, stumbles: bool) -> bool {
    match fault {
        Fault::SlowProcessor | Fault::FailingProcessor | Fault::HangingProcessor => !stumbles,
        Fault::LongStop | Fault::StoreHangsAtStop => !stumbles,
        Fault::BlockedProcessor | Fault::OddCheckpoints => true,
        _ => false,
    }
}
