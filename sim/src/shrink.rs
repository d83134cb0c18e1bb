//! Shrinks a failing scenario to the smallest one that still breaks the same promise.
//!
//! First the faults, by delta debugging: large parts are left out, then smaller ones, until each is
//! needed. Then the rest: fewer hosts, partitions and events, plain options, shorter and rounder times. A
//! smaller scenario may run differently; all that counts is that it still breaks the same promise. If many
//! faults are left only because the interleaving must not change, a few other interleavings are tried: the
//! same faults with another seed. Every play is deterministic, and so is the search.

use std::time::Duration;

use ephor::{CheckpointPolicy, FailurePolicy, StartPosition};
use ephor_core::rules::Rules;

use crate::history::History;
use crate::run_result::{RunFailure, attempt};
use crate::scenario::{Ending, Injection, Scenario};

/// The limits of a search for a smaller scenario.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// The most plays.
    pub plays: usize,
    /// Called before every play: returns true if there is still time.
    pub keep_going: &'a dyn Fn() -> bool,
}

impl Default for Limits<'_> {
    fn default() -> Self {
        Self { plays: 400, keep_going: &|| true }
    }
}

/// The number of other interleavings that are tried when faults are left out.
const MAX_INTERLEAVINGS: u64 = 6;
/// With more faults than this, none is left out one by one in other interleavings.
const MAX_ONE_BY_ONE: usize = 6;

/// The result of a search for a smaller scenario.
pub struct Shrunk {
    /// The seed that failed.
    pub seed: u64,
    /// The smallest scenario that was found. Its own seed decides its interleaving.
    pub scenario: Scenario,
    /// The failure of that scenario.
    pub broken: RunFailure,
    /// The history of that scenario.
    pub history: History,
    /// The number of faults before shrinking.
    pub injections_before: usize,
    /// The number of plays that it took.
    pub plays: usize,
    /// True if the search is complete: nothing more can be left out. Otherwise a limit ended it.
    pub complete: bool,
}

/// Shrinks a scenario; `None` if it breaks nothing.
pub fn shrink(scenario: Scenario, rules: Rules, limits: Limits<'_>) -> Option<Shrunk> {
    search(scenario, limits, &|scenario| {
        let played = attempt(scenario, rules);
        Some((played.broken?, played.history))
    })
}

/// Plays a scenario. Returns its failure and its history, if it fails.
pub(crate) type Play<'a> = &'a dyn Fn(Scenario) -> Option<(RunFailure, History)>;

/// Shrinks a scenario that is played by `play`.
pub(crate) fn search(scenario: Scenario, limits: Limits<'_>, play: Play<'_>) -> Option<Shrunk> {
    let (seed, injections_before) = (scenario.seed, scenario.injections.len());
    let (broken, history) = play(scenario.clone())?;
    let best = Shrunk { seed, scenario, broken, history, injections_before, plays: 0, complete: false };
    let mut search = Search { play, limits, plays: 1, best };
    search.leave_out_injections();
    search.try_other_interleavings();
    // A simpler scenario may need fewer faults than before.
    loop {
        search.simplify_fleet();
        let before = search.best.scenario.injections.len();
        search.leave_out_injections();
        if search.best.scenario.injections.len() == before {
            break;
        }
    }
    let complete = search.may_continue();
    Some(Shrunk { plays: search.plays, complete, ..search.best })
}

struct Search<'a> {
    play: Play<'a>,
    limits: Limits<'a>,
    plays: usize,
    best: Shrunk,
}

impl Search<'_> {
    fn may_continue(&self) -> bool {
        self.plays < self.limits.plays && (self.limits.keep_going)()
    }

    /// Plays a smaller scenario, and keeps it if it breaks the same promise.
    fn keeps(&mut self, scenario: Scenario) -> bool {
        if !self.may_continue() {
            return false;
        }
        self.plays += 1;
        let same = |broken: &RunFailure| broken.promise == self.best.broken.promise;
        let Some((broken, history)) = (self.play)(scenario.clone()).filter(|(broken, _)| same(broken)) else {
            return false;
        };
        self.best = Shrunk { scenario, broken, history, ..self.best };
        true
    }

    fn keeps_injections(&mut self, injections: Vec<Injection>) -> bool {
        self.keeps(Scenario { injections, ..self.best.scenario.clone() })
    }

    /// Changes a copy, and keeps it if it still fails. Changes that change nothing are not played.
    fn keeps_change(&mut self, change: impl FnOnce(&mut Scenario) -> bool) -> bool {
        let mut scenario = self.best.scenario.clone();
        change(&mut scenario) && self.keeps(scenario)
    }

    /// Leaves out faults until every single one is needed.
    fn leave_out_injections(&mut self) {
        if self.best.scenario.injections.is_empty() || self.keeps_injections(vec![]) {
            return;
        }
        self.drop_later_injections();
        let mut parts = 2;
        while self.may_continue() && self.best.scenario.injections.len() > 1 {
            let injections = self.best.scenario.injections.clone();
            let parts_now = parts.min(injections.len());
            let size = injections.len().div_ceil(parts_now);
            let ranges: Vec<_> = (0..injections.len())
                .step_by(size)
                .map(|from| from..(from + size).min(injections.len()))
                .collect();
            if parts_now > 2
                && ranges.iter().any(|part| self.keeps_injections(injections[part.clone()].to_vec()))
            {
                parts = 2;
            } else if ranges.iter().any(|part| {
                self.keeps_injections([&injections[..part.start], &injections[part.end..]].concat())
            }) {
                parts = (parts_now - 1).max(2);
            } else if size == 1 {
                return;
            } else {
                parts = parts_now * 2;
            }
        }
    }

    /// Leaves out faults that only kept the interleaving as it was: another seed may do without them.
    fn try_other_interleavings(&mut self) {
        let all = self.best.scenario.injections.len();
        // The last faults are the likeliest cause.
        let _ = (1..all.min(4)).any(|last| {
            let injections = self.best.scenario.injections[all - last..].to_vec();
            self.keeps_in_another_interleaving(&injections)
        });
        while (2..=MAX_ONE_BY_ONE).contains(&self.best.scenario.injections.len()) {
            let injections = self.best.scenario.injections.clone();
            let spared = (0..injections.len()).any(|spared| {
                self.keeps_in_another_interleaving(
                    &[&injections[..spared], &injections[spared + 1..]].concat(),
                )
            });
            if !spared {
                return;
            }
        }
    }

    fn keeps_in_another_interleaving(&mut self, injections: &[Injection]) -> bool {
        (1..=MAX_INTERLEAVINGS).any(|interleaving| {
            let seed = self.best.seed.wrapping_add(interleaving << 32);
            self.keeps(Scenario { seed, injections: injections.to_vec(), ..self.best.scenario.clone() })
        })
    }

    /// Leaves out faults that were due after the promise broke: they cannot be its cause.
    fn drop_later_injections(&mut self) {
        if let Some(end) = self.best.history.time_of("VIOLATION") {
            let injections: Vec<Injection> = self
                .best
                .scenario
                .injections
                .iter()
                .filter(|injection| injection.at <= end)
                .copied()
                .collect();
            if injections.len() < self.best.scenario.injections.len() {
                self.keeps_injections(injections);
            }
        }
    }

    /// Simplifies everything but the faults: a smaller fleet, plain options, short and round times.
    fn simplify_fleet(&mut self) {
        for hosts in 1..self.best.scenario.hosts {
            if self.keeps_change(|scenario| replace(&mut scenario.hosts, hosts)) {
                break;
            }
        }
        for partitions in [1, 2, 4, 8, 16] {
            let fewer = partitions < self.best.scenario.partitions;
            if fewer && self.keeps_change(|scenario| replace(&mut scenario.partitions, partitions)) {
                break;
            }
        }
        for events in [10, 100, 600] {
            let fewer = events < self.best.scenario.events;
            if fewer && self.keeps_change(|scenario| replace(&mut scenario.events, events)) {
                break;
            }
        }
        self.simplify_options();
        self.simplify_times();
    }

    fn simplify_options(&mut self) {
        self.keeps_change(|scenario| replace(&mut scenario.ending, Ending::Healthy));
        self.keeps_change(|scenario| replace(&mut scenario.by_hand, 0.0));
        self.keeps_change(|scenario| replace(&mut scenario.wakes, true));
        self.keeps_change(|scenario| replace(&mut scenario.shared_with_other_sdks, false));
        self.keeps_change(|scenario| replace(&mut scenario.reattaches, false));
        self.keeps_change(|scenario| replace(&mut scenario.hub_fences, true));
        self.keeps_change(|scenario| replace(&mut scenario.distance, Duration::ZERO));
        self.keeps_change(|scenario| replace(&mut scenario.initial, StartPosition::Earliest));
        self.keeps_change(|scenario| replace(&mut scenario.config.process_timeout, None));
        self.keeps_change(|scenario| replace(&mut scenario.config.max_partitions, None));
        self.keeps_change(|scenario| replace(&mut scenario.config.checkpoint, CheckpointPolicy::default()));
        self.keeps_change(|scenario| replace(&mut scenario.config.failure, FailurePolicy::default()));
    }

    fn simplify_times(&mut self) {
        for number in 0..self.best.scenario.injections.len() {
            for seconds in [1, 5, 20, 40] {
                let lasting = Duration::from_secs(seconds);
                let longer = self.best.scenario.injections[number].lasting > lasting;
                if longer
                    && self
                        .keeps_change(|scenario| replace(&mut scenario.injections[number].lasting, lasting))
                {
                    break;
                }
            }
        }
        self.keeps_change(|scenario| {
            let round = |time: Duration| Duration::from_secs(time.as_secs_f64().ceil() as u64);
            let rounded = scenario.injections.iter_mut().fold(false, |changed, injection| {
                let (at, lasting) = (round(injection.at), round(injection.lasting));
                replace(&mut injection.at, at) | replace(&mut injection.lasting, lasting) | changed
            });
            rounded && scenario.injections.is_sorted_by_key(|injection| injection.at)
        });
        // The report begins sooner if its first fault does.
        for seconds in [10, 30, 60, 120, 240] {
            let sooner = self.keeps_change(|scenario| {
                let first = scenario.injections.first().map_or(Duration::ZERO, |injection| injection.at);
                let by = first.saturating_sub(Duration::from_secs(seconds));
                scenario.injections.iter_mut().for_each(|injection| injection.at -= by);
                !by.is_zero()
            });
            if sooner {
                break;
            }
        }
    }
}

/// Sets a value. Returns true if that changed anything.
fn replace<T: PartialEq>(place: &mut T, value: T) -> bool {
    let changes = *place != value;
    *place = value;
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use ephor::environment::SystemClock;

    /// Shrinks a scenario of forty faults that fails while `needed` are among them and, in its own
    /// interleaving, only if `own_interleaving_needs` are, too. Returns the faults that are left.
    fn shrunk_to(needed: &[usize], own_interleaving_needs: &[usize]) -> Vec<usize> {
        let drawn = Scenario::draw(1);
        let injection =
            |target| Injection { at: Duration::from_secs(10 + target as u64), target, ..drawn.injections[0] };
        let scenario = Scenario { injections: (0..40).map(injection).collect(), ..drawn };
        let own = scenario.seed;
        let shrunk = search(scenario, Limits::default(), &|scenario| {
            let there =
                |number: &usize| scenario.injections.iter().any(|injection| injection.target == *number);
            let fails = needed.iter().all(there)
                && (scenario.seed != own || own_interleaving_needs.iter().all(there));
            let what = if fails { "this" } else { "something else" }.to_owned();
            let broken = RunFailure { promise: what.clone(), partition: None, what };
            // Without them something else breaks, but not the same promise.
            Some((broken, History::new(SystemClock)))
        });
        let shrunk = shrunk.expect("it fails");
        assert!(shrunk.complete, "{} plays", shrunk.plays);
        assert_eq!(shrunk.broken.promise, "this");
        shrunk.scenario.injections.iter().map(|injection| injection.target).collect()
    }

    #[test]
    fn only_needed_injections_are_kept_wherever_they_are() {
        assert_eq!(shrunk_to(&[], &[]), [0_usize; 0]);
        assert_eq!(shrunk_to(&[17], &[]), [17]);
        assert_eq!(shrunk_to(&[0, 39], &[]), [0, 39]);
        assert_eq!(shrunk_to(&[3, 17, 18, 30], &[]), [3, 17, 18, 30]);
        assert_eq!(shrunk_to(&[1, 2, 9, 20, 25, 33, 38], &[]), [1, 2, 9, 20, 25, 33, 38]);
    }

    #[test]
    fn injections_that_only_one_interleaving_needs_are_left_out() {
        assert_eq!(shrunk_to(&[38, 39], &[1, 2, 9, 20, 25, 33]), [38, 39]);
        assert_eq!(shrunk_to(&[9], &[2, 30]), [9]);
    }
}
