//! Measures rebalances without faults: the moves that a join, a stop and a crash take, compared with the
//! fewest possible, and the time for which nobody reads a partition.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ephor::StartPosition;
use ephor_core::ids::PartitionId;
use ephor_core::rules::Rules;
use ephor_core::time::Monotonic;

use crate::run::Run;
use crate::scenario::{HostConfig, Scenario};

const LEASE: Duration = ephor::defaults::DEFAULT_LEASE_DURATION;
/// The time that a fleet has to come to rest after a change.
const SETTLE_TIME: Duration = Duration::from_secs(90);

/// A change of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// A host joined: partitions are handed over.
    Join,
    /// A host stopped gracefully.
    Stop,
    /// A host crashed.
    Crash,
}

/// The totals of one kind of change, over many fleets.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The number of changes.
    pub changes: u64,
    /// Partitions that changed their owner.
    pub moves: u64,
    /// The fewest that had to.
    pub fewest: u64,
    /// The times for which nobody read each of them, sorted.
    pub gaps: Vec<Duration>,
}

/// The tallies by change and by the kind of the store: true if it can notify hosts.
#[derive(Clone, Debug, Default)]
pub struct Moves(pub BTreeMap<(Change, bool), Tally>);

/// Plays fleets of 2 to 8 hosts and 4 to 32 partitions, one for each seed.
pub fn measure(from: u64, count: u64) -> Moves {
    let mut moves = Moves::default();
    for seed in from..from + count {
        one_fleet(seed, &mut moves);
    }
    for tally in moves.0.values_mut() {
        tally.gaps.sort_unstable();
    }
    moves
}

fn one_fleet(seed: u64, moves: &mut Moves) {
    let drawn = Scenario::draw(seed);
    let config = HostConfig { process_timeout: None, max_partitions: None, lease: LEASE, ..drawn.config };
    let initial = StartPosition::Earliest;
    let scenario = Scenario {
        injections: vec![],
        by_hand: 0.0,
        config,
        initial,
        distance: Duration::ZERO,
        hub_fences: true,
        ..drawn
    };
    let wakes = scenario.wakes;
    let mut run = Run::new(scenario, Rules::default());
    run.send_events();
    for host in &mut run.hosts {
        host.start(&run.world);
    }
    run.executor.run_for(SETTLE_TIME);
    for change in [Change::Join, Change::Stop, Change::Join, Change::Crash] {
        let held = held(&run);
        let (at, first) = (run.world.handle.now(), run.world.judge.processor_events().len());
        let fewest = match change {
            Change::Join => {
                let number = run.hosts.len();
                let mut host = crate::fleet::SimHost::new(&run.world, number);
                host.start(&run.world);
                run.hosts.push(host);
                fewest_for_a_join(&held)
            }
            Change::Stop | Change::Crash => {
                let (leaving, had) = held.iter().next().map(|(n, c)| (*n, *c)).unwrap_or_default();
                let host = &mut run.hosts[leaving];
                if change == Change::Stop {
                    host.stop(&run.world, crate::stopping::STOP_WITHIN)
                } else {
                    host.crash(&run.world)
                }
                host.gone = true;
                had
            }
        };
        run.executor.run_for(SETTLE_TIME);
        assert_eq!(run.world.judge.violation(), None, "seed {seed}");
        let tally = moves.0.entry((change, wakes)).or_default();
        tally.changes += 1;
        tally.fewest += fewest as u64;
        gaps(&run, first, at, tally);
    }
}

/// The number of partitions of each running host, by its number.
fn held(run: &Run) -> BTreeMap<usize, usize> {
    let running = run.hosts.iter().enumerate().filter(|(_, host)| host.runs());
    running.map(|(number, host)| (number, run.world.judge.owned_by(host.machine).len())).collect()
}

/// Everything above a share has to move, and as many as possible keep the larger share.
fn fewest_for_a_join(held: &BTreeMap<usize, usize>) -> usize {
    let (hosts, partitions) = (held.len() + 1, held.values().sum::<usize>());
    let mut sorted: Vec<usize> = held.values().copied().collect();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let share = |rank: usize| partitions / hosts + usize::from(rank < partitions % hosts);
    sorted.iter().enumerate().map(|(rank, held)| held.saturating_sub(share(rank))).sum()
}

/// Adds the time from the last reader's end to the next one's beginning, for each partition that moved.
fn gaps(run: &Run, first: usize, change: Monotonic, tally: &mut Tally) {
    let mut closed: BTreeMap<PartitionId, Monotonic> = BTreeMap::new();
    for event in &run.world.judge.processor_events()[first..] {
        if event.opens {
            // A host that crashed closed nothing: its reading ended with the crash.
            let ended = closed.get(&event.partition).copied().unwrap_or(change);
            tally.moves += 1;
            tally.gaps.push(event.at.since(ended));
        } else {
            closed.insert(event.partition, event.at);
        }
    }
}

impl fmt::Display for Moves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "change  store wakes   times   moves  fewest  excess   nobody reads: median, longest")?;
        for ((change, wakes), tally) in &self.0 {
            let excess = tally.moves as i64 - tally.fewest as i64;
            let median = tally.gaps.get(tally.gaps.len() / 2).copied().unwrap_or_default();
            let longest = tally.gaps.last().copied().unwrap_or_default();
            writeln!(
                f,
                "{:<8}{:>10}{:>9}{:>8}{:>8}{:>8}{:>15.2} s {:>8.2} s",
                format!("{change:?}"),
                wakes,
                tally.changes,
                tally.moves,
                tally.fewest,
                excess,
                median.as_secs_f64(),
                longest.as_secs_f64()
            )?;
        }
        Ok(())
    }
}
