//! The state of the executor: tasks, machines, timers, and the tasks that are ready.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use ephor_core::BoxFuture;
use ephor_core::time::Monotonic;
use fastrand::Rng;

use super::{MAX_POLLS_PER_INSTANT, Machine};
use crate::clock::MachineClock;
use crate::fingerprint::Fingerprint;

/// The number of a task, in the order in which tasks were spawned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskId(u64);

type TaskFuture = BoxFuture<'static, ()>;

/// The state that handles share.
pub(super) struct Shared {
    state: Mutex<State>,
    woken: Arc<Woken>,
    now: AtomicU64,
    /// True once the executor is gone: nothing is spawned any more.
    pub(super) closed: AtomicBool,
}

impl Shared {
    pub(super) fn new(seed: u64) -> Self {
        let woken = Arc::new(Woken::default());
        let state = Mutex::new(State::new(seed, woken.clone()));
        Self { state, woken, now: AtomicU64::new(0), closed: AtomicBool::new(false) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Only the executor's own code runs under the lock; after its panic (a busy loop) tasks still drop.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Monotonic {
        Monotonic(self.now.load(Ordering::Relaxed))
    }

    pub(super) fn set_now(&self, now: Monotonic) {
        self.now.store(now.0, Ordering::Relaxed);
    }

    /// Adds a task to this generation of a machine, or returns the future of one that comes too late: the
    /// caller drops it without the lock.
    pub(super) fn spawn(
        &self,
        machine: Machine,
        generation: Generation,
        future: TaskFuture,
    ) -> Result<TaskId, TaskFuture> {
        let mut state = self.lock();
        let current = state.machine(machine).generation;
        let stale = matches!(generation, Generation::Only(number) if number != current);
        if stale || self.closed.load(Ordering::Relaxed) {
            return Err(future);
        }
        let id = TaskId(state.next_task);
        state.next_task += 1;
        let wake = Arc::new(TaskWaker { id, queued: AtomicBool::new(false), woken: self.woken.clone() });
        wake.wake_by_ref();
        let waker = Waker::from(wake.clone());
        let task =
            TaskEntry { machine, future: Some(future), wake, waker, aborted: false, blocked_until: None };
        state.tasks.insert(id, task);
        Ok(id)
    }
}

/// The generation of a machine that a task belongs to: it ends with a crash.
#[derive(Clone, Copy)]
pub(super) enum Generation {
    Current,
    Only(u32),
}

/// The tasks that were woken since the executor last checked.
#[derive(Default)]
struct Woken(Mutex<Vec<TaskId>>);

struct TaskWaker {
    id: TaskId,
    /// True if it is queued already.
    queued: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.woken.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
        }
    }
}

pub(super) struct TaskEntry {
    machine: Machine,
    /// `None` while it is polled.
    future: Option<TaskFuture>,
    wake: Arc<TaskWaker>,
    waker: Waker,
    aborted: bool,
    /// The time until which it blocks its thread: only a crash drops it before.
    blocked_until: Option<Monotonic>,
}

pub(super) struct MachineState {
    pub(super) name: String,
    /// Grows with every crash.
    pub(super) generation: u32,
    pub(super) paused: bool,
    pub(super) clock: MachineClock,
    /// Tasks that were woken while it is paused.
    parked: Vec<TaskId>,
    /// The number of polls at one instant, and that instant.
    polls: (Monotonic, u64),
}

pub(super) struct Timer {
    /// The machine whose clock it uses; virtual time if `None`.
    pub(super) machine: Option<Machine>,
    pub(super) waker: Waker,
}

/// The time at which a timer is due, and a number that separates timers due at the same time.
pub(super) type TimerKey = (Monotonic, u64);

pub(super) struct State {
    /// Picks the task that runs next.
    picks: Rng,
    /// The root of every other random stream.
    pub(super) roots: Rng,
    pub(super) tasks: BTreeMap<TaskId, TaskEntry>,
    /// A map and not a heap: most timers are timeouts that never fire, and are removed when their sleep is
    /// dropped.
    pub(super) timers: BTreeMap<TimerKey, Timer>,
    pub(super) machines: Vec<MachineState>,
    pub(super) max_polls: u64,
    pub(super) polls: u64,
    pub(super) fingerprint: Fingerprint,
    ready: Vec<TaskId>,
    woken: Arc<Woken>,
    /// A buffer, emptied and refilled at every step.
    batch: Vec<TaskId>,
    polls_now: (Monotonic, u64),
    /// The task that is being polled.
    current: Option<TaskId>,
    next_task: u64,
    next_timer: u64,
}

/// The next step of the executor.
pub(super) enum Next {
    Nothing,
    Poll { id: TaskId, future: TaskFuture, waker: Waker },
    Drop(TaskEntry),
}

impl State {
    fn new(seed: u64, woken: Arc<Woken>) -> Self {
        let mut roots = Rng::with_seed(seed);
        let mut state = Self {
            picks: roots.fork(),
            roots,
            tasks: BTreeMap::new(),
            timers: BTreeMap::new(),
            machines: Vec::new(),
            max_polls: MAX_POLLS_PER_INSTANT,
            polls: 0,
            fingerprint: Fingerprint::default(),
            ready: Vec::new(),
            woken,
            batch: Vec::new(),
            polls_now: (Monotonic(0), 0),
            current: None,
            next_task: 0,
            next_timer: 0,
        };
        state.add_machine("world", MachineClock::default());
        state
    }

    pub(super) fn add_machine(&mut self, name: &str, clock: MachineClock) -> Machine {
        let id = u32::try_from(self.machines.len()).expect("fewer machines than that");
        self.machines.push(MachineState {
            name: name.to_owned(),
            generation: 0,
            paused: false,
            clock,
            parked: Vec::new(),
            polls: (Monotonic(0), 0),
        });
        Machine(id)
    }

    pub(super) fn machine(&mut self, machine: Machine) -> &mut MachineState {
        &mut self.machines[machine.0 as usize]
    }

    /// Picks the next task to run.
    pub(super) fn next(&mut self, now: Monotonic) -> Next {
        self.gather();
        while !self.ready.is_empty() {
            let index = self.picks.usize(..self.ready.len());
            let id = self.ready.swap_remove(index);
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            if task.blocked_until.is_some_and(|until| now < until) {
                // The timer of the block wakes it, even if it misses other wakes meanwhile.
                task.wake.queued.store(false, Ordering::Relaxed);
                continue;
            }
            if task.aborted {
                return self.tasks.remove(&id).map_or(Next::Nothing, Next::Drop);
            }
            let Some(future) = task.future.take() else { continue };
            task.wake.queued.store(false, Ordering::Relaxed);
            let (waker, machine) = (task.waker.clone(), task.machine);
            self.count(id, machine, now);
            self.current = Some(id);
            return Next::Poll { id, future, waker };
        }
        Next::Nothing
    }

    /// Sorts the woken tasks into ready and parked.
    fn gather(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        std::mem::swap(&mut batch, &mut *self.woken.0.lock().unwrap_or_else(PoisonError::into_inner));
        // Some primitives wake their waiters in a random order of their own (tokio's watch channel among
        // them). The set of woken tasks is certain.
        batch.sort_unstable();
        for id in batch.drain(..) {
            let Some(task) = self.tasks.get(&id) else { continue };
            let machine = &mut self.machines[task.machine.0 as usize];
            if machine.paused { machine.parked.push(id) } else { self.ready.push(id) }
        }
        self.batch = batch;
    }

    fn count(&mut self, id: TaskId, machine: Machine, now: Monotonic) {
        self.polls += 1;
        self.fingerprint.add(&now.0.to_le_bytes());
        self.fingerprint.add(&id.0.to_le_bytes());
        count_poll(&mut self.machine(machine).polls, now);
        if count_poll(&mut self.polls_now, now) > self.max_polls {
            let here = self.machines.iter().filter(|machine| machine.polls.0 == now);
            let (name, polls) =
                here.map(|m| (m.name.clone(), m.polls.1)).max_by_key(|(_, polls)| *polls).expect("one has");
            panic!("busy loop on {name}: {polls} polls at {now:?}");
        }
    }

    /// Puts the future of a pending task back. Returns it if the task is gone.
    pub(super) fn put_back(&mut self, id: TaskId, future: TaskFuture) -> Option<TaskFuture> {
        match self.tasks.get_mut(&id) {
            Some(task) => {
                task.future = Some(future);
                None
            }
            None => Some(future),
        }
    }

    pub(super) fn remove(&mut self, id: TaskId) -> Option<TaskEntry> {
        self.tasks.remove(&id)
    }

    /// Marks a task as aborted. It is dropped when it is scheduled next, as a runtime does it: the caller
    /// cannot know how soon that is.
    pub(super) fn abort(&mut self, id: TaskId) -> Option<Waker> {
        let task = self.tasks.get_mut(&id)?;
        task.aborted = true;
        Some(task.waker.clone())
    }

    /// Keeps the task that is polled now from being polled again before `until`.
    pub(super) fn block_current(&mut self, until: Monotonic) {
        let Some(task) = self.current.and_then(|id| self.tasks.get_mut(&id)) else { return };
        task.blocked_until = Some(until);
        let waker = task.waker.clone();
        self.set_timer(until, Timer { machine: None, waker });
    }

    pub(super) fn pause(&mut self, machine: Machine) {
        self.machine(machine).paused = true;
        let (parked, ready): (Vec<_>, Vec<_>) = std::mem::take(&mut self.ready)
            .into_iter()
            .partition(|id| self.tasks.get(id).is_some_and(|task| task.machine == machine));
        self.ready = ready;
        self.machine(machine).parked.extend(parked);
    }

    pub(super) fn resume(&mut self, machine: Machine) {
        let state = self.machine(machine);
        state.paused = false;
        let parked = std::mem::take(&mut state.parked);
        self.ready.extend(parked);
    }

    /// Ends this generation of a machine. Returns its tasks, oldest first.
    pub(super) fn crash(&mut self, machine: Machine) -> Vec<TaskEntry> {
        let state = self.machine(machine);
        state.generation += 1;
        state.paused = false;
        state.parked.clear();
        let lost =
            self.tasks.extract_if(.., |_, task| task.machine == machine).map(|(_, task)| task).collect();
        self.ready.retain(|id| self.tasks.contains_key(id));
        lost
    }

    pub(super) fn set_timer(&mut self, at: Monotonic, timer: Timer) -> TimerKey {
        let key = (at, self.next_timer);
        self.next_timer += 1;
        self.timers.insert(key, timer);
        key
    }

    /// Takes out all timers of the next instant at which any is due.
    pub(super) fn take_due(&mut self, limit: Monotonic) -> Option<(Monotonic, Vec<Timer>)> {
        let at = self.timers.first_key_value().map(|((at, _), _)| *at).filter(|at| *at <= limit)?;
        let mut due = Vec::new();
        while let Some(first) = self.timers.first_entry().filter(|first| first.key().0 == at) {
            due.push(first.remove());
        }
        Some((at, due))
    }

    /// Takes out all timers that use this machine's clock, to be set again.
    pub(super) fn take_timers_of(&mut self, machine: Machine) -> Vec<Timer> {
        let theirs = self.timers.extract_if(.., |_, timer| timer.machine == Some(machine));
        theirs.map(|(_, timer)| timer).collect()
    }
}

/// Counts one more poll at this instant.
fn count_poll(count: &mut (Monotonic, u64), now: Monotonic) -> u64 {
    if count.0 != now {
        *count = (now, 0);
    }
    count.1 += 1;
    count.1
}
