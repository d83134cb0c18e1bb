//! Benchmark of the host: its cost for each event, compared with a plain receive loop.
//!
//! `ephor-bench host` prints time, allocations (of the median of five runs) and instructions per event.
//! `ephor-bench host with N` and `ephor-bench host without N` read N events once and print nothing, for
//! `perf` and `valgrind`.

mod host_and_plain_loop;
mod instructions;

use std::time::Duration;

use self::host_and_plain_loop::{Cost, Subject};
use crate::counting_allocator;

/// The number of events in one run.
const EVENTS: u32 = 500_000;
/// The number of runs; the median counts.
const RUNS: usize = 5;

/// Runs the command after `host`; false if its arguments are invalid.
pub(crate) fn command(words: &[&str]) -> bool {
    match words {
        [] => report(),
        [subject, events] => {
            let (Some(subject), Ok(events)) = (Subject::named(subject), events.parse()) else {
                return false;
            };
            host_and_plain_loop::run(subject, events);
        }
        _ => return false,
    }
    true
}

fn report() {
    counting_allocator::begin();
    println!(
        "batches of {}, {EVENTS} events of 100 bytes in memory, median of {RUNS} runs",
        host_and_plain_loop::BATCH
    );
    println!("load before: {}", crate::machine::load_average());
    println!("{:<22}{:>14}{:>18}{:>20}", "per event", "time", "allocations", "instructions");
    let plain = median(Subject::Loop);
    let host = median(Subject::Host);
    let counted = [Subject::Loop, Subject::Host].map(|subject| instructions::per_event(subject.name()));
    for (name, cost, counted) in
        [("the loop alone", plain, &counted[0]), ("with the host", host, &counted[1])]
    {
        line(name, cost.time, cost.allocations, counted.as_ref().map(|(count, _)| *count));
    }
    let own = host.time.saturating_sub(plain.time);
    let difference = match &counted {
        [Some((plain, _)), Some((host, _))] => Some(host - plain),
        _ => None,
    };
    line("the host's own", own, host.allocations - plain.allocations, difference);
    let tool =
        counted[1].as_ref().map_or("not counted: neither perf nor valgrind works here", |(_, tool)| *tool);
    println!("instructions: {tool}");
    println!("ratio to the loop alone: {:.2}", host.time.as_secs_f64() / plain.time.as_secs_f64());
}

fn line(name: &str, time: Duration, allocations: f64, instructions: Option<f64>) {
    let time = format!("{:.1} ns", time.as_secs_f64() * 1e9 / f64::from(EVENTS));
    let instructions = instructions.map_or("-".into(), |count| format!("{count:.0}"));
    println!("{name:<22}{time:>14}{allocations:>18.4}{instructions:>20}");
}

fn median(subject: Subject) -> Cost {
    let mut costs: Vec<Cost> = (0..RUNS).map(|_| host_and_plain_loop::run(subject, EVENTS)).collect();
    costs.sort_by_key(|cost| cost.time);
    costs[RUNS / 2]
}
