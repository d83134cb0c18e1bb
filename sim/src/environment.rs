//! The environment of a simulated host: its machine's clock, tasks on its machine, and random numbers of its
//! own.

use std::sync::{Mutex, PoisonError};

use ephor::environment::{Environment, TaskHandle};
use ephor_core::BoxFuture;
use ephor_core::time::{Clock, Monotonic, Timestamp};
use fastrand::Rng;

use crate::executor::{Handle, Machine};

/// The environment of one generation of a machine, up to its next crash. After the crash it starts nothing
/// any more; ask [`Handle::environment`] for the next one.
#[derive(Debug)]
pub struct SimEnvironment {
    handle: Handle,
    machine: Machine,
    generation: u32,
    random: Mutex<Rng>,
}

impl SimEnvironment {
    pub(crate) fn new(handle: Handle, machine: Machine, generation: u32, random: Rng) -> Self {
        Self { handle, machine, generation, random: Mutex::new(random) }
    }

    /// The machine that this is the environment of.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The number of crashes of the machine before this generation.
    pub fn generation(&self) -> u32 {
        self.generation
    }
}

impl Clock for SimEnvironment {
    fn now(&self) -> Monotonic {
        self.handle.clock_of(self.machine).read(self.handle.now())
    }

    fn wall(&self) -> Timestamp {
        self.handle.clock_of(self.machine).wall(self.handle.now())
    }
}

impl Environment for SimEnvironment {
    fn sleep_until(&self, at: Monotonic) -> BoxFuture<'static, ()> {
        Box::pin(self.handle.sleep_until_on(self.machine, at))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> TaskHandle {
        let task = self.handle.spawn_in_generation(self.machine, self.generation, task);
        TaskHandle::new(move || task.abort())
    }

    fn random(&self) -> u64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).u64(..)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::clock::{FIRST_DAY, MachineClock};
    use crate::executor::Executor;

    const SECOND: Duration = Duration::from_secs(1);

    /// Counts up every second by the machine's clock.
    async fn tick(environment: Arc<SimEnvironment>, ticks: Arc<AtomicU64>) {
        loop {
            environment.sleep_until(environment.now() + SECOND).await;
            ticks.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_machine_sleeps_by_its_own_clock() {
        let mut executor = Executor::new(1);
        let clock = MachineClock::new(Duration::from_secs(1_000), 1_000_000);
        let machine = executor.add_machine_with("fast", clock);
        let environment = Arc::new(executor.environment(machine));
        let ticks = Arc::new(AtomicU64::new(0));
        let _task = environment.spawn(Box::pin(tick(environment.clone(), ticks.clone())));
        executor.run_for(5 * SECOND);
        assert_eq!(ticks.load(Ordering::Relaxed), 10);
        assert_eq!(environment.now(), Monotonic(0) + 1_010 * SECOND);
        assert_eq!(environment.wall(), FIRST_DAY + 10 * SECOND);
        assert_eq!(executor.clock(machine).now(), environment.now());
        assert_eq!(executor.clock(Machine::WORLD).wall(), FIRST_DAY + 5 * SECOND);
    }

    #[test]
    fn a_changed_clock_wakes_those_whose_time_has_come() {
        let mut executor = Executor::new(1);
        let machine = executor.add_machine("jumpy");
        let environment = executor.environment(machine);
        let sleeper =
            |seconds| executor.spawn_on(machine, environment.sleep_until(Monotonic(0) + seconds * SECOND));
        let (soon, late) = (sleeper(60), sleeper(600));
        executor.run_for(SECOND);
        executor.change_clock(machine, |clock, now| clock.jump(now, 60 * SECOND));
        executor.run_for(Duration::ZERO);
        assert!(soon.is_finished() && !late.is_finished());
        executor.change_clock(machine, |clock, now| clock.run_at(now, 9_000_000));
        executor.run_for(53 * SECOND);
        assert!(!late.is_finished());
        executor.run_for(SECOND);
        assert!(late.is_finished());
    }

    #[test]
    fn a_dropped_handle_ends_its_task() {
        let mut executor = Executor::new(1);
        let machine = executor.add_machine("host");
        let environment = Arc::new(executor.environment(machine));
        let ticks = Arc::new(AtomicU64::new(0));
        let task = environment.spawn(Box::pin(tick(environment.clone(), ticks.clone())));
        executor.run_for(3 * SECOND);
        drop(task);
        executor.run_for(3 * SECOND);
        assert_eq!(ticks.load(Ordering::Relaxed), 3);
        assert_eq!((executor.tasks(), executor.timers()), (0, 0));
    }

    #[test]
    fn every_generation_has_its_own_random_numbers_and_a_seed_repeats_them() {
        let draws = |seed| {
            let executor = Executor::new(seed);
            let machine = executor.add_machine("host");
            let first = executor.environment(machine);
            executor.crash(machine);
            let second = executor.environment(machine);
            assert_eq!((first.generation(), second.generation(), second.machine()), (0, 1, machine));
            [first.random(), first.random(), second.random(), second.random()]
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        let all: std::collections::BTreeSet<u64> = draws(7).into_iter().collect();
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn a_dead_process_starts_nothing() {
        let mut executor = Executor::new(1);
        let machine = executor.add_machine("host");
        let old = Arc::new(executor.environment(machine));
        executor.crash(machine);
        let ticks = Arc::new(AtomicU64::new(0));
        let _late = old.spawn(Box::pin(tick(old.clone(), ticks.clone())));
        let new = Arc::new(executor.environment(machine));
        let _task = new.spawn(Box::pin(tick(new.clone(), ticks.clone())));
        executor.run_for(4 * SECOND);
        assert_eq!(ticks.load(Ordering::Relaxed), 4);
    }
}
