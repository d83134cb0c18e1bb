//! A search and what it found.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::protocol::Protocol;
use crate::story;

/// What a search found.
#[derive(Clone, Debug)]
pub struct Findings {
    /// States that steps led to, the same ones again among them.
    pub states: usize,
    /// States that differ.
    pub unique: usize,
    /// The most steps from the beginning.
    pub depth: usize,
    /// How long it took, by whoever holds a clock.
    pub took: Duration,
    /// Each promise, and whether it holds.
    pub promises: Vec<(&'static str, bool)>,
    /// The first promise that was broken, and how that came about.
    pub broken: Option<(&'static str, Vec<String>)>,
    /// How often each kind of thing happened.
    pub counted: Vec<(&'static str, u64)>,
}

/// Searches all states within the bounds.
pub fn search(protocol: Protocol, threads: usize) -> Findings {
    let checker = protocol.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    findings(&checker)
}

/// Searches until a promise is broken, one step further each time: the story that is found is the shortest there is.
pub fn search_shortest(protocol: impl Fn() -> Protocol) -> Findings {
    let mut depth = 2;
    loop {
        let checker = protocol().checker().target_max_depth(depth).finish_when(HasDiscoveries::AnyFailures);
        let findings = findings(&checker.spawn_bfs().join());
        // Nothing lies deeper if the last step led nowhere new.
        if findings.broken.is_some() || findings.depth < depth {
            return findings;
        }
        depth += 1;
    }
}

fn findings(checker: &impl Checker<Protocol>) -> Findings {
    let protocol = checker.model();
    let mut discoveries = checker.discoveries();
    let properties = protocol.properties();
    let promises = properties.iter().map(|property| {
        let found = discoveries.contains_key(property.name);
        (property.name, found == (property.expectation == Expectation::Sometimes))
    });
    let promises: Vec<(&'static str, bool)> = promises.collect();
    let failed = properties.iter().find(|property| {
        property.expectation == Expectation::Always && discoveries.contains_key(property.name)
    });
    let counted = protocol.counted();
    let broken = failed.and_then(|property| {
        Some((property.name, story::tell(protocol, discoveries.remove(property.name)?)))
    });
    Findings {
        states: checker.state_count(),
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: Duration::ZERO,
        promises,
        broken,
        counted,
    }
}

/// As many threads as there are cores.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (words, count) in &self.counted {
            writeln!(f, "{count:>12}  {words}")?;
        }
        for (promise, holds) in &self.promises {
            writeln!(f, "{:>12}  {promise}", if *holds { "holds" } else { "BROKEN" })?;
        }
        if let Some((promise, story)) = &self.broken {
            writeln!(f, "\nbroken: {promise}. How it came about:")?;
            for line in story {
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
