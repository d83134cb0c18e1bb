//! Measures the start time of `ephor dev` on an empty folder, and its memory when idle.

use std::time::Duration;

use ephor::BoxError;

use super::dev::Dev;
use crate::figures::{Bound, Figure, RUNS, median, progress, size};
use crate::machine::{resident_bytes_of, sleep};
use crate::options::Options;

const READY_WITHIN: Duration = Duration::from_millis(100);
const IDLE_BYTES: f64 = 30e6;
const PARTITIONS: u32 = 16;
/// The time after which it counts as idle.
const REST: Duration = Duration::from_secs(1);

pub(crate) fn ready(options: &Options) -> Result<Vec<Figure>, BoxError> {
    let (mut times, mut held, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=RUNS {
        progress(&format!("dev: round {round} of {RUNS}"));
        let folder = options.folder(64 << 20)?;
        let dev = Dev::start(&folder.path().join("data"), PARTITIONS)?;
        times.push(dev.ready_after);
        sleep(REST);
        let (resident, anonymous) = resident_bytes_of(dev.process());
        held.push(resident as f64);
        own.push(anonymous as f64);
    }
    let [held, own] = [&held, &own].map(|bytes| median(bytes));
    println!("ephor dev, idle: {} resident, of it {} not of its program file", size(held), size(own));
    Ok(vec![
        Figure::times("ephor dev, ready on an empty folder / 100 ms", median(&times), READY_WITHIN)
            .must_be(Bound::AtMost(1.0)),
        Figure::new("ephor dev, memory when idle / 30 MB", size(held), size(IDLE_BYTES), held / IDLE_BYTES)
            .must_be(Bound::AtMost(1.0)),
    ])
}
