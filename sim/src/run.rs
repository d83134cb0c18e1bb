//! Runs one simulation: a scenario on the real host code, checked by a judge.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ephor::PartitionId;
use ephor::memory::{MemoryHub, MemoryStore, StoreCopy};
use ephor_core::rules::Rules;
use ephor_core::store::Store;
use ephor_core::time::Monotonic;

use crate::coverage::Coverage;
use crate::events::stamped;
use crate::executor::{Executor, Machine, Task};
use crate::fingerprint::Fingerprint;
use crate::fleet::{SimHost, World, log_of};
use crate::history::History;
use crate::injection::Undo;
use crate::judge::{ExemptionCounts, Figures, Judge, JudgeCopy, Violation};
use crate::scenario::{Fault, INJECTION_TIME, SETTLE_TIME, Scenario};
use crate::store::ObservedStore;
use crate::user_code::UserCode;

/// The shortest time between two copies of the store.
const COPY_EVERY: Duration = Duration::from_secs(20);

/// The outcome of a run.
pub struct Outcome {
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
    /// The history of the run.
    pub history: History,
    /// The fingerprint of every step.
    pub steps: Fingerprint,
    /// Figures.
    pub figures: Figures,
    /// How often each check was exempt.
    pub exemptions: ExemptionCounts,
    /// The states in which each fault hit partitions and hosts.
    pub coverage: Coverage,
    /// The number of faults of the scenario that were injected.
    pub injections: usize,
}

/// Plays one seed. The same seed gives the same run, to the byte.
pub fn play(seed: u64, rules: Rules) -> Outcome {
    play_scenario(Scenario::draw(seed), rules)
}

/// Plays a scenario, drawn or made: the same one gives the same run.
pub fn play_scenario(scenario: Scenario, rules: Rules) -> Outcome {
    Run::new(scenario, rules).play()
}

pub(crate) struct Run {
    pub(crate) executor: Executor,
    pub(crate) world: World,
    pub(crate) hosts: Vec<SimHost>,
    /// Faults to undo and steps to take, by time, then in the order in which they were noted.
    pending: BTreeMap<(Monotonic, usize), Undo>,
    noted: usize,
    /// Copies of the store, each with the judge's facts of the same time.
    pub(crate) copies: Vec<(Monotonic, StoreCopy, JudgeCopy)>,
    /// Foreign readers.
    pub(crate) foreign_readers: Vec<Task>,
}

impl Run {
    pub(crate) fn new(scenario: Scenario, rules: Rules) -> Self {
        Self::with_user_code(scenario, rules, UserCode::default())
    }

    pub(crate) fn with_user_code(scenario: Scenario, rules: Rules, user_code: UserCode) -> Self {
        let executor = Executor::new(scenario.seed);
        let handle = (*executor).clone();
        let store_clock = handle.add_machine("store");
        let history = History::new(handle.clock(Machine::WORLD));
        let hub = MemoryHub::new("homes", scenario.partitions)
            .expect("a valid name")
            .with_clock(Arc::new(handle.clock(Machine::WORLD)));
        let hub = if scenario.hub_fences { hub } else { hub.without_fencing() };
        let judge = Judge::new(&handle, &history, &scenario, log_of(&hub), store_clock);
        let judge = if user_code.store.is_some() { judge.without_wakes() } else { judge };
        let observer = judge.clone();
        let mut store = MemoryStore::new(Arc::new(handle.clock(store_clock)))
            .with_rules(rules)
            .with_observer(Arc::new(move |_, event| observer.check_store_step(event)));
        if !scenario.wakes {
            store = store.without_wakes();
        }
        if scenario.shared_with_other_sdks {
            store = store.with_other_sdks();
        }
        let user_store = user_code.store.as_ref().map(|make| -> Arc<dyn Store> {
            let (clock, observer) = (Arc::new(handle.clock(store_clock)), judge.clone());
            let inner = make(clock.clone());
            Arc::new(ObservedStore::new(
                inner,
                clock,
                Arc::new(move |event| observer.check_store_step(event)),
            ))
        });
        history.append(format_args!(
            "seed {}: {} hosts, {} partitions, {} events, {:?}",
            scenario.seed, scenario.hosts, scenario.partitions, scenario.events, scenario.config
        ));
        let world = World {
            handle,
            scenario: Arc::new(scenario),
            hub,
            store,
            user_store,
            store_clock,
            common: Arc::default(),
            judge,
            history,
            coverage: Arc::default(),
            rules,
            user_code,
        };
        let hosts = (0..world.scenario.hosts).map(|number| SimHost::new(&world, number)).collect();
        Self {
            executor,
            world,
            hosts,
            pending: BTreeMap::new(),
            noted: 0,
            copies: vec![],
            foreign_readers: vec![],
        }
    }

    pub(crate) fn play(mut self) -> Outcome {
        self.send_events();
        for host in &mut self.hosts {
            host.start(&self.world);
        }
        let mut injections = 0;
        let scenario = self.world.scenario.clone();
        let copies = scenario.injections.iter().any(|injection| injection.fault == Fault::StoreRestored);
        for injection in &scenario.injections {
            self.run_until(Monotonic(0) + injection.at);
            if self.is_over() {
                break;
            }
            if copies {
                self.take_copy();
            }
            injections += usize::from(self.inject(injection));
        }
        if !self.is_over() {
            self.run_until(Monotonic(0) + INJECTION_TIME);
        }
        if !self.is_over() {
            let remaining = self.end_faults(Monotonic(0) + INJECTION_TIME + SETTLE_TIME);
            if !self.is_over() {
                self.judge_final_state(&remaining);
            }
        }
        self.outcome(injections)
    }

    /// True once a promise was broken: later steps do not count.
    pub(crate) fn is_over(&self) -> bool {
        self.world.judge.violation().is_some()
    }

    /// Sends the scenario's events, spread over the time of the faults.
    pub(crate) fn send_events(&self) {
        let world = self.world.clone();
        let mut random = world.handle.fork_random();
        let pause = INJECTION_TIME / world.scenario.events;
        self.world.handle.spawn_on(Machine::WORLD, async move {
            for number in 0..world.scenario.events {
                let partitions = world.partitions();
                let partition: PartitionId = partitions[random.usize(0..partitions.len())];
                // A hub in memory accepts everything while it is up.
                let _ = world.hub.send_event(
                    partition,
                    stamped(world.user_code.body(number), world.judge.log_generation()),
                );
                world.handle.sleep(pause).await;
            }
        });
    }

    /// Runs until this time, and undoes on the way what is due.
    pub(crate) fn run_until(&mut self, at: Monotonic) {
        while let Some(entry) = self.pending.first_entry().filter(|entry| entry.key().0 <= at) {
            let ((due, _), undo) = entry.remove_entry();
            self.executor.run_until(due);
            if self.is_over() {
                return;
            }
            self.undo(undo);
        }
        self.executor.run_until(at);
        self.hosts.iter_mut().for_each(SimHost::reap);
    }

    pub(crate) fn later(&mut self, after: Duration, undo: Undo) {
        self.noted += 1;
        let due = self.world.handle.now() + after;
        self.pending.insert((due, self.noted), undo);
    }

    /// Drops all pending undo steps, because the caller ends all faults itself.
    pub(crate) fn clear_pending(&mut self) {
        self.pending.clear();
    }

    /// Takes a copy of the store, to be restored later, if the last one is old enough.
    fn take_copy(&mut self) {
        let now = self.world.handle.now();
        if self.copies.last().is_none_or(|(at, _, _)| now.since(*at) >= COPY_EVERY) {
            self.copies.push((now, self.world.store.copy(), self.world.judge.copy()));
        }
    }

    fn outcome(self, injections: usize) -> Outcome {
        let coverage = self.world.coverage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Outcome {
            violation: self.world.judge.violation(),
            history: self.world.history.clone(),
            steps: self.world.handle.fingerprint(),
            figures: self.world.judge.figures(),
            exemptions: self.world.judge.exemption_counts(),
            coverage,
            injections,
        }
    }
}
