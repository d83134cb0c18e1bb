//! Administration of a group from outside: the base of operator tools.
//!
//! Everything goes through the store. A seek is one atomic step for each partition, and its owner
//! notices it; a drain is a request that the host receives with its next heartbeat.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use ephor_core::checkpoint::{Checkpoint, Position};
use ephor_core::epoch::Epoch;
use ephor_core::history::OwnershipChange;
use ephor_core::ids::{GroupId, HostId, LogId, PartitionId};
use ephor_core::lease::Lease;
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::source::{
    EventSource, HubProperties, OpenError, OpenRequest, PartitionProperties, SourceError,
};
use ephor_core::store::{DesiredState, HostEntry, Seek, SeekRequest, Store, StoreError};
use ephor_core::time::Timestamp;

/// The error of an administrative call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The store failed, and a change may or may not have taken effect; reading the group tells.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The hub failed. Nothing was changed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// There is no such partition.
    #[error("the hub has no partition {partition}; it has {partitions}, from 0 on")]
    UnknownPartition {
        /// The partition that was named.
        partition: PartitionId,
        /// The number of partitions of the hub.
        partitions: usize,
    },
    /// There is no such event.
    #[error("partition {partition} has no event {wanted}: {}", kept(*first, *end))]
    OutOfRange {
        /// The partition.
        partition: PartitionId,
        /// The event that was named.
        wanted: SequenceNumber,
        /// The oldest event kept.
        first: SequenceNumber,
        /// The next event to come.
        end: SequenceNumber,
    },
    /// A relative seek in a partition without a checkpoint.
    #[error(
        "partition {partition} has no checkpoint yet, so there is nothing to step from; name a sequence number, \
         a time, earliest or latest"
    )]
    NoCheckpoint {
        /// The partition.
        partition: PartitionId,
    },
    /// There is no such host.
    #[error(
        "no host {wanted:?} in this group; there {}",
        if known.is_empty() { "is none".into() } else { format!("are: {}", known.join(", ")) }
    )]
    UnknownHost {
        /// The name that was given.
        wanted: String,
        /// The known hosts.
        known: Vec<String>,
    },
}

/// The events that are kept, in words.
fn kept(first: SequenceNumber, end: SequenceNumber) -> String {
    match end.0.checked_sub(1) {
        Some(last) if end > first => format!("it keeps {first} to {last}, and {end} is the next to come"),
        _ => format!("it keeps none, and {end} is the next to come"),
    }
}

/// The target of a seek.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// To the oldest event kept.
    Earliest,
    /// After the newest event.
    Latest,
    /// So that this event is the next.
    Sequence(SequenceNumber),
    /// So that the event at this offset is the next.
    Offset(Offset),
    /// So that the first event enqueued at this time or later is the next.
    Time(Timestamp),
    /// This many events forward (or back, if negative) from the checkpoint.
    By(i64),
}

/// The effect of a seek on one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeekStep {
    /// The partition.
    pub partition: PartitionId,
    /// The position before.
    pub from: Option<Position>,
    /// The position after.
    pub to: Position,
    /// The number of events that are skipped, or repeated if negative; `None` if unknown. Without a
    /// checkpoint it is counted from the oldest event that is kept.
    pub distance: Option<i64>,
    /// The owner that will notice it.
    pub owner: Option<HostId>,
    /// The outcome; `None` for a dry run.
    pub outcome: Option<SeekOutcome>,
}

impl fmt::Display for SeekStep {
    /// `partition 0: after 901 -> at sequence number 891, 10 events repeated`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.from.as_ref().map_or("no checkpoint".into(), |from| from.start().to_string());
        write!(f, "partition {}: {from} -> {}", self.partition, self.to.start())?;
        match self.distance {
            Some(0) => write!(f, ", no event skipped or repeated")?,
            Some(skipped @ 1..) => write!(f, ", {skipped} events skipped")?,
            Some(repeated) => write!(f, ", {} events repeated", repeated.unsigned_abs())?,
            None => {}
        }
        match &self.outcome {
            None => Ok(()),
            Some(SeekOutcome::Done(epoch)) => write!(f, ", done in epoch {epoch}"),
            Some(SeekOutcome::ForeignOwner(owner)) => {
                write!(f, ", not done: its owner {owner} is another SDK's and would not notice")
            }
        }
    }
}

/// The outcome of a seek.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeekOutcome {
    /// Done, in this epoch.
    Done(Epoch),
    /// The owner is another SDK's processor and would not notice; nothing was changed. Use
    /// [`SeekMode::Force`] to do it nevertheless.
    ForeignOwner(String),
}

/// The mode of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekMode {
    /// Only report what would happen.
    DryRun,
    /// Do it.
    Apply,
    /// Do it even if the owner is another SDK's processor.
    Force,
}

/// A group, seen from outside.
#[derive(Clone)]
pub struct Admin {
    store: Arc<dyn Store>,
    source: Arc<dyn EventSource>,
    group: GroupId,
    by: String,
}

impl Admin {
    /// The administration of `group`. `by` is written into the history of the changes.
    pub fn new(
        store: Arc<dyn Store>,
        source: Arc<dyn EventSource>,
        group: GroupId,
        by: impl Into<String>,
    ) -> Self {
        Self { store, source, group, by: by.into() }
    }

    /// All hosts with a record, and the age of the record.
    pub async fn hosts(&self) -> Result<Vec<HostEntry>, AdminError> {
        Ok(self.store.view(&self.group).await?.hosts)
    }

    /// All leases.
    pub async fn leases(&self) -> Result<Vec<Lease>, AdminError> {
        Ok(self.store.view(&self.group).await?.leases)
    }

    /// All checkpoints.
    pub async fn checkpoints(&self) -> Result<Vec<(PartitionId, Checkpoint)>, AdminError> {
        Ok(self.store.view(&self.group).await?.checkpoints)
    }

    /// The last changes of ownership, newest first, of one partition or of all.
    pub async fn history(
        &self,
        partition: Option<PartitionId>,
        max: usize,
    ) -> Result<Vec<OwnershipChange>, AdminError> {
        Ok(self.store.history(&self.group, partition, max).await?)
    }

    /// Moves the position of these partitions, each once, or of all if none is named. All positions
    /// are resolved before the first one is changed.
    pub async fn seek(
        &self,
        partitions: &[PartitionId],
        to: &SeekTo,
        mode: SeekMode,
    ) -> Result<Vec<SeekStep>, AdminError> {
        let hub = self.source.hub_properties().await?;
        self.group_exists(&hub).await?;
        for partition in partitions {
            if !hub.partitions.contains(partition) {
                let partitions = hub.partitions.len();
                return Err(AdminError::UnknownPartition { partition: *partition, partitions });
            }
        }
        let chosen: BTreeSet<PartitionId> =
            if partitions.is_empty() { &hub.partitions[..] } else { partitions }.iter().copied().collect();
        let view = self.store.view(&self.group).await?;
        let mut steps = vec![];
        for partition in chosen {
            let properties = self.source.partition_properties(partition).await?;
            let from = view.checkpoint(partition).map(|checkpoint| checkpoint.position.clone());
            let target = resolve(to, from.as_ref(), &properties)?;
            let distance = distance(from.as_ref(), &target, &properties);
            let owner = view.lease(partition).and_then(|lease| lease.owner.clone());
            steps.push(SeekStep { partition, from, to: target, distance, owner, outcome: None });
        }
        if mode != SeekMode::DryRun {
            for step in &mut steps {
                step.outcome = Some(self.carry_out(step, hub.log.clone(), mode == SeekMode::Force).await?);
            }
        }
        Ok(steps)
    }

    /// Checks that the group exists: a seek in one that does not would look as if it had worked.
    async fn group_exists(&self, hub: &HubProperties) -> Result<(), AdminError> {
        let Some(&partition) = hub.partitions.first() else { return Ok(()) };
        match self.source.open(OpenRequest::probe(&self.group.group, partition, &self.by)).await {
            Err(OpenError::Source(error)) => Err(error.into()),
            // Opened, or refused because another receiver reads it: it exists.
            _ => Ok(()),
        }
    }

    async fn carry_out(
        &self,
        step: &SeekStep,
        log: Option<LogId>,
        force: bool,
    ) -> Result<SeekOutcome, AdminError> {
        let request = SeekRequest {
            partition: step.partition,
            position: step.to.clone(),
            log,
            by: self.by.clone(),
            force,
        };
        Ok(match self.store.seek(&self.group, &request).await? {
            Seek::Done { epoch } => SeekOutcome::Done(epoch),
            Seek::ForeignOwner { owner } => SeekOutcome::ForeignOwner(owner),
        })
    }

    /// Asks a host to hand over all its partitions and take no new ones. The host is given by its
    /// name or by its full id.
    pub async fn drain(&self, host: &str) -> Result<Vec<HostId>, AdminError> {
        self.set_desired_state(host, DesiredState { drain: true }).await
    }

    /// Cancels a [`drain`](Self::drain).
    pub async fn undrain(&self, host: &str) -> Result<Vec<HostId>, AdminError> {
        self.set_desired_state(host, DesiredState { drain: false }).await
    }

    async fn set_desired_state(
        &self,
        wanted: &str,
        desired: DesiredState,
    ) -> Result<Vec<HostId>, AdminError> {
        set_desired_state(&*self.store, &self.group, wanted, desired).await
    }
}

/// Sets the desired state of a host, which is given by its name or by its full id. Needs no
/// hub.
pub async fn set_desired_state(
    store: &dyn Store,
    group: &GroupId,
    wanted: &str,
    desired: DesiredState,
) -> Result<Vec<HostId>, AdminError> {
    let hosts = store.view(group).await?.hosts;
    let ids = hosts.iter().map(|entry| &entry.record.id);
    let named = ids.clone().filter(|id| id.name.as_str() == wanted || id.to_string() == wanted);
    let mut found = vec![];
    for id in named {
        if store.set_desired_state(group, id, desired).await? {
            found.push(id.clone());
        }
    }
    if found.is_empty() {
        let known = ids.map(|id| id.name.to_string()).collect();
        return Err(AdminError::UnknownHost { wanted: wanted.into(), known });
    }
    Ok(found)
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Admin({})", self.group)
    }
}

/// Resolves a seek target to a position.
fn resolve(
    to: &SeekTo,
    from: Option<&Position>,
    partition: &PartitionProperties,
) -> Result<Position, AdminError> {
    let (first, end) = (partition.first, partition.next);
    Ok(Position::Start(match to {
        SeekTo::Earliest => StartPosition::Earliest,
        SeekTo::Latest => StartPosition::at(end),
        SeekTo::Sequence(wanted) if (first..=end).contains(wanted) => StartPosition::at(*wanted),
        SeekTo::Sequence(wanted) => {
            return Err(AdminError::OutOfRange { partition: partition.id, wanted: *wanted, first, end });
        }
        SeekTo::Offset(offset) => StartPosition::Offset { offset: offset.clone(), inclusive: true },
        SeekTo::Time(time) => StartPosition::EnqueuedTime(*time),
        SeekTo::By(events) => {
            let next = from.and_then(|from| next_event(from, partition));
            let next = next.ok_or(AdminError::NoCheckpoint { partition: partition.id })?;
            StartPosition::at(SequenceNumber(next.0.saturating_add_signed(*events).clamp(first.0, end.0)))
        }
    }))
}

/// The event that is read next from this position, if known.
fn next_event(position: &Position, partition: &PartitionProperties) -> Option<SequenceNumber> {
    match position.start() {
        StartPosition::Earliest => Some(partition.first),
        StartPosition::Latest => Some(partition.next),
        StartPosition::Sequence { number, inclusive: true } => Some(number),
        StartPosition::Sequence { number, inclusive: false } => Some(number.next()),
        StartPosition::Offset { .. } | StartPosition::EnqueuedTime(_) => None,
    }
}

fn distance(from: Option<&Position>, to: &Position, partition: &PartitionProperties) -> Option<i64> {
    let from = from.map_or(Some(partition.first), |from| next_event(from, partition))?;
    let to = next_event(to, partition)?;
    i64::try_from(i128::from(to.0) - i128::from(from.0)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ephor_core::source::LastEnqueued;

    fn partition() -> PartitionProperties {
        let last = LastEnqueued {
            sequence: SequenceNumber(19),
            offset: Offset::number(190),
            enqueued_at: Timestamp(0),
        };
        PartitionProperties::without_gap(PartitionId(0), SequenceNumber(10), Some(last))
    }

    fn finished(sequence: u64) -> Position {
        Position::Finished { sequence: SequenceNumber(sequence), offset: None, enqueued_at: None }
    }

    fn at(sequence: u64) -> Position {
        Position::Start(StartPosition::at(SequenceNumber(sequence)))
    }

    #[test]
    fn wishes_become_positions_within_what_is_kept() {
        let partition = partition();
        let to = |to: SeekTo, from: Option<Position>| resolve(&to, from.as_ref(), &partition).unwrap();
        assert_eq!(to(SeekTo::Earliest, None), Position::Start(StartPosition::Earliest));
        assert_eq!(to(SeekTo::Latest, None), at(20));
        assert_eq!(to(SeekTo::Sequence(SequenceNumber(10)), None), at(10));
        assert_eq!(to(SeekTo::Sequence(SequenceNumber(20)), None), at(20));
        assert_eq!(to(SeekTo::By(3), Some(finished(12))), at(16));
        assert_eq!(to(SeekTo::By(-2), Some(finished(12))), at(11));
        assert_eq!(to(SeekTo::By(-99), Some(finished(12))), at(10));
        assert_eq!(to(SeekTo::By(99), Some(finished(12))), at(20));
        let nowhere = resolve(&SeekTo::By(1), None, &partition).unwrap_err().to_string();
        assert!(nowhere.starts_with("partition 0 has no checkpoint yet"), "{nowhere}");
        assert_eq!(to(SeekTo::By(1), Some(at(15))), at(16));
        for wanted in [9, 21] {
            let error = resolve(&SeekTo::Sequence(SequenceNumber(wanted)), None, &partition).unwrap_err();
            let kept = "it keeps 10 to 19, and 20 is the next to come";
            assert_eq!(error.to_string(), format!("partition 0 has no event {wanted}: {kept}"));
        }
        let empty = PartitionProperties::without_gap(partition.id, partition.first, None);
        let error = resolve(&SeekTo::Sequence(SequenceNumber(9)), None, &empty).unwrap_err();
        let kept = "it keeps none, and 10 is the next to come";
        assert_eq!(error.to_string(), format!("partition 0 has no event 9: {kept}"));
    }

    #[test]
    fn a_dry_run_says_how_many_events_are_skipped_or_repeated() {
        let partition = partition();
        let step = |to: Position| SeekStep {
            partition: PartitionId(0),
            from: Some(finished(12)),
            distance: distance(Some(&finished(12)), &to, &partition),
            to,
            owner: None,
            outcome: None,
        };
        let words = |to| step(to).to_string();
        assert_eq!(
            words(at(10)),
            "partition 0: after sequence number 12 -> at sequence number 10, 3 events repeated"
        );
        assert!(words(at(16)).ends_with(", 3 events skipped"));
        assert!(words(at(13)).ends_with(", no event skipped or repeated"));
        assert_eq!(distance(Some(&finished(12)), &at(16), &partition), Some(3));
        assert_eq!(distance(Some(&finished(12)), &at(10), &partition), Some(-3));
        let earliest = Position::Start(StartPosition::Earliest);
        assert_eq!(distance(Some(&finished(12)), &earliest, &partition), Some(-3));
        assert_eq!(distance(None, &at(12), &partition), Some(2));
        let time = Position::Start(StartPosition::EnqueuedTime(Timestamp(5)));
        assert_eq!(distance(Some(&finished(12)), &time, &partition), None);
    }
}
