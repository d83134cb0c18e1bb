//! Benchmarks of hosts on real stores: planned moves of partitions, and large fleets.
//!
//! | command | measures |
//! |---|---|
//! | `ephor-bench stores [--postgres URL]` | the gap in reading a partition that is moved as planned (`planned_moves.rs`) |
//! | `ephor-bench stores fleet …` | the balance of many hosts on one PostgreSQL, also after a kill (`fleet/`) |

mod database;
mod fleet;
mod planned_moves;
mod reading_pause;

use std::process::ExitCode;

use crate::figures;

pub(crate) const USAGE: &str = "stores [--postgres URL] | \
    stores fleet [--hosts N] [--partitions N] [--processes N] [--lease SECONDS] [--postgres URL]";

/// Runs the benchmark that the arguments after `stores` name.
pub(crate) fn command(words: &[&str]) -> ExitCode {
    let outcome = match words {
        ["fleet", rest @ ..] => fleet::run(rest),
        [fleet::PROCESS, rest @ ..] => fleet::process(rest),
        _ => planned_moves::run(words),
    };
    figures::exit(outcome, USAGE)
}
