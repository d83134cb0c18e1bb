//! Runs fuzz inputs on all CPU cores, up to a number of inputs or an amount of CPU time.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor_core::time::{Clock, Monotonic};
use ephor_fuzz::{Target, corpus, gateway, mutate, turn};
use ephor_runtime::environment::SystemClock;
use rustix::time::{ClockId, clock_gettime};

/// The number of cases after which the gateway is checked.
const ROUND: u64 = 1_000;
/// The number of failures after which the run stops.
const ENOUGH_FAILURES: usize = 10;
/// The maximum wall time, as a multiple of the CPU time: other programs may take the CPU.
const MAX_WALL_TIMES: u32 = 8;
/// The number of conversations on each core at a time: each of them waits for answers most of the time.
const CONVERSATIONS_PER_CORE: usize = 8;
/// The interval between two progress reports.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// The limit of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Cases(u64),
    /// CPU time on all cores together.
    Cpu(Duration),
}

/// The result of a run.
pub(crate) struct Played {
    pub(crate) cases: u64,
    pub(crate) rounds: u64,
    pub(crate) failures: usize,
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

/// State that all workers share.
struct Play {
    targets: Vec<Target>,
    /// The inputs of each target.
    corpus: Vec<Vec<Vec<u8>>>,
    limit: Limit,
    from: u64,
    next: AtomicU64,
    begun: (Monotonic, Duration),
    rounds: AtomicU64,
    played: AtomicU64,
    failures: Mutex<Vec<String>>,
}

/// Runs these targets, from this case on.
pub(crate) fn play(targets: Vec<Target>, from: u64, limit: Limit) -> Result<Played, String> {
    let play = Play::new(targets, from, limit)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let per_core = if play.targets.iter().all(Target::is_conversation) { CONVERSATIONS_PER_CORE } else { 1 };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores * per_core).map(|_| scope.spawn(|| play.work())).collect();
        let mut shown = Duration::ZERO;
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::park_timeout(Duration::from_millis(50));
            let wall = play.wall();
            if wall >= shown + REPORT_EVERY {
                shown = wall;
                println!(
                    "  {} so far, {:.0} s, {} failures",
                    play.cases(),
                    wall.as_secs_f64(),
                    play.failed()
                );
            }
        }
    });
    Ok(Played {
        cases: play.cases(),
        rounds: play.rounds.load(Ordering::Relaxed),
        failures: play.failed(),
        wall: play.wall(),
        cpu: play.cpu(),
    })
}

/// The CPU time of this process so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl Play {
    fn new(targets: Vec<Target>, from: u64, limit: Limit) -> Result<Self, String> {
        let mut corpus = Vec::new();
        for target in &targets {
            let inputs = corpus::read(target.name)
                .map_err(|error| format!("the corpus of {} cannot be read: {error}", target.name))?;
            corpus.push(inputs.into_iter().map(|(_, bytes)| bytes).collect());
        }
        Ok(Self {
            targets,
            corpus,
            limit,
            from,
            next: AtomicU64::new(from),
            begun: (SystemClock.now(), cpu_time()),
            rounds: AtomicU64::new(0),
            played: AtomicU64::new(0),
            failures: Mutex::default(),
        })
    }

    fn wall(&self) -> Duration {
        SystemClock.now().since(self.begun.0)
    }

    fn cpu(&self) -> Duration {
        cpu_time().saturating_sub(self.begun.1)
    }

    fn cases(&self) -> u64 {
        self.played.load(Ordering::Relaxed)
    }

    /// The end of the round that begins here; none if the limit is reached.
    fn round(&self, first: u64) -> Option<u64> {
        let last = first + ROUND;
        match self.limit {
            Limit::Cases(cases) => Some(last.min(self.from + cases)).filter(|last| *last > first),
            Limit::Cpu(time) => (self.cpu() < time && self.wall() < time * MAX_WALL_TIMES).then_some(last),
        }
    }

    /// Runs one round after the other, until the limit is reached.
    fn work(&self) {
        while self.failed() < ENOUGH_FAILURES {
            let first = self.next.fetch_add(ROUND, Ordering::Relaxed);
            let Some(last) = self.round(first) else { return };
            for case in first..last {
                self.case(case);
            }
            match catch_unwind(gateway::answers) {
                Ok(()) => drop(self.rounds.fetch_add(1, Ordering::Relaxed)),
                Err(_) => self.fail(format!("the gateway does not answer after cases {first} to {last}")),
            }
        }
    }

    fn case(&self, case: u64) {
        let turn = turn(&self.targets, case);
        let target = self.targets[turn];
        let input = mutate::input(&self.corpus[turn], case);
        if catch_unwind(|| (target.run)(&input)).is_err() {
            // With one target a case belongs to another target than with all, so the command names it.
            let alone =
                if self.targets.len() == 1 { format!(" --target {}", target.name) } else { String::new() };
            self.fail(format!("{}: ephor-fuzz --from {case} --cases 1{alone}", target.name));
        }
        self.played.fetch_add(1, Ordering::Relaxed);
    }

    fn fail(&self, what: String) {
        println!("FAILED {what}");
        self.lock().push(what);
    }

    fn failed(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
