//! Benchmark of `ephor demo`: the latency of its page at the default speed, its CPU time and memory, and
//! the highest speed that works.
//!
//! This benchmark fails on wrong results, not on the time that this machine takes.

mod demo;
mod speed_result;

use std::process::ExitCode;
use std::time::Duration;

use ephor::BoxError;

use self::speed_result::Step;
use crate::figures::{self, progress, thousands};
use crate::options::Options;

pub(crate) const USAGE: &str = "homes [--small] [--dir DIR]";

/// The maximum latency for 99 of 100 readings that counts as real time.
const FRESH: Duration = Duration::from_secs(2);
/// The disk space for the hub's log and the results of one step.
const ROOM: u64 = 4 << 30;
/// A speed beyond any machine.
const FASTEST: f64 = 512.0;

/// Runs the benchmark with the arguments after `homes`.
pub(crate) fn command(words: &[&str]) -> ExitCode {
    figures::exit(run(words), USAGE)
}

fn run(words: &[&str]) -> Result<bool, BoxError> {
    let options = Options::parse(words)?;
    let (first, others) = if options.small { (15, 10) } else { (60, 25) };
    println!("100,000 homes, 16 partitions, 5 hosts; from a sensor's push to the page's data");
    Step::print_head();
    let mut steps = vec![step(&options, 1.0, first)?];
    while let Some(last) = steps.last()
        && last.holds()
        && last.speed < FASTEST
    {
        let speed = last.speed * 2.0;
        steps.push(step(&options, speed, others)?);
    }
    // One more step between the last speed that held and the first that did not.
    if let [.., held, failed] = &steps[..]
        && held.holds()
        && !failed.holds()
    {
        let speed = (held.speed + failed.speed) / 2.0;
        steps.push(step(&options, speed, others)?);
    }
    conclude(&steps);
    Ok(steps.iter().all(|step| step.exact))
}

fn step(options: &Options, speed: f64, seconds: u64) -> Result<Step, BoxError> {
    progress(&format!("speed {speed} for {seconds} s"));
    let folder = options.folder(ROOM)?;
    let step = demo::run(folder.path(), speed, Duration::from_secs(seconds))?;
    step.print();
    Ok(step)
}

fn conclude(steps: &[Step]) {
    let Some(first) = steps.first() else { return };
    println!(
        "\nat the default speed: p50 {} ms, p99 {} ms (target: under {FRESH:?}); {:.2} cores (target: under \
         1), {} MiB (target: under 1024)",
        first.p50,
        first.p99,
        first.cores.sum(),
        first.mebibytes
    );
    let best =
        steps.iter().filter(|step| step.holds()).max_by(|one, other| one.speed.total_cmp(&other.speed));
    match best {
        Some(best) => println!(
            "highest speed at which p99 stays under {FRESH:?}: {} ({} readings a second)",
            best.speed,
            thousands(best.rate)
        ),
        None => println!("the target is missed even at the default speed"),
    }
    let beyond =
        steps.iter().filter(|step| !step.holds()).min_by(|one, other| one.speed.total_cmp(&other.speed));
    if let Some(beyond) = beyond {
        println!("at {}: {}", beyond.speed, beyond.limit());
    }
}
