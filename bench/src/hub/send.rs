//! Measures sending: events per second, acknowledged from disk or from the page cache, compared with plain
//! appends of the same bytes per commit.

use std::path::Path;
use std::time::Duration;

use ephor::BoxError;
use ephor_hub::Durability;

use super::files::Counted;
use super::hub_under_test::{EVENT_BYTES, Load, PARTITIONS, Subject, runtime, send};
use super::raw_disk::{self, Appends};
use crate::figures::{Bound, Figure, RUNS, median, progress, size};
use crate::options::Options;

const DEFAULT_MIB: u64 = 256;
/// The number of folders: the hub's log, and the plain files that are written in turn with it.
const FOLDERS: u64 = 2;

/// One run of ours.
struct Run {
    took: Duration,
    counted: Counted,
}

pub(crate) fn durable(options: &Options) -> Result<Vec<Figure>, BoxError> {
    let others = [Appends::Synced, Appends::SyncedInRoom];
    let Rounds { events, ours, others } = rounds(options, Durability::Disk, others)?;
    let rate = |took: f64| events as f64 / took;
    let commits: Vec<f64> = ours.iter().map(|run| run.counted.commits as f64).collect();
    let syncs = ours.iter().map(|run| run.counted.syncs as f64 / run.counted.commits as f64);
    let syncs = median(&syncs.collect::<Vec<_>>());
    let bytes = ours
        .iter()
        .map(|run| run.counted.commit_bytes as f64 / run.counted.commits as f64)
        .collect::<Vec<_>>();
    let per_event =
        ours.iter().map(|run| run.counted.commit_bytes as f64 / events as f64).collect::<Vec<_>>();
    let took = median(&ours.iter().map(|run| run.took.as_secs_f64()).collect::<Vec<_>>());
    let per_commit = Duration::from_secs_f64(took / median(&commits));
    let raw_per_commit = Duration::from_secs_f64(others[0] / median(&commits));
    let one = median(&per_event);
    Ok(vec![
        Figure::rates("send, on disk / append + fdatasync", rate(took), rate(others[0]))
            .must_be(Bound::AtLeast(0.5)),
        Figure::rates("send, on disk / the same in preallocated space", rate(took), rate(others[1])),
        Figure::new("  syncs per commit / one", format!("{syncs:.3}"), "1".into(), syncs)
            .must_be(Bound::AtMost(1.1)),
        Figure::times("  time per commit / one append + fdatasync", per_commit, raw_per_commit),
        Figure::new(
            "  bytes per commit / one batch of each of 64 senders",
            size(median(&bytes)),
            size(one * 64.0 * 32.0),
            median(&bytes) / (one * 64.0 * 32.0),
        ),
        Figure::new(
            "  bytes per event in the log / its body",
            size(one),
            size(EVENT_BYTES as f64),
            one / EVENT_BYTES as f64,
        ),
    ])
}

pub(crate) fn page_cache(options: &Options) -> Result<Vec<Figure>, BoxError> {
    let others = [Appends::Plain, Appends::SyncedWhenFull];
    let Rounds { events, ours, others } = rounds(options, Durability::PageCache, others)?;
    let rate = |took: f64| events as f64 / took;
    let took = median(&ours.iter().map(|run| run.took.as_secs_f64()).collect::<Vec<_>>());
    Ok(vec![
        Figure::rates("send, page cache / plain appends, never synced", rate(took), rate(others[0])),
        Figure::rates("send, page cache / plain appends, each 64 MiB synced", rate(took), rate(others[1])),
    ])
}

struct Rounds {
    events: u64,
    ours: Vec<Run>,
    /// The median of each other loop, in seconds.
    others: [f64; 2],
}

fn rounds(options: &Options, durability: Durability, loops: [Appends; 2]) -> Result<Rounds, BoxError> {
    let bytes = options.mib.unwrap_or(DEFAULT_MIB) << 20;
    let folder = options.folder(FOLDERS * (bytes + (64 << 20)))?;
    let load = Load::usual(bytes / EVENT_BYTES as u64);
    let (mut ours, mut others) = (Vec::new(), [Vec::new(), Vec::new()]);
    for round in 1..=RUNS {
        progress(&format!("send, {durability}: round {round} of {RUNS}"));
        let run = run(&folder.path().join("hub"), durability, load)?;
        // The same bytes in pieces of the same size.
        let piece = run.counted.commit_bytes / run.counted.commits;
        for (how, others) in loops.iter().zip(&mut others) {
            let took = raw_disk::append(&folder.path().join("raw"), run.counted.commit_bytes, piece, *how)?;
            others.push(took.as_secs_f64());
        }
        ours.push(run);
    }
    Ok(Rounds { events: load.events, ours, others: others.map(|times| median(&times)) })
}

fn run(folder: &Path, durability: Durability, load: Load) -> Result<Run, BoxError> {
    std::fs::create_dir_all(folder)?;
    let subject = Subject::open(folder, durability, PARTITIONS)?;
    let runtime = runtime()?;
    subject.files.take();
    let took = runtime.block_on(send(&subject.hub, load));
    let counted = subject.files.take();
    subject.close()?;
    std::fs::remove_dir_all(folder)?;
    Ok(Run { took, counted })
}
