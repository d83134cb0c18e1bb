//! Reduces a failing scenario to the smallest one that still breaks the same promise.
//!
//! First the faults (acts), by delta debugging: large parts are left out, then smaller ones, until each is
//! needed. Then the rest: fewer hosts, partitions and events, plain options, shorter and rounder times. A
//! smaller scenario may run differently; all that counts is that it still breaks the same promise. If many
//! faults are left only because the interleaving must not change, a few other interleavings are tried: the
//! same faults with another seed. Every play is deterministic, and so is the reduction.

use std::time::Duration;

use ephor::{CheckpointPolicy, FailurePolicy, StartPosition};
use ephor_core::rules::Rules;

use crate::attempt::{Broken, attempt};
use crate::history::History;
use crate::scenario::{Act, Ending, Scenario};

/// The limits of a reduction.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// The most plays.
    pub plays: usize,
    /// Called before every play: returns true if there is still time.
    pub go_on: &'a dyn Fn() -> bool,
}

impl Default for Limits<'_> {
    fn default() -> Self {
        Self { plays: 400, go_on: &|| true }
    }
}

/// The number of other interleavings that are tried when faults are left out.
const COURSES: u64 = 6;
/// With more faults than this, none is left out one by one in other interleavings.
const FEW: usize = 6;

/// The result of a reduction.
pub struct Reduced {
    /// The seed that failed.
    pub seed: u64,
    /// The smallest scenario that was found. Its own seed decides its interleaving.
    pub scenario: Scenario,
    /// The failure of that scenario.
    pub broken: Broken,
    /// The history of that scenario.
    pub history: History,
    /// The number of faults before the reduction.
    pub acts_before: usize,
    /// The number of plays that it took.
    pub plays: usize,
    /// True if the search is complete: nothing more can be left out. Otherwise a limit ended it.
    pub complete: bool,
}

/// Reduces a scenario; `None` if it breaks nothing.
pub fn reduce(scenario: Scenario, rules: Rules, limits: Limits<'_>) -> Option<Reduced> {
    search(scenario, limits, &|scenario| {
        let played = attempt(scenario, rules);
        Some((played.broken?, played.history))
    })
}

/// Plays a scenario. Returns its failure and its history, if it fails.
pub(crate) type Play<'a> = &'a dyn Fn(Scenario) -> Option<(Broken, History)>;

/// Reduces a scenario that is played by `play`.
pub(crate) fn search(scenario: Scenario, limits: Limits<'_>, play: Play<'_>) -> Option<Reduced> {
    let (seed, acts_before) = (scenario.seed, scenario.acts.len());
    let (broken, history) = play(scenario.clone())?;
    let best = Reduced { seed, scenario, broken, history, acts_before, plays: 0, complete: false };
    let mut search = Search { play, limits, plays: 1, best };
    search.acts();
    search.other_courses();
    // A simpler scenario may need fewer faults than before.
    loop {
        search.circumstances();
        let before = search.best.scenario.acts.len();
        search.acts();
        if search.best.scenario.acts.len() == before {
            break;
        }
    }
    let complete = search.may_go_on();
    Some(Reduced { plays: search.plays, complete, ..search.best })
}

struct Search<'a> {
    play: Play<'a>,
    limits: Limits<'a>,
    plays: usize,
    best: Reduced,
}

impl Search<'_> {
    fn may_go_on(&self) -> bool {
        self.plays < self.limits.plays && (self.limits.go_on)()
    }

    /// Plays a smaller scenario, and keeps it if it breaks the same promise.
    fn keeps(&mut self, scenario: Scenario) -> bool {
        if !self.may_go_on() {
            return false;
        }
        self.plays += 1;
        let same = |broken: &Broken| broken.promise == self.best.broken.promise;
        let Some((broken, history)) = (self.play)(scenario.clone()).filter(|(broken, _)| same(broken)) else {
            return false;
        };
        self.best = Reduced { scenario, broken, history, ..self.best };
        true
    }

    fn keeps_acts(&mut self, acts: Vec<Act>) -> bool {
        self.keeps(Scenario { acts, ..self.best.scenario.clone() })
    }

    /// Changes a copy, and keeps it if it still fails. Changes that change nothing are not played.
    fn keeps_change(&mut self, change: impl FnOnce(&mut Scenario) -> bool) -> bool {
        let mut scenario = self.best.scenario.clone();
        change(&mut scenario) && self.keeps(scenario)
    }

    /// Leaves out faults until every single one is needed.
    fn acts(&mut self) {
        if self.best.scenario.acts.is_empty() || self.keeps_acts(vec![]) {
            return;
        }
        self.drop_what_came_later();
        let mut parts = 2;
        while self.may_go_on() && self.best.scenario.acts.len() > 1 {
            let acts = self.best.scenario.acts.clone();
            let parts_now = parts.min(acts.len());
            let size = acts.len().div_ceil(parts_now);
            let ranges: Vec<_> =
                (0..acts.len()).step_by(size).map(|from| from..(from + size).min(acts.len())).collect();
            if parts_now > 2 && ranges.iter().any(|part| self.keeps_acts(acts[part.clone()].to_vec())) {
                parts = 2;
            } else if ranges
                .iter()
                .any(|part| self.keeps_acts([&acts[..part.start], &acts[part.end..]].concat()))
            {
                parts = (parts_now - 1).max(2);
            } else if size == 1 {
                return;
            } else {
                parts = parts_now * 2;
            }
        }
    }

    /// Leaves out faults that only kept the interleaving as it was: another seed may do without them.
    fn other_courses(&mut self) {
        let all = self.best.scenario.acts.len();
        // The last faults are the likeliest cause.
        let _ = (1..all.min(4)).any(|last| {
            let acts = self.best.scenario.acts[all - last..].to_vec();
            self.keeps_in_another_course(&acts)
        });
        while (2..=FEW).contains(&self.best.scenario.acts.len()) {
            let acts = self.best.scenario.acts.clone();
            let spared = (0..acts.len())
                .any(|spared| self.keeps_in_another_course(&[&acts[..spared], &acts[spared + 1..]].concat()));
            if !spared {
                return;
            }
        }
    }

    fn keeps_in_another_course(&mut self, acts: &[Act]) -> bool {
        (1..=COURSES).any(|course| {
            let seed = self.best.seed.wrapping_add(course << 32);
            self.keeps(Scenario { seed, acts: acts.to_vec(), ..self.best.scenario.clone() })
        })
    }

    /// Leaves out faults that were due after the promise broke: they cannot be its cause.
    fn drop_what_came_later(&mut self) {
        if let Some(end) = self.best.history.time_of("VIOLATION") {
            let acts: Vec<Act> =
                self.best.scenario.acts.iter().filter(|act| act.at <= end).copied().collect();
            if acts.len() < self.best.scenario.acts.len() {
                self.keeps_acts(acts);
            }
        }
    }

    /// Simplifies everything but the faults: a smaller fleet, plain options, short and round times.
    fn circumstances(&mut self) {
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
        self.options();
        self.times();
    }

    fn options(&mut self) {
        self.keeps_change(|scenario| replace(&mut scenario.ending, Ending::Well));
        self.keeps_change(|scenario| replace(&mut scenario.by_hand, 0.0));
        self.keeps_change(|scenario| replace(&mut scenario.wakes, true));
        self.keeps_change(|scenario| replace(&mut scenario.epochless, false));
        self.keeps_change(|scenario| replace(&mut scenario.distance, Duration::ZERO));
        self.keeps_change(|scenario| replace(&mut scenario.initial, StartPosition::Earliest));
        self.keeps_change(|scenario| replace(&mut scenario.style.process_timeout, None));
        self.keeps_change(|scenario| replace(&mut scenario.style.max_partitions, None));
        self.keeps_change(|scenario| replace(&mut scenario.style.checkpoint, CheckpointPolicy::default()));
        self.keeps_change(|scenario| replace(&mut scenario.style.failure, FailurePolicy::default()));
    }

    fn times(&mut self) {
        for number in 0..self.best.scenario.acts.len() {
            for seconds in [1, 5, 20, 40] {
                let lasting = Duration::from_secs(seconds);
                let longer = self.best.scenario.acts[number].lasting > lasting;
                if longer
                    && self.keeps_change(|scenario| replace(&mut scenario.acts[number].lasting, lasting))
                {
                    break;
                }
            }
        }
        self.keeps_change(|scenario| {
            let round = |time: Duration| Duration::from_secs(time.as_secs_f64().ceil() as u64);
            let rounded = scenario.acts.iter_mut().fold(false, |changed, act| {
                let (at, lasting) = (round(act.at), round(act.lasting));
                replace(&mut act.at, at) | replace(&mut act.lasting, lasting) | changed
            });
            rounded && scenario.acts.is_sorted_by_key(|act| act.at)
        });
        // The story begins sooner if its first fault does.
        for seconds in [10, 30, 60, 120, 240] {
            let sooner = self.keeps_change(|scenario| {
                let first = scenario.acts.first().map_or(Duration::ZERO, |act| act.at);
                let by = first.saturating_sub(Duration::from_secs(seconds));
                scenario.acts.iter_mut().for_each(|act| act.at -= by);
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

    /// Reduces a scenario of forty faults that fails while `needed` are among them and, in its own
    /// interleaving, only if `own_course_needs` are, too. Returns the faults that are left.
    fn left_of(needed: &[usize], own_course_needs: &[usize]) -> Vec<usize> {
        let drawn = Scenario::draw(1);
        let act = |target| Act { at: Duration::from_secs(10 + target as u64), target, ..drawn.acts[0] };
        let scenario = Scenario { acts: (0..40).map(act).collect(), ..drawn };
        let own = scenario.seed;
        let reduced = search(scenario, Limits::default(), &|scenario| {
            let there = |number: &usize| scenario.acts.iter().any(|act| act.target == *number);
            let fails =
                needed.iter().all(there) && (scenario.seed != own || own_course_needs.iter().all(there));
            let what = if fails { "this" } else { "something else" }.to_owned();
            let broken = Broken { promise: what.clone(), partition: None, what };
            // Without them something else breaks, but not the same promise.
            Some((broken, History::new(SystemClock)))
        });
        let reduced = reduced.expect("it fails");
        assert!(reduced.complete, "{} plays", reduced.plays);
        assert_eq!(reduced.broken.promise, "this");
        reduced.scenario.acts.iter().map(|act| act.target).collect()
    }

    #[test]
    fn what_is_needed_is_left_wherever_it_stands_and_nothing_else() {
        assert_eq!(left_of(&[], &[]), [0_usize; 0]);
        assert_eq!(left_of(&[17], &[]), [17]);
        assert_eq!(left_of(&[0, 39], &[]), [0, 39]);
        assert_eq!(left_of(&[3, 17, 18, 30], &[]), [3, 17, 18, 30]);
        assert_eq!(left_of(&[1, 2, 9, 20, 25, 33, 38], &[]), [1, 2, 9, 20, 25, 33, 38]);
    }

    #[test]
    fn what_only_the_own_course_needs_is_left_out_in_another() {
        assert_eq!(left_of(&[38, 39], &[1, 2, 9, 20, 25, 33]), [38, 39]);
        assert_eq!(left_of(&[9], &[2, 30]), [9]);
    }
}
