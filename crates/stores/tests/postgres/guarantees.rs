//! Test helper: checks the record of whole hosts after faults of their store. No event is lost or skipped,
//! no checkpoint moves back, and only events after the last checkpoint are repeated.

use std::collections::BTreeMap;
use std::fmt;

use ephor::{ChangeReason, ClaimCause, OwnershipChange, PartitionId};
use ephor_stores::postgres::sqlx::Row;

use crate::fixture::sql;
use crate::fleet::{Call, Fleet, PARTITIONS};

/// Counts what happened, for the output of the test.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) troubles: usize,
    pub(crate) sent: u64,
    pub(crate) processed: u64,
    pub(crate) repeated: u64,
    pub(crate) checkpoints: usize,
    pub(crate) changes: usize,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.troubles += other.troubles;
        self.sent += other.sent;
        self.processed += other.processed;
        self.repeated += other.repeated;
        self.checkpoints += other.checkpoints;
        self.changes += other.changes;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { troubles, sent, processed, repeated, checkpoints, changes } = self;
        write!(
            f,
            "{troubles} times, {sent} events sent, {processed} processed, {repeated} repeated, 0 lost, \
             {checkpoints} checkpoints and none moved back, {changes} changes of ownership because of it"
        )
    }
}

/// A change of a checkpoint's position.
#[derive(Clone, Copy, Debug)]
struct Saved {
    epoch: u64,
    finished: u64,
}

/// Judges a fleet that has finished. `url` is where its database is now.
pub(crate) async fn judge(fleet: &Fleet, url: &str) -> Tally {
    let saved = saves(url).await;
    let calls = fleet.records.calls.lock().unwrap().clone();
    let done = fleet.records.done.lock().unwrap().clone();
    let mut tally = Tally { checkpoints: saved.values().map(Vec::len).sum(), ..Tally::default() };
    for (partition, sent) in (0..PARTITIONS).map(PartitionId).zip(fleet.sent()) {
        let saved = saved.get(&partition).map_or(&[][..], Vec::as_slice);
        nothing_moves_back(partition, saved);
        let calls: Vec<&Call> = calls.iter().filter(|call| call.partition == partition).collect();
        nothing_is_passed_over(partition, &calls, saved);
        let lost: Vec<u64> = (0..sent).filter(|event| !done.contains_key(&(partition, *event))).collect();
        assert!(lost.is_empty(), "partition {partition}: of {sent} events these are lost: {lost:?}");
        let last = saved.last().map(|saved| saved.finished + 1);
        assert_eq!(last, Some(sent), "partition {partition}: the last checkpoint is behind the last event");
        let times: u64 =
            done.range((partition, 0)..=(partition, u64::MAX)).map(|(_, times)| *times as u64).sum();
        tally.sent += sent;
        tally.processed += times;
        tally.repeated += times - sent;
    }
    tally
}

/// All changes of checkpoints as the database has seen them, in order.
async fn saves(url: &str) -> BTreeMap<PartitionId, Vec<Saved>> {
    let rows = sql(url, "SELECT partition, epoch, finished FROM public.audit ORDER BY number").await;
    let mut saves: BTreeMap<PartitionId, Vec<Saved>> = BTreeMap::new();
    for row in rows {
        let number = |name| row.try_get_unchecked::<i64, _>(name).unwrap() as u64;
        let saved = Saved { epoch: number("epoch"), finished: number("finished") };
        saves.entry(PartitionId(number("partition") as u32)).or_default().push(saved);
    }
    saves
}

fn nothing_moves_back(partition: PartitionId, saved: &[Saved]) {
    for pair in saved.windows(2) {
        let ahead = pair[1].finished > pair[0].finished && pair[1].epoch >= pair[0].epoch;
        assert!(ahead, "partition {partition}: a checkpoint moved back: {pair:?}");
    }
}

/// An owner begins behind the last checkpoint of the owners before it, and goes on event by event.
fn nothing_is_passed_over(partition: PartitionId, calls: &[&Call], saved: &[Saved]) {
    let mut epochs: BTreeMap<u64, u64> = BTreeMap::new();
    for call in calls {
        let next = epochs.entry(call.epoch).or_insert_with(|| {
            let before = saved.iter().rev().find(|saved| saved.epoch < call.epoch);
            before.map_or(0, |saved| saved.finished + 1)
        });
        assert_eq!(call.first, *next, "partition {partition}: what comes next in {call:?}");
        *next = call.last + 1;
    }
}

/// The lines that were written since, and in which each change of owner is one.
pub(crate) fn new_lines(before: &[OwnershipChange], after: &[OwnershipChange]) -> Vec<OwnershipChange> {
    after.iter().filter(|line| !before.contains(line)).cloned().collect()
}

/// Ownership does not thrash: no partition changes its owner more often than this.
pub(crate) fn at_most_each(lines: &[OwnershipChange], most: usize) {
    for partition in (0..PARTITIONS).map(PartitionId) {
        let of_one: Vec<_> = lines.iter().filter(|line| line.partition == partition).collect();
        assert!(of_one.len() <= most, "partition {partition} changed its owner too often: {of_one:#?}");
    }
}

/// Those by which somebody was taken for dead, or its lease was stolen.
pub(crate) fn takeovers(lines: &[OwnershipChange]) -> Vec<&OwnershipChange> {
    let forced = |line: &&OwnershipChange| {
        matches!(line.reason, ChangeReason::Claimed(ClaimCause::Expired | ClaimCause::Unresponsive))
    };
    lines.iter().filter(forced).collect()
}
