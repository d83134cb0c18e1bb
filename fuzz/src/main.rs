//! `ephor-fuzz [--cases N] [--from N] [--target NAME]`: plays random and mutated inputs over all targets.
//!
//! A case is a number: it chooses the target, the input of the corpus and the changes. One that fails is printed with
//! the command that plays it alone.

#![allow(clippy::print_stdout, reason = "a command that prints")]

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ephor_core::time::Clock;
use ephor_fuzz::{TARGETS, Target, corpus, gateway, mutate, turn};

const USAGE: &str = "usage: ephor-fuzz [--cases N] [--from N] [--target NAME]
  --cases N      how many (default 10,000)
  --from N       the first case (default 0)
  --target NAME  one target alone";

/// After so many cases the gateway is asked whether it answers.
const ROUND: u64 = 1_000;
/// More failures are not looked for.
const ENOUGH_FAILURES: usize = 10;

struct Arguments {
    cases: u64,
    from: u64,
    target: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments { cases: 10_000, from: 0, target: None };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
        let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a number\n{USAGE}"));
        match name.as_str() {
            "--cases" => parsed.cases = number(&value)?,
            "--from" => parsed.from = number(&value)?,
            "--target" => parsed.target = Some(value),
            _ => return Err(format!("unknown argument {name:?}\n{USAGE}")),
        }
    }
    Ok(parsed)
}

/// What all workers share.
struct Play {
    targets: Vec<Target>,
    /// The inputs of each.
    corpus: Vec<Vec<Vec<u8>>>,
    next: AtomicU64,
    end: u64,
    rounds: AtomicU64,
    played: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Play {
    fn new(arguments: &Arguments) -> Result<Self, String> {
        let wanted = |target: &Target| arguments.target.as_deref().is_none_or(|name| name == target.name);
        let targets: Vec<_> = TARGETS.into_iter().filter(wanted).collect();
        let mut corpus = Vec::new();
        for target in &targets {
            let inputs = corpus::read(target.name)
                .map_err(|error| format!("the corpus of {} cannot be read: {error}", target.name))?;
            corpus.push(inputs.into_iter().map(|(_, bytes)| bytes).collect());
        }
        if targets.is_empty() {
            return Err(format!("there is no such target\n{USAGE}"));
        }
        Ok(Self {
            targets,
            corpus,
            next: AtomicU64::new(arguments.from),
            end: arguments.from + arguments.cases,
            rounds: AtomicU64::new(0),
            played: AtomicU64::new(0),
            failures: Mutex::default(),
        })
    }

    /// Takes a round after the other, until there are no more.
    fn work(&self) {
        loop {
            let first = self.next.fetch_add(ROUND, Ordering::Relaxed);
            if first >= self.end || self.failed() >= ENOUGH_FAILURES {
                return;
            }
            let last = self.end.min(first + ROUND);
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
            // Without the others, the turns are other ones.
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn main() -> ExitCode {
    let play = match arguments().and_then(|arguments| Play::new(&arguments)) {
        Ok(play) => play,
        Err(wrong) => {
            println!("{wrong}");
            return ExitCode::from(2);
        }
    };
    let clock = ephor::environment::SystemClock;
    let begun = clock.now();
    let total = play.end - play.next.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..std::thread::available_parallelism().map_or(1, usize::from))
            .map(|_| scope.spawn(|| play.work()))
            .collect();
        let mut shown = 0;
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::park_timeout(Duration::from_millis(200));
            let (played, seconds) = (play.played.load(Ordering::Relaxed), clock.now().since(begun).as_secs());
            if seconds >= shown + 10 {
                shown = seconds;
                println!(
                    "{played} of {total} cases, {} a second, {} failures",
                    played / seconds,
                    play.failed()
                );
            }
        }
    });
    let (played, rounds) = (play.played.load(Ordering::Relaxed), play.rounds.load(Ordering::Relaxed));
    let took = clock.now().since(begun);
    println!(
        "{played} cases over {} targets, {} failures, server answering after each of {rounds} rounds; {:.0} s, {:.0} a second",
        play.targets.len(),
        play.failed(),
        took.as_secs_f64(),
        played as f64 / took.as_secs_f64().max(0.001),
    );
    if play.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
