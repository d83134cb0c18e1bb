//! Reports failing seeds: shrinks the first of each kind, prints its report, and lists all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor::environment::SystemClock;
use ephor_core::time::Clock;
use ephor_sim::failure_report::FailureReport;
use ephor_sim::run_result::RunFailure;
use ephor_sim::scenario::Scenario;
use ephor_sim::shrink::{Limits, shrink};

use super::arguments::PlayArguments;
use super::stop::Stop;

/// The most reports.
const MAX_STORIES: usize = 3;
/// At most this many failing seeds are listed.
const MAX_LISTED: usize = 30;
/// The time limit of all searches together, even if reports could be shorter.
const MAX_REDUCTION_TIME: Duration = Duration::from_secs(120);

/// The options for reporting failing seeds.
pub(crate) struct Failures<'a> {
    pub(crate) arguments: &'a PlayArguments,
    pub(crate) jobs: usize,
    pub(crate) stop: &'a Stop,
}

impl Failures<'_> {
    /// Shrinks the first failing seed of each kind, and prints their reports.
    pub(crate) fn print_stories(&self, broken: &BTreeMap<u64, RunFailure>) {
        if !self.arguments.shrink {
            return;
        }
        let seeds = first_of_each_kind(broken);
        if !seeds.is_empty() {
            println!("shrinking the first failing seed of each kind, {} in all\n", seeds.len());
        }
        let begun = SystemClock.now();
        let keep_going = || !self.stop.requested() && SystemClock.now().since(begun) < MAX_REDUCTION_TIME;
        let (left, reports) = (Mutex::new(seeds.iter().copied()), Mutex::new(BTreeMap::new()));
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.min(seeds.len()) {
                scope.spawn(|| {
                    // Not `while let`: the lock would be held meanwhile.
                    loop {
                        let Some(seed) = lock(&left).next() else { return };
                        let report = self.report(seed, &keep_going);
                        lock(&reports).insert(seed, report);
                    }
                });
            }
        });
        for report in lock(&reports).values() {
            println!("{report}\n");
        }
    }

    fn report(&self, seed: u64, keep_going: &dyn Fn() -> bool) -> String {
        let limits = Limits { keep_going, ..Limits::default() };
        match shrink(Scenario::draw(seed), self.arguments.rules(), limits) {
            Some(shrunk) => {
                format!(
                    "{}\nreplay: {}",
                    FailureReport::new(&shrunk, self.arguments.mutation),
                    self.replay(seed)
                )
            }
            None => format!(
                "seed {seed} failed once and does not fail again: the run depends on more than its seed"
            ),
        }
    }

    fn replay(&self, seed: u64) -> String {
        let mutation = self
            .arguments
            .mutation
            .map_or(String::new(), |mutation| format!(" --mutation {}", mutation.name));
        format!("./check sim --from {seed} --count 1{mutation}")
    }

    /// Lists the failures, each with the command that plays it alone.
    pub(crate) fn list(&self, broken: &BTreeMap<u64, RunFailure>) {
        for (seed, what) in broken.iter().take(MAX_LISTED) {
            println!("seed {seed}: {what}\n    replay: {}", self.replay(*seed));
        }
        if broken.len() > MAX_LISTED {
            println!("… and {} more failing seeds", broken.len() - MAX_LISTED);
        }
    }
}

fn lock<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

fn first_of_each_kind(broken: &BTreeMap<u64, RunFailure>) -> Vec<u64> {
    let mut kinds = BTreeSet::new();
    let first = broken.iter().filter(|(_, what)| kinds.insert(what.promise.as_str()));
    first.map(|(seed, _)| *seed).take(MAX_STORIES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_kind_is_shrunk_and_not_more_than_a_few() {
        let broken =
            |promise: &str| RunFailure { promise: promise.into(), partition: None, what: String::new() };
        let all: BTreeMap<u64, RunFailure> = [(7, "a"), (8, "a"), (9, "b"), (11, "c"), (12, "d"), (13, "b")]
            .map(|(seed, of)| (seed, broken(of)))
            .into();
        assert_eq!(first_of_each_kind(&all), [7, 9, 11]);
    }
}
