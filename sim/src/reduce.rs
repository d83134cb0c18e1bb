//! A failing scenario is cut down to the least that still breaks the same promise.
//!
//! First the acts, by delta debugging: whole parts are left out, then smaller
//! ones, until none can be spared. Then the rest: fewer hosts, partitions and
//! events, plain options, shorter and rounder times. A smaller scenario may take
//! another course; all that counts is that it still breaks the same promise.
//! Every play is deterministic, and so is the reduction.

use std::time::Duration;

use ephor::{CheckpointPolicy, FailurePolicy};
use ephor_core::rules::Rules;

use crate::attempt::{Broken, attempt};
use crate::history::History;
use crate::scenario::{Act, Scenario};

/// Where a reduction stops at the latest.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// So many plays at most.
    pub plays: usize,
    /// Asked before every play: whether there is still time.
    pub go_on: &'a dyn Fn() -> bool,
}

impl Default for Limits<'_> {
    fn default() -> Self {
        Self { plays: 300, go_on: &|| true }
    }
}

/// What is left of a failing scenario.
pub struct Reduced {
    /// The smallest one that was found.
    pub scenario: Scenario,
    /// What it breaks.
    pub broken: Broken,
    /// What happens in it.
    pub history: History,
    /// How many acts there were before.
    pub acts_before: usize,
    /// How many plays it took.
    pub plays: usize,
    /// The search came to its end: nothing more can be left out. Otherwise a limit ended it.
    pub complete: bool,
}

/// Reduces a scenario; `None` if it breaks nothing.
pub fn reduce(scenario: Scenario, rules: Rules, limits: Limits<'_>) -> Option<Reduced> {
    let acts_before = scenario.acts.len();
    let first = attempt(scenario.clone(), rules);
    let broken = first.broken?;
    let mut search = Search {
        rules,
        limits,
        plays: 1,
        best: Reduced { scenario, broken, history: first.history, acts_before, plays: 0, complete: false },
    };
    search.acts();
    // What was simplified may make an act dispensable that was not before.
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
    rules: Rules,
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
        let played = attempt(scenario.clone(), self.rules);
        let Some(broken) = played.broken.filter(|broken| broken.promise == self.best.broken.promise) else {
            return false;
        };
        self.best.scenario = scenario;
        self.best.broken = broken;
        self.best.history = played.history;
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

    /// Leaves out acts until every single one is needed.
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

    /// What was to happen after the promise broke cannot have been its cause.
    fn drop_what_came_later(&mut self) {
        if let Some(end) = self.best.history.time_of("VIOLATION") {
            let acts: Vec<Act> =
                self.best.scenario.acts.iter().filter(|act| act.at <= end).copied().collect();
            if acts.len() < self.best.scenario.acts.len() {
                self.keeps_acts(acts);
            }
        }
    }

    /// Everything but the acts: a smaller fleet, plain options, short and round times.
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
        self.keeps_change(|scenario| replace(&mut scenario.by_hand, 0.0));
        self.keeps_change(|scenario| replace(&mut scenario.process_timeout, None));
        self.keeps_change(|scenario| replace(&mut scenario.wakes, true));
        self.keeps_change(|scenario| replace(&mut scenario.checkpoint, CheckpointPolicy::default()));
        self.keeps_change(|scenario| replace(&mut scenario.failure, FailurePolicy::default()));
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
        // The story begins sooner if its first act does.
        self.keeps_change(|scenario| {
            let first = scenario.acts.first().map_or(Duration::ZERO, |act| act.at);
            let sooner = first.saturating_sub(Duration::from_secs(10));
            scenario.acts.iter_mut().for_each(|act| act.at -= sooner);
            !sooner.is_zero()
        });
    }
}

/// Whether this changed anything.
fn replace<T: PartialEq>(place: &mut T, value: T) -> bool {
    let changes = *place != value;
    *place = value;
    changes
}
