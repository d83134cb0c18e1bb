//! Benchmarks of the embedded hub: sending, reading and latency compared with plain system calls on the same
//! disk; opening, idle partitions, scaling and a soak test without such a comparison.
//!
//! | command | file | measures |
//! |---|---|---|
//! | `send`, `page-cache` | `send.rs` | events per second, beside plain appends |
//! | `read` | `read.rs` | a backlog, beside reading the files; and while others send |
//! | `latency` | `latency.rs` | from send to receive at light load, beside one fdatasync |
//! | `open` | `open.rs` | bytes read to open a log of 1 and of 10 GiB |
//! | `idle` | `idle.rs` | memory and wake-ups of 1,024 idle partitions |
//! | `scale` | `scale.rs` | the cost of twice the partitions, readers or log |
//! | `soak` | `soak.rs` | memory and disk, which have to stay flat |
//!
//! Without a command: all but the last two, in small. Ours and the other are measured in turn, five times;
//! the median counts.

mod files;
pub(crate) mod hub_under_test;
mod idle;
mod latency;
mod open;
mod raw_disk;
mod read;
mod scale;
mod send;
mod soak;

use std::process::ExitCode;

use ephor::BoxError;

use crate::figures::{self, Figure};
use crate::machine;
use crate::options::Options;

pub(crate) const USAGE: &str = "hub [send|page-cache|read|latency|open|idle|scale|soak] [--dir FOLDER] \
                                [--any-filesystem] [--small] [--mib N] [--minutes N]";

type Benchmark = fn(&Options) -> Result<Vec<Figure>, BoxError>;

/// The order matters: the memory of idle partitions is measured before anything else has used memory.
const BENCHMARKS: [(&str, Benchmark); 7] = [
    ("idle", idle::idle),
    ("send", send::durable),
    ("page-cache", send::page_cache),
    ("read", read::backlog),
    ("read", read::while_sending),
    ("latency", latency::light_load),
    ("open", open::by_size),
];

/// Runs the benchmarks that the arguments after `hub` name; a bound that is missed is a failure.
pub(crate) fn command(words: &[&str]) -> ExitCode {
    figures::exit(run(words), USAGE)
}

fn run(words: &[&str]) -> Result<bool, BoxError> {
    match words {
        ["send-and-hang", folder] => open::send_and_hang(folder).map(|()| true),
        ["scale", rest @ ..] => {
            let options = Options::parse(rest)?;
            with_load(|| scale::scale(&options).map(|()| true))
        }
        ["soak", rest @ ..] => soak::soak(&Options::parse(rest)?),
        [name, rest @ ..] if !name.starts_with('-') => {
            let chosen: Vec<Benchmark> = BENCHMARKS
                .iter()
                .filter(|(other, _)| other == name)
                .map(|(_, benchmark)| *benchmark)
                .collect();
            if chosen.is_empty() {
                return Err(format!("unknown benchmark of the hub: {name:?}").into());
            }
            figures(&chosen, &Options::parse(rest)?)
        }
        options => {
            let mut options = Options::parse(options)?;
            options.small = true;
            figures(&BENCHMARKS.map(|(_, benchmark)| benchmark), &options)
        }
    }
}

fn figures(benchmarks: &[Benchmark], options: &Options) -> Result<bool, BoxError> {
    with_load(|| {
        let mut figures = Vec::new();
        for benchmark in benchmarks {
            figures.extend(benchmark(options)?);
        }
        println!(
            "1 KiB events, {} partitions, median of {} runs in turn",
            hub_under_test::PARTITIONS,
            figures::RUNS
        );
        figures::print(&figures);
        Ok(figures.iter().all(Figure::is_met))
    })
}

/// Prints the load of the machine: a figure from a busy machine is worth less.
fn with_load(work: impl FnOnce() -> Result<bool, BoxError>) -> Result<bool, BoxError> {
    let before = machine::load_average();
    let done = work()?;
    println!("load before: {before}; after: {}", machine::load_average());
    Ok(done)
}
