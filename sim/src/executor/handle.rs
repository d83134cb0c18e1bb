//! The handle of the simulation's executor: spawns tasks, sleeps, pauses and crashes machines, and changes
//! their clocks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::time::Monotonic;
use fastrand::Rng;

use super::Machine;
use super::sleep::Sleep;
use super::state::{Generation, Shared, TaskId};
use crate::clock::{MachineClock, SimClock};
use crate::environment::SimEnvironment;
use crate::fingerprint::Fingerprint;

/// A handle of an executor. Clones refer to the same one.
#[derive(Clone)]
pub struct Handle(pub(super) Arc<Shared>);

impl Handle {
    /// The virtual time: the same for all machines, and no machine's clock.
    pub fn now(&self) -> Monotonic {
        self.0.now()
    }

    /// A new stream of random numbers, derived from the seed. The order of calls matters.
    pub fn fork_random(&self) -> Rng {
        self.0.lock().roots.fork()
    }

    /// A new machine whose clock is right.
    pub fn add_machine(&self, name: &str) -> Machine {
        self.add_machine_with(name, MachineClock::default())
    }

    /// A new machine with this clock.
    pub fn add_machine_with(&self, name: &str, clock: MachineClock) -> Machine {
        self.0.lock().add_machine(name, clock)
    }

    /// The name of a machine.
    pub fn name_of(&self, machine: Machine) -> String {
        self.0.lock().machine(machine).name.clone()
    }

    /// The environment of the present generation of a machine.
    pub fn environment(&self, machine: Machine) -> SimEnvironment {
        let (generation, random) = {
            let mut state = self.0.lock();
            (state.machine(machine).generation, state.roots.fork())
        };
        SimEnvironment::new(self.clone(), machine, generation, random)
    }

    /// The clock of a machine.
    pub fn clock(&self, machine: Machine) -> SimClock {
        SimClock::new(self.clone(), machine)
    }

    /// The relation of a machine's clock to virtual time.
    pub fn clock_of(&self, machine: Machine) -> MachineClock {
        self.0.lock().machine(machine).clock
    }

    /// Changes a machine's clock, as of the virtual time that is passed with it.
    pub fn change_clock(&self, machine: Machine, change: impl FnOnce(&mut MachineClock, Monotonic)) {
        let now = self.now();
        let mut clock = self.clock_of(machine);
        change(&mut clock, now);
        let timers = {
            let mut state = self.0.lock();
            state.machine(machine).clock = clock;
            state.take_timers_of(machine)
        };
        // Each sleeper reads its clock again, and sleeps on or not.
        timers.into_iter().for_each(|timer| timer.waker.wake());
    }

    /// Starts a task on a machine. It goes on if the [`Task`] is dropped.
    pub fn spawn_on(&self, machine: Machine, future: impl Future<Output = ()> + Send + 'static) -> Task {
        self.spawn(machine, Generation::Current, Box::pin(future))
    }

    /// Starts a task in one generation of a machine. A task of a crashed process never runs.
    pub(crate) fn spawn_in_generation(
        &self,
        machine: Machine,
        generation: u32,
        future: BoxFuture<'static, ()>,
    ) -> Task {
        self.spawn(machine, Generation::Only(generation), future)
    }

    fn spawn(&self, machine: Machine, generation: Generation, future: BoxFuture<'static, ()>) -> Task {
        Task { handle: self.clone(), id: self.0.spawn(machine, generation, future).ok() }
    }

    /// Completes after this long, in virtual time.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Completes at this virtual time.
    pub fn sleep_until(&self, at: Monotonic) -> Sleep {
        Sleep::new(self.clone(), None, at)
    }

    /// Completes when the machine's own clock reads at least this.
    pub fn sleep_until_on(&self, machine: Machine, at: Monotonic) -> Sleep {
        Sleep::new(self.clone(), Some(machine), at)
    }

    /// Stops polling the machine's tasks, from the next poll on.
    pub fn pause(&self, machine: Machine) {
        assert_ne!(machine, Machine::WORLD, "the world does not pause");
        self.0.lock().pause(machine);
    }

    /// Resumes a paused machine. Its timers that fired meanwhile take effect.
    pub fn resume(&self, machine: Machine) {
        self.0.lock().resume(machine);
    }

    /// True if a machine is paused.
    pub fn is_paused(&self, machine: Machine) -> bool {
        self.0.lock().machine(machine).paused
    }

    /// Drops all tasks of a machine, oldest first. Tasks that its old environment starts from now on never
    /// run; a new generation begins with the next [`Handle::environment`].
    pub fn crash(&self, machine: Machine) {
        assert_ne!(machine, Machine::WORLD, "the world does not crash");
        let lost = self.0.lock().crash(machine);
        drop(lost);
    }

    /// Blocks the thread of the calling task for this long: as soon as it returns from its poll it is neither
    /// polled nor dropped until then, unless its machine crashes.
    pub fn block(&self, duration: Duration) {
        let until = self.now() + duration;
        self.0.lock().block_current(until);
    }

    /// The number of tasks.
    pub fn tasks(&self) -> usize {
        self.0.lock().tasks.len()
    }

    /// The number of timers.
    pub fn timers(&self) -> usize {
        self.0.lock().timers.len()
    }

    /// The number of polls so far.
    pub fn polls(&self) -> u64 {
        self.0.lock().polls
    }

    /// The fingerprint of all polls and their times: two runs with the same one were the same run.
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.lock().fingerprint
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle(at {:?})", self.now())
    }
}

/// A task on an executor.
#[derive(Clone, Debug)]
pub struct Task {
    handle: Handle,
    /// `None` if it was never started, because its machine had crashed.
    id: Option<TaskId>,
}

impl Task {
    /// Ends the task at its next await; the future is dropped when the task is scheduled next.
    pub fn abort(&self) {
        let waker = self.id.and_then(|id| self.handle.0.lock().abort(id));
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// True if the task is gone: done, aborted and dropped, or crashed.
    pub fn is_finished(&self) -> bool {
        self.id.is_none_or(|id| !self.handle.0.lock().tasks.contains_key(&id))
    }
}
