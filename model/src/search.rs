//! Runs a search of the state space, and reports violated properties.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::counterexample;
use crate::protocol::Protocol;

/// The findings of a search.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The states that were reached, with repetitions.
    pub states: usize,
    /// The unique states.
    pub unique: usize,
    /// The maximum number of steps from the initial state.
    pub depth: usize,
    /// The duration, set by the caller.
    pub took: Duration,
    /// Each property, and whether it holds.
    pub properties: Vec<(&'static str, bool)>,
    /// The first violated property, and the counterexample.
    pub violation: Option<(&'static str, Vec<String>)>,
    /// The number of events of each kind.
    pub counted: Vec<(&'static str, u64)>,
}

/// Searches all states within the limits.
pub fn search(protocol: Protocol, threads: usize) -> Findings {
    let checker = protocol.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    findings(&checker)
}

/// Searches for the shortest counterexample: one step deeper each time.
pub fn search_shortest(protocol: impl Fn() -> Protocol) -> Findings {
    let mut depth = 2;
    loop {
        let checker = protocol().checker().target_max_depth(depth).finish_when(HasDiscoveries::AnyFailures);
        let findings = findings(&checker.spawn_bfs().join());
        // The search is complete if the last step reached no new state.
        if findings.violation.is_some() || findings.depth < depth {
            return findings;
        }
        depth += 1;
    }
}

fn findings(checker: &impl Checker<Protocol>) -> Findings {
    let protocol = checker.model();
    let mut discoveries = checker.discoveries();
    let checked = protocol.properties();
    let properties = checked.iter().map(|property| {
        let found = discoveries.contains_key(property.name);
        (property.name, found == (property.expectation == Expectation::Sometimes))
    });
    let properties: Vec<(&'static str, bool)> = properties.collect();
    let failed = checked.iter().find(|property| {
        property.expectation == Expectation::Always && discoveries.contains_key(property.name)
    });
    let counted = protocol.counted();
    let violation = failed.and_then(|property| {
        Some((property.name, counterexample::describe(protocol, discoveries.remove(property.name)?)))
    });
    Findings {
        states: checker.state_count(),
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: Duration::ZERO,
        properties,
        violation,
        counted,
    }
}

/// Returns the number of cores.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (trace, count) in &self.counted {
            writeln!(f, "{count:>12}  {trace}")?;
        }
        for (property, holds) in &self.properties {
            writeln!(f, "{:>12}  {property}", if *holds { "holds" } else { "VIOLATED" })?;
        }
        if let Some((property, steps)) = &self.violation {
            writeln!(f, "\nviolated: {property}. Counterexample:")?;
            for line in steps {
                writeln!(f, "  {line}")?;
            }
        }
        write!(
            f,
            "{} states, {} unique, depth {}, {:.1} s",
            self.states,
            self.unique,
            self.depth,
            self.took.as_secs_f64()
        )
    }
}
