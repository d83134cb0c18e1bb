//! What a store does to hosts.
//!
//! | command | asks |
//! |---|---|
//! | `ephor-bench stores [--postgres URL]` | how long nobody reads a partition that is moved on purpose (`planned.rs`) |
//! | `ephor-bench stores fleet …` | whether many hosts settle on one PostgreSQL, and survive a kill (`fleet/`) |

mod database;
mod fleet;
mod moves;
mod planned;

use std::process::ExitCode;

use crate::report;

pub(crate) const USAGE: &str = "stores [--postgres URL] | \
    stores fleet [--hosts N] [--partitions N] [--processes N] [--lease SECONDS] [--postgres URL]";

/// Runs what the words behind `stores` ask for.
pub(crate) fn command(words: &[&str]) -> ExitCode {
    let outcome = match words {
        ["fleet", rest @ ..] => fleet::run(rest),
        [fleet::PROCESS, rest @ ..] => fleet::process(rest),
        _ => planned::run(words),
    };
    report::exit(outcome, USAGE)
}
