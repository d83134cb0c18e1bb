//! One run: a scenario played out on the real host code, and judged.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ephor::memory::{MemoryHub, MemoryStore};
use ephor::{DEFAULT_FENCE_MARGIN, DEFAULT_LEASE_DURATION, PartitionId};
use ephor_core::rules::Rules;
use ephor_core::time::Monotonic;

use crate::coverage::Coverage;
use crate::executor::{Executor, Machine};
use crate::faults::Latency;
use crate::fingerprint::Fingerprint;
use crate::fleet::{SimHost, World, good_day, set};
use crate::history::History;
use crate::judge::{Figures, Judge};
use crate::processor::ProcessorFaults;
use crate::scenario::{Act, Fault, SETTLE, STILL, Scenario, TROUBLE};
use crate::source::SourceFaults;
use crate::store::StoreFaults;

/// How long a store is out of reach after trouble: longer than a lease.
const CUT_OFF: Duration = Duration::from_secs(40);

/// How a run ended.
pub struct Outcome {
    /// The promise that was broken, if one was.
    pub violation: Option<String>,
    /// What happened.
    pub history: History,
    /// Of every step that was taken.
    pub steps: Fingerprint,
    /// Figures.
    pub figures: Figures,
    /// Which fault hit what.
    pub coverage: Coverage,
    /// How many acts of the scenario took place.
    pub acts: usize,
}

/// Plays one seed. The same seed gives the same run, to the byte.
pub fn play(seed: u64, rules: Rules) -> Outcome {
    play_scenario(Scenario::draw(seed), rules)
}

/// Plays a scenario, drawn or made: the same one gives the same run.
pub fn play_scenario(scenario: Scenario, rules: Rules) -> Outcome {
    Run::new(scenario, rules).play()
}

/// Something that ends later: what to undo, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Undo {
    Start,
    Resume,
    Store,
    /// Trouble with the store ends with the store out of reach.
    StoreCutOff,
    Source,
    Processor,
}

pub(crate) struct Run {
    pub(crate) executor: Executor,
    pub(crate) world: World,
    pub(crate) hosts: Vec<SimHost>,
    /// By time, then in the order in which they were noted.
    pending: BTreeMap<(Monotonic, usize), (usize, Undo)>,
    noted: usize,
}

impl Run {
    pub(crate) fn new(scenario: Scenario, rules: Rules) -> Self {
        let executor = Executor::new(scenario.seed);
        let handle = (*executor).clone();
        let clock = Arc::new(handle.clock(Machine::WORLD));
        let history = History::new(handle.clock(Machine::WORLD));
        let judge = Judge::new(&handle, &history, DEFAULT_LEASE_DURATION - DEFAULT_FENCE_MARGIN);
        let hub =
            MemoryHub::new("homes", scenario.partitions).expect("a valid name").with_clock(clock.clone());
        let bench = judge.clone();
        let mut store = MemoryStore::new(clock)
            .with_rules(rules)
            .with_observer(Arc::new(move |_, event| bench.store_did(event)));
        if !scenario.wakes {
            store = store.without_wakes();
        }
        history.tell(format_args!(
            "seed {}: {} hosts, {} partitions, {} events, {:?}, {:?}",
            scenario.seed,
            scenario.hosts,
            scenario.partitions,
            scenario.events,
            scenario.checkpoint,
            scenario.failure
        ));
        let world = World {
            handle,
            scenario: Arc::new(scenario),
            hub,
            store,
            judge,
            history,
            coverage: Arc::default(),
            rules,
        };
        let hosts = (0..world.scenario.hosts).map(|number| SimHost::new(&world, number)).collect();
        Self { executor, world, hosts, pending: BTreeMap::new(), noted: 0 }
    }

    pub(crate) fn play(mut self) -> Outcome {
        self.send_events();
        for host in &mut self.hosts {
            host.start(&self.world);
        }
        let mut acts = 0;
        let scenario = self.world.scenario.clone();
        for act in &scenario.acts {
            self.run_until(Monotonic(0) + act.at);
            if self.world.judge.violation().is_some() {
                break;
            }
            acts += usize::from(self.carry_out(act));
        }
        if self.world.judge.violation().is_none() {
            self.run_until(Monotonic(0) + TROUBLE);
            self.heal();
            self.run_until(Monotonic(0) + TROUBLE + SETTLE);
            self.judge_rest();
        }
        self.outcome(acts)
    }

    /// Sends the scenario's events, spread over the time of trouble.
    pub(crate) fn send_events(&self) {
        let world = self.world.clone();
        let mut random = world.handle.fork_random();
        let pause = TROUBLE / world.scenario.events;
        self.world.handle.spawn_on(Machine::WORLD, async move {
            for number in 0..world.scenario.events {
                let partition = PartitionId(random.u32(0..world.scenario.partitions));
                // A hub in memory takes everything while it is up, and it is.
                let _ = world.hub.send(partition, number.to_string());
                world.handle.sleep(pause).await;
            }
        });
    }

    /// Lets time pass, undoing on the way what is due.
    fn run_until(&mut self, at: Monotonic) {
        while let Some(entry) = self.pending.first_entry().filter(|entry| entry.key().0 <= at) {
            let ((due, _), (host, undo)) = entry.remove_entry();
            self.executor.run_until(due);
            self.undo(host, undo);
        }
        self.executor.run_until(at);
    }

    fn later(&mut self, after: Duration, host: usize, undo: Undo) {
        self.noted += 1;
        let due = self.world.handle.now() + after;
        self.pending.insert((due, self.noted), (host, undo));
    }

    fn undo(&mut self, number: usize, undo: Undo) {
        let world = self.world.clone();
        let host = &mut self.hosts[number];
        world.history.tell(format_args!("{}: {undo:?} again", host.name));
        match undo {
            Undo::Start => host.start(&world),
            Undo::Resume => world.handle.resume(host.machine),
            Undo::Store => set(&host.store, StoreFaults::default()),
            Undo::StoreCutOff => {
                set(&host.store, StoreFaults::cut_off());
                self.later(CUT_OFF, number, Undo::Store);
            }
            Undo::Source => set(&host.source, SourceFaults::default()),
            Undo::Processor => set(&host.processor, good_day(&world.scenario)),
        }
    }

    /// Carries out an act. False if there was nobody to do it to.
    fn carry_out(&mut self, act: &Act) -> bool {
        let world = self.world.clone();
        let partition = PartitionId((act.target as u32) % world.scenario.partitions);
        match act.fault {
            Fault::HubRestart => {
                world.history.tell("the hub restarts");
                let all: Vec<PartitionId> = (0..world.scenario.partitions).map(PartitionId).collect();
                world.cover("HubRestart", &all);
                world.hub.restart();
                return true;
            }
            Fault::LinkCut => {
                world.history.tell(format_args!("the links of {partition:?} are cut"));
                world.cover("LinkCut", &[partition]);
                return world.hub.disconnect(partition).is_ok();
            }
            Fault::Join => {
                let mut host = SimHost::new(&world, self.hosts.len());
                host.start(&world);
                world.cover("Join", &[partition]);
                self.hosts.push(host);
                return true;
            }
            _ => {}
        }
        let running: Vec<usize> = (0..self.hosts.len()).filter(|&i| self.hosts[i].runs()).collect();
        if running.is_empty() {
            return false;
        }
        let number = running[act.target % running.len()];
        let name = self.hosts[number].name.clone();
        world.history.tell(format_args!("{name}: {:?} for {:?}", act.fault, act.lasting));
        world.cover(&format!("{:?}", act.fault), &world.judge.owned_by(&name));
        let host = &mut self.hosts[number];
        let undo = match act.fault {
            Fault::Crash => {
                host.crash(&world);
                Undo::Start
            }
            Fault::Restart => {
                host.stop(&world);
                Undo::Start
            }
            Fault::Pause => {
                world.handle.pause(host.machine);
                Undo::Resume
            }
            Fault::Leave => {
                // Somebody has to stay.
                if running.len() > 1 {
                    host.stop(&world);
                    host.gone = true;
                }
                return running.len() > 1;
            }
            Fault::StoreTrouble => {
                set(&host.store, store_trouble());
                if act.target.is_multiple_of(2) { Undo::Store } else { Undo::StoreCutOff }
            }
            Fault::StoreCutOff => {
                set(&host.store, StoreFaults::cut_off());
                Undo::Store
            }
            Fault::HubTrouble => {
                let trouble = SourceFaults {
                    latency: Latency::milliseconds(1, 300),
                    slow: 0.05,
                    unavailable: 0.2,
                    broken_link: 0.1,
                    ..SourceFaults::default()
                };
                set(&host.source, trouble);
                Undo::Source
            }
            Fault::HubCutOff => {
                set(&host.source, SourceFaults::cut_off());
                Undo::Source
            }
            Fault::SlowProcessor => {
                let slow = ProcessorFaults { call: Duration::from_secs(40), ..good_day(&world.scenario) };
                set(&host.processor, slow);
                Undo::Processor
            }
            Fault::FailingProcessor => {
                let failing = ProcessorFaults {
                    fail: 0.3,
                    panic: 0.1,
                    open_fails: 0.3,
                    close_fails: 0.2,
                    ..good_day(&world.scenario)
                };
                set(&host.processor, failing);
                Undo::Processor
            }
            Fault::HubRestart | Fault::LinkCut | Fault::Join => unreachable!("handled above"),
        };
        self.later(act.lasting, number, undo);
        true
    }

    /// Ends all trouble at once.
    fn heal(&mut self) {
        let world = self.world.clone();
        world.history.tell("all trouble ends");
        self.pending.clear();
        for host in &mut self.hosts {
            world.handle.resume(host.machine);
            set(&host.store, StoreFaults::default());
            set(&host.source, SourceFaults::default());
            set(&host.processor, good_day(&world.scenario));
            host.start(&world);
        }
    }

    /// After the trouble: everything owned, evenly, finished, and nothing moves any more.
    fn judge_rest(&mut self) {
        let judge = self.world.judge.clone();
        let alive: Vec<String> =
            self.hosts.iter().filter(|host| host.runs()).map(|host| host.name.clone()).collect();
        judge.closes_the_case(&self.world.hub.ends(), &alive);
        let before = self.scans();
        let rest = self.world.handle.now();
        self.executor.run_for(STILL);
        if judge.last_change() > rest {
            judge.object(None, "something moved although nothing had happened".into());
        }
        for (host, (before, after)) in before.iter().zip(self.scans()).enumerate() {
            if before.is_some() && after <= *before {
                judge.object(None, format!("the loop of host-{host} has died"));
            }
        }
    }

    fn scans(&self) -> Vec<Option<u64>> {
        self.hosts.iter().map(|host| Some(host.process.as_ref()?.snapshot()?.scans)).collect()
    }

    fn outcome(self, acts: usize) -> Outcome {
        let coverage = self.world.coverage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Outcome {
            violation: self.world.judge.violation(),
            history: self.world.history.clone(),
            steps: self.world.handle.fingerprint(),
            figures: self.world.judge.figures(),
            coverage,
            acts,
        }
    }
}

/// A store that does everything a store should not do.
fn store_trouble() -> StoreFaults {
    StoreFaults {
        latency: Latency::milliseconds(1, 800),
        slow: 0.05,
        slow_answer: 0.2,
        lost_request: 0.05,
        lost_response: 0.08,
        error_before: 0.08,
        error_after: 0.08,
        conflict: 0.1,
        lost_notification: 0.3,
        ..StoreFaults::default()
    }
}
