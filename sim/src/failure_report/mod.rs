//! Reports a failing run as text for people: the fleet, the faults, the steps of hosts and
//! store, and the broken promise.
//!
//! Of the thousands of lines of a [`history`](crate::history) it keeps those that matter: of the partition
//! concerned, of the hosts that owned it, and of their faults, in the last epochs before the promise broke.

mod fleet_description;
mod history_lines;
mod selection;

use std::fmt;
use std::time::Duration;

use crate::mutations::Mutation;
use crate::shrink::Shrunk;
use history_lines::Words;
use selection::Part;

/// A failing run, shown by `Display`.
pub struct FailureReport<'a> {
    shrunk: &'a Shrunk,
    mutation: Option<&'a Mutation>,
    lines: Vec<(Duration, String)>,
    words: Words,
}

impl<'a> FailureReport<'a> {
    /// The report of a shrunk run, and of its mutation, if it has one.
    pub fn new(shrunk: &'a Shrunk, mutation: Option<&'a Mutation>) -> Self {
        let lines = shrunk.history.lines();
        Self { shrunk, mutation, words: Words::new(&lines), lines }
    }

    fn header(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shrunk { seed, scenario, broken, injections_before, plays, complete, .. } = self.shrunk;
        writeln!(f, "THE REPORT OF SEED {seed}: {}", self.words.plain(&broken.to_string()))?;
        if let Some(mutation) = self.mutation {
            writeln!(f, "mutation: {} (--mutation {})", mutation.what, mutation.name)?;
        }
        let left = scenario.injections.len();
        let end = match (complete, left) {
            (false, _) => "a limit ended the search",
            (true, 0) => "it needs no fault",
            (true, 1) => "it cannot be left out",
            (true, _) => "none of them can be left out",
        };
        let interleaving =
            if scenario.seed == *seed { "" } else { "; in another interleaving than that of the seed" };
        writeln!(
            f,
            "shrunk from {injections_before} faults to {left} in {plays} plays: {end}{interleaving}"
        )?;
        writeln!(f, "\nTHE FLEET")?;
        fleet_description::of(scenario).iter().try_for_each(|line| writeln!(f, "  {line}"))
    }

    fn faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nWHAT GOES WRONG")?;
        for injection in &self.shrunk.scenario.injections {
            let line = selection::line_of(injection, &self.lines).map(|line| self.lines[line].1.as_str());
            writeln!(f, "{}  {}", time(injection.at), self.words.injection(injection, line))?;
        }
        if self.shrunk.scenario.injections.is_empty() {
            writeln!(f, "  nothing")?;
        }
        Ok(())
    }

    fn steps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let partition = self.shrunk.broken.partition();
        match partition {
            Some(partition) => writeln!(f, "\nWHAT HAPPENS TO {partition:?}")?,
            None => writeln!(f, "\nWHAT HAPPENS")?,
        }
        for part in selection::of(&self.shrunk.scenario.injections, partition, &self.lines) {
            match part {
                Part::Line(line) => {
                    let (at, text) = &self.lines[line];
                    writeln!(f, "{}  {}", time(*at), self.words.plain(text))?;
                }
                Part::LeftOut(what) => writeln!(f, "{:>11}  … {what}", "")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for FailureReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header(f)?;
        self.faults(f)?;
        self.steps(f)?;
        write!(
            f,
            "\n(pN: a partition. eN: an epoch, a new one with every owner. #N: an event of the partition.)"
        )
    }
}

fn time(at: Duration) -> String {
    format!("{:>9.3} s", at.as_secs_f64())
}
