//! Measures the opening of a log, in bytes read and time, by its size: after a clean close, and after a
//! kill.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ephor::BoxError;
use ephor_hub::{Durability, LocalNamespace, NamespaceConfig};

use super::files::Counted;
use super::hub_under_test::{Load, PARTITIONS, Subject, fill, runtime, send};
use crate::figures::{Bound, Figure, RUNS, median, progress, size, thousands, time};
use crate::machine::{now, since};
use crate::options::Options;

const SIZES_MIB: [u64; 2] = [1024, 10 * 1024];
const SMALL_SIZES_MIB: [u64; 2] = [64, 640];
/// The bytes that the killed process had sent: almost a whole segment, which is the worst case.
const LEFT_BEHIND: u64 = 56 << 20;
/// Printed by the process that is to be killed.
const READY: &str = "ready";

/// The cost of opening a log once.
#[derive(Clone, Copy)]
struct Opening {
    took: Duration,
    counted: Counted,
    reported: u64,
}

pub(crate) fn by_size(options: &Options) -> Result<Vec<Figure>, BoxError> {
    let sizes = if options.small { SMALL_SIZES_MIB } else { SIZES_MIB };
    let most = (sizes[1] << 20) + RUNS as u64 * LEFT_BEHIND;
    // Encoded events are larger than their bodies.
    let folder = options.folder(most * 11 / 10 + (256 << 20))?;
    let mut by_size = Vec::new();
    let mut filled = 0;
    for mib in sizes {
        progress(&format!("open: filling a log up to {mib} MiB"));
        fill(folder.path(), Load::filling((mib << 20) - filled))?;
        filled = mib << 20;
        progress(&format!("open: opening {mib} MiB"));
        by_size.push((mib, rounds(folder.path())?));
    }
    let [(small, ours_small), (large, ours_large)] = &by_size[..] else { unreachable!("two sizes") };
    let name = |what: &str| format!("open {large} MiB / {small} MiB, {what}");
    let mut figures = Vec::new();
    for (kind, ours, other) in
        [("closed", &ours_large.0, &ours_small.0), ("killed", &ours_large.1, &ours_small.1)]
    {
        let count = |pick: fn(&Opening) -> u64| {
            [ours, other].map(|openings| median(&openings.iter().map(pick).collect::<Vec<_>>()))
        };
        let [ours_read, other_read] = count(|one| one.counted.bytes_read);
        let ratio = ours_read as f64 / other_read as f64;
        let sizes = [ours_read, other_read].map(|bytes| size(bytes as f64));
        let [one, two] = sizes;
        // After a kill the active segment is read, and segments differ a little in how full they are.
        let bound = Bound::AtMost(1.1);
        figures.push(Figure::new(name(&format!("{kind}: bytes read")), one, two, ratio).must_be(bound));
        let [one, two] = count(|one| one.reported);
        figures.push(Figure::new(
            "  as the hub itself reports",
            size(one as f64),
            size(two as f64),
            one as f64 / two.max(1) as f64,
        ));
        let [one, two] = count(|one| one.counted.opens);
        figures.push(Figure::new("  files opened", thousands(one), thousands(two), one as f64 / two as f64));
        let times = [ours, other]
            .map(|openings| median(&openings.iter().map(|one| one.took.as_secs_f64()).collect::<Vec<_>>()));
        let [one, two] = times.map(Duration::from_secs_f64);
        figures.push(Figure::new("  time", time(one), time(two), times[0] / times[1]));
    }
    Ok(figures)
}

/// Opens one log after a clean close, and after a kill.
fn rounds(folder: &Path) -> Result<(Vec<Opening>, Vec<Opening>), BoxError> {
    let (mut closed, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        leave_behind(folder)?;
        killed.push(open(folder)?);
        closed.push(open(folder)?);
    }
    Ok((closed, killed))
}

/// Opens the log and closes it cleanly.
fn open(folder: &Path) -> Result<Opening, BoxError> {
    let began = now();
    let subject = Subject::open(folder, Durability::PageCache, PARTITIONS)?;
    let took = since(began);
    let counted = subject.files.take();
    let reported = subject.hub.recovery().bytes_read;
    subject.close()?;
    Ok(Opening { took, counted, reported })
}

/// Starts another process that sends to the log, and kills it.
fn leave_behind(folder: &Path) -> Result<(), BoxError> {
    let mut sender = Command::new(std::env::current_exe()?);
    let sender = sender.args(["hub", "send-and-hang"]).arg(folder);
    let mut sender = sender.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    if let Some(stdout) = sender.stdout.take() {
        BufReader::new(stdout).read_line(&mut said)?;
    }
    sender.kill()?;
    sender.wait()?;
    if said.trim() != READY {
        return Err("the process ended before it was killed".into());
    }
    Ok(())
}

/// The other process: sends, reports that, and waits to be killed. It never closes the hub.
pub(crate) fn send_and_hang(folder: &str) -> Result<(), BoxError> {
    let config = NamespaceConfig { durability: Durability::PageCache, ..NamespaceConfig::default() };
    let namespace = LocalNamespace::open(folder, config)?;
    let hub = namespace.hub("bench")?;
    runtime()?.block_on(send(&hub, Load::filling(LEFT_BEHIND)));
    println!("{READY}");
    // Ends as abruptly if the parent process is gone.
    let _ = std::io::stdin().read(&mut [0]);
    std::process::abort();
}
