//! Totals over the runs of many seeds: figures, coverage, exemptions, and failures.

use std::collections::BTreeMap;
use std::fmt;

use ephor_sim::coverage::Coverage;
use ephor_sim::judge::{ExemptionCounts, Figures};
use ephor_sim::run_result::{RunFailure, RunResult};
use serde::{Deserialize, Serialize};

/// The sum of all runs so far.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Total {
    pub(crate) runs: u64,
    /// The number of injected faults; `injections` in the progress file.
    #[serde(rename = "acts")]
    pub(crate) injections: u64,
    figures: Figures,
    coverage: Coverage,
    exemptions: ExemptionCounts,
    /// The failures, by seed.
    pub(crate) broken: BTreeMap<u64, RunFailure>,
}

/// The exemptions of fewer runs say nothing: a single fault may exempt most checks of its run.
const MIN_RUNS: u64 = 500;

impl Total {
    /// The checks that were exempt more often than they may be, if there are enough runs.
    pub(crate) fn too_many_exemptions(&self) -> Vec<String> {
        if self.runs < MIN_RUNS { vec![] } else { self.exemptions.above_limit() }
    }

    /// Adds a run. One that ended in a panic has no figures.
    pub(crate) fn add(&mut self, seed: u64, attempt: &RunResult) {
        self.runs += 1;
        if let Some(broken) = &attempt.broken {
            self.broken.insert(seed, broken.clone());
        }
        if let Some(outcome) = &attempt.outcome {
            self.injections += outcome.injections as u64;
            self.coverage.add(&outcome.coverage);
            self.exemptions.add(&outcome.exemptions);
            add_figures(&mut self.figures, &outcome.figures);
        }
    }
}

fn add_figures(sum: &mut Figures, one: &Figures) {
    // Listed one by one, so that a new figure does not compile until it is added here.
    let Figures { finished, repeated, skipped, changes, unsaved, saves } = one;
    sum.finished += finished;
    sum.repeated += repeated;
    sum.skipped += skipped;
    sum.unsaved += unsaved;
    sum.saves += saves;
    for (reason, count) in changes {
        *sum.changes.entry(reason.clone()).or_default() += count;
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = &self.figures;
        writeln!(f, "{}", self.coverage)?;
        writeln!(f, "\nchanges of owner:")?;
        for (reason, count) in &figures.changes {
            writeln!(f, "{count:>10}  {reason}")?;
        }
        writeln!(f, "\n{}", self.exemptions)?;
        write!(
            f,
            "\n{} events finished, {} of them again, {} skipped by policy; {} checkpoints; {} given away unsaved",
            figures.finished, figures.repeated, figures.skipped, figures.saves, figures.unsaved
        )
    }
}
