//! Measures fleets of real hosts on virtual time, with a store a few milliseconds away and a hub in memory.
//! One fleet goes through all changes but the slow start, which a second fleet plays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor::environment::Environment;
use ephor::memory::{MemoryHub, MemoryStore, StoreEvent};
use ephor::{BoxError, Event, EventProcessor, EventProcessorHost, PartitionContext};
use ephor_core::ids::PartitionId;
use ephor_core::time::Monotonic;

use super::fleet_changes::{Change, Size, fewest, is_even, slow_start};
use super::store::{CallLog, MeteredStore};
use crate::executor::{Executor, Handle, Machine};

/// A fleet rests when nothing has changed for this long: several slow scans.
const STILL_TIME: Duration = Duration::from_secs(30);
/// The longest time to come to rest.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// The time after a change in which store calls are counted.
pub const MINUTE: Duration = Duration::from_secs(60);
/// The time for which a fleet at rest is watched.
const AT_REST: Duration = Duration::from_secs(300);
/// The time that a stop may take.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// Store calls by their names, with the number of hosts and the time that they spread over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// The number of calls by name.
    pub by_kind: BTreeMap<&'static str, u64>,
    /// The number of hosts that called.
    pub hosts: usize,
    /// The time in which they called.
    pub over: Duration,
}

impl Calls {
    /// The rate of one kind, per host and minute.
    pub fn rate(&self, kind: &str) -> f64 {
        let minutes = self.over.as_secs_f64() / 60.0 * self.hosts as f64;
        self.by_kind.get(kind).copied().unwrap_or(0) as f64 / minutes.max(f64::MIN_POSITIVE)
    }

    /// The rate of all kinds, per host and minute.
    pub fn rate_of_all(&self) -> f64 {
        self.by_kind.keys().map(|kind| self.rate(kind)).sum()
    }
}

/// The cost of one change.
#[derive(Clone, Debug, PartialEq)]
pub struct Settling {
    /// The change.
    pub change: Change,
    /// The time from the change until every partition was read by its last owner.
    pub after: Duration,
    /// The average number of scans of a host until then.
    pub scans: f64,
    /// The number of changes of owner.
    pub moves: usize,
    /// The fewest that were needed.
    pub fewest: usize,
    /// The number of claims that came too late.
    pub claims_lost: u64,
    /// The store calls in [`MINUTE`] after the change.
    pub calls: Calls,
}

/// The results of one fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Whole {
    /// Its size.
    pub size: Size,
    /// True if the store can notify hosts.
    pub wakes: bool,
    /// Its store calls at rest.
    pub rest: Calls,
    /// Changes, in the order in which they were played.
    pub changes: Vec<Settling>,
}

/// Plays one fleet through all changes. Panics if it does not come to rest.
pub fn play(size: Size, wakes: bool, seed: u64) -> Whole {
    let mut fleet = Fleet::new(size, wakes, seed);
    let mut changes = vec![fleet.settle(Change::ColdStart)];
    let rest = fleet.rest();
    for change in Change::LATER {
        changes.push(fleet.settle(change));
    }
    changes.push(Fleet::new(size, wakes, seed).settle(Change::SlowStart));
    Whole { size, wakes, rest, changes }
}

/// The owners and readers of partitions, as the store and the processors report them.
#[derive(Debug, Default)]
struct Notes {
    owners: BTreeMap<PartitionId, String>,
    readers: BTreeMap<PartitionId, String>,
    moves: usize,
    last: Monotonic,
}

type Shared<T> = Arc<Mutex<T>>;

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A processor that notes when it begins to read, and does nothing else.
struct Reader {
    handle: Handle,
    notes: Shared<Notes>,
}

impl EventProcessor for Reader {
    async fn open(&mut self, context: &PartitionContext) -> Result<(), BoxError> {
        let mut notes = lock(&self.notes);
        notes.readers.insert(context.partition(), context.host().name.to_string());
        notes.last = self.handle.now();
        Ok(())
    }

    async fn process_events(&mut self, _: &PartitionContext, _: &[Event]) -> Result<(), BoxError> {
        Ok(())
    }
}

struct Host {
    name: String,
    machine: Machine,
    process: Option<Arc<EventProcessorHost>>,
}

struct Fleet {
    size: Size,
    executor: Executor,
    hub: MemoryHub,
    store: MemoryStore,
    log: Shared<CallLog>,
    notes: Shared<Notes>,
    hosts: Vec<Host>,
}

impl Fleet {
    fn new(size: Size, wakes: bool, seed: u64) -> Self {
        let executor = Executor::new(seed);
        let handle = (*executor).clone();
        let clock = Arc::new(handle.clock(Machine::WORLD));
        let partitions = u32::try_from(size.partitions).expect("a hub has fewer partitions");
        let hub = MemoryHub::new("homes", partitions).expect("a valid name").with_clock(clock.clone());
        for partition in (0..partitions).map(PartitionId) {
            // An event to finish, so that a close has a checkpoint to save.
            hub.send(partition, "an event").expect("the partition exists");
        }
        let notes: Shared<Notes> = Arc::default();
        let (noted, time) = (notes.clone(), handle);
        let store = MemoryStore::new(clock).with_observer(Arc::new(move |_, event| {
            if let StoreEvent::Changed { change, .. } = event {
                let mut notes = lock(&noted);
                notes.last = time.now();
                match &change.to {
                    Some(owner) => {
                        notes.moves += 1;
                        notes.owners.insert(change.partition, owner.name.to_string())
                    }
                    None => notes.owners.remove(&change.partition),
                };
            }
        }));
        let store = if wakes { store } else { store.without_wakes() };
        Self { size, executor, hub, store, log: Arc::default(), notes, hosts: vec![] }
    }

    /// Adds a host and starts it.
    fn start(&mut self) {
        let handle = (*self.executor).clone();
        let number = self.hosts.len();
        let name = format!("host-{number:04}");
        let machine = handle.add_machine(&name);
        let environment: Arc<dyn Environment> = Arc::new(handle.environment(machine));
        let store = MeteredStore::new(&handle, &self.store, number, &self.log);
        let (notes, time) = (self.notes.clone(), handle.clone());
        let built = EventProcessorHost::builder(self.hub.clone(), store)
            .host_name(name.clone())
            .environment(environment)
            .processor(move |_| Reader { handle: time.clone(), notes: notes.clone() });
        let process = Arc::new(built.expect("a valid name, and options as they come"));
        self.hosts.push(Host { name, machine, process: Some(process.clone()) });
        handle.spawn_on(machine, async move {
            process.start().await.expect("the hub is there");
        });
    }

    /// Starts all hosts, each at its own time.
    fn start_slowly(&mut self) {
        let begin = self.executor.now();
        for moment in slow_start(self.size.hosts, &mut self.executor.fork_random()) {
            self.executor.run_until(begin + moment);
            self.start();
        }
    }

    /// Stops the oldest running host gracefully.
    fn stop(&mut self) {
        let host = self.hosts.iter_mut().find(|host| host.process.is_some()).expect("one runs");
        let process = host.process.take().expect("it runs");
        self.executor.spawn_on(host.machine, async move {
            let report = process.stop(STOP_WITHIN).await.expect("it runs");
            assert!(report.is_clean(), "{report}");
        });
    }

    /// Crashes the oldest running hosts.
    fn crash(&mut self, count: usize) {
        for host in self.hosts.iter_mut().filter(|host| host.process.is_some()).take(count) {
            self.executor.crash(host.machine);
            host.process = None;
        }
    }

    /// The number of partitions of each running host.
    fn held(&self) -> Vec<usize> {
        let notes = lock(&self.notes);
        let mut held: BTreeMap<&str, usize> = BTreeMap::new();
        for owner in notes.owners.values() {
            *held.entry(owner).or_default() += 1;
        }
        let running = self.hosts.iter().filter(|host| host.process.is_some());
        running.map(|host| held.get(host.name.as_str()).copied().unwrap_or(0)).collect()
    }

    fn is_balanced(&self) -> bool {
        let even = is_even(&self.held(), self.size.partitions);
        let notes = lock(&self.notes);
        even && notes.owners == notes.readers && self.executor.now().since(notes.last) >= STILL_TIME
    }

    /// Makes a change, and waits until the fleet rests.
    fn settle(&mut self, change: Change) -> Settling {
        let start = self.executor.now();
        *lock(&self.log) = CallLog::default();
        lock(&self.notes).moves = 0;
        match change {
            Change::ColdStart => (0..self.size.hosts).for_each(|_| self.start()),
            Change::Join => self.start(),
            Change::TenthJoins => (0..self.size.tenth()).for_each(|_| self.start()),
            Change::SlowStart => self.start_slowly(),
            Change::Stop => self.stop(),
            Change::Crash => self.crash(1),
            Change::TenthCrashes => self.crash(self.size.tenth()),
        }
        let fewest = match change {
            Change::ColdStart | Change::SlowStart => self.size.partitions,
            _ => fewest(&self.held(), self.size.partitions),
        };
        while !self.is_balanced() || self.executor.now().since(start) < MINUTE {
            assert!(self.executor.now().since(start) < MAX_WAIT, "{}: {change}: no rest", self.size);
            self.executor.run_for(Duration::from_secs(1));
        }
        let (moves, last) = {
            let notes = lock(&self.notes);
            (notes.moves, notes.last)
        };
        let calls = self.calls(start, start + MINUTE);
        let running = self.hosts.iter().filter(|host| host.process.is_some()).count();
        let scans = self.calls(start, last).by_kind.get("view").copied().unwrap_or(0) as f64 / running as f64;
        let claims_lost = lock(&self.log).claims_lost;
        Settling { change, after: last.since(start), scans, moves, fewest, claims_lost, calls }
    }

    /// The store calls of a fleet at rest.
    fn rest(&mut self) -> Calls {
        let (start, moves) = (self.executor.now(), lock(&self.notes).moves);
        *lock(&self.log) = CallLog::default();
        self.executor.run_for(AT_REST);
        assert_eq!(lock(&self.notes).moves, moves, "{}: something moves at rest", self.size);
        self.calls(start, self.executor.now())
    }

    /// The store calls in a period.
    fn calls(&self, from: Monotonic, to: Monotonic) -> Calls {
        let log = lock(&self.log);
        let mut calls = Calls { over: to.since(from), ..Calls::default() };
        let mut hosts = BTreeSet::new();
        for call in log.calls.iter().filter(|call| (from..=to).contains(&call.at)) {
            *calls.by_kind.entry(call.kind).or_default() += 1;
            hosts.insert(call.host);
        }
        calls.hosts = hosts.len();
        calls
    }
}
