//! The errors of a host that runs: of store calls, checkpoints, processors, partitions and the host, with
//! messages for the person on call. `StartError` is in `host/mod.rs`, `BuildError` in `builder.rs`.
//!
//! The message of an error contains the messages of its causes, so it is complete by itself. The causes are fields, for
//! programs that decide by them, and the `source`. A program that prints a whole chain uses
//! [`with_causes`], which prints nothing twice.

mod messages;
#[cfg(feature = "serde")]
mod serde_text;

use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxError;
use ephor_core::causes::with_causes;
use ephor_core::epoch::Epoch;
use ephor_core::host_record::ReadHub;
use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::position::SequenceNumber;
use ephor_core::resume::PositionGone;
use ephor_core::source::{OpenError, SourceError};
use ephor_core::store::StoreError;

use self::messages::{seek_command, since_when, skipped_before};

pub(crate) use self::messages::another_hub;

/// A store call that did not succeed. It may or may not have taken effect.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreCallError {
    /// No answer in time.
    #[error("no answer from the store within {after:?} (store_timeout)")]
    TimedOut {
        /// The timeout.
        after: Duration,
    },
    /// The store returned an error.
    #[error(transparent)]
    Failed(Arc<StoreError>),
}

/// The error of a checkpoint that could not be written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The store failed, and the checkpoint may or may not be written. It is safe to retry.
    #[error("the checkpoint may not have been written: {0}")]
    Store(#[from] StoreCallError),
    /// The event has not been delivered to this processor.
    #[error("event {sequence} has not been delivered to this processor")]
    NotDelivered {
        /// The event.
        sequence: SequenceNumber,
    },
}

/// The error of a call to the processor.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessorError {
    /// It returned an error.
    #[error("{}", with_causes(&**.0))]
    Failed(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// It panicked. The instance is discarded.
    #[error("the processor panicked: {message}")]
    Panicked {
        /// The panic message.
        message: String,
    },
    /// It took longer than `process_timeout`, or `close` took longer than the time that was left,
    /// and it was given up.
    #[error("it did not return within {after:?} and was given up")]
    TimedOut {
        /// The timeout.
        after: Duration,
    },
}

impl From<BoxError> for ProcessorError {
    fn from(error: BoxError) -> Self {
        Self::Failed(Arc::from(error))
    }
}

/// The errors that [`EventProcessor::process_error`](crate::EventProcessor::process_error)
/// receives.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionError {
    /// `process_events` failed; the failure policy decides the next step.
    #[error("events {first} to {last} failed (attempt {attempt}): {error}")]
    Processing {
        /// The first event of the batch.
        first: SequenceNumber,
        /// The last event of the batch.
        last: SequenceNumber,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The error.
        #[source]
        error: ProcessorError,
    },
    /// The failure policy skipped an event. It will not be delivered again.
    #[error("event {sequence} is skipped after {attempts} attempts: {error}")]
    Skipped {
        /// The event.
        sequence: SequenceNumber,
        /// The number of attempts at this event alone.
        attempts: u32,
        /// The last error.
        #[source]
        error: ProcessorError,
    },
    /// The hub could not be read.
    #[error("the partition could not be read: {error}")]
    Source {
        /// The error of the source.
        #[source]
        error: Arc<OpenError>,
    },
    /// Events that were never delivered do not exist, or are skipped because `on_invalid_position`
    /// says so.
    #[error("{cause}; reading goes on at {resumes_at}{}", skipped_before(*resumes_at, *skipped))]
    PositionGone {
        /// The reason.
        cause: PositionGone,
        /// The event at which reading goes on.
        resumes_at: SequenceNumber,
        /// The number of events right before it that the hub keeps, and that are skipped. Numbers
        /// that no event has count, too.
        skipped: u64,
    },
    /// The log has so many gaps that they are no longer reported one by one: those since the last
    /// report, at most once a minute. Gaps from right before a partition closes go only to the log
    /// and the error handler.
    #[error(
        "{gone} more events are gone in {gaps} gaps from {first} to {} (removed, damaged, or their numbers were never \
         used, as in a compacted log); reading goes on at {resumes_at}",
        resumes_at.0.saturating_sub(1)
    )]
    Gaps {
        /// The number of gaps.
        gaps: u64,
        /// The number of missing events in all of them.
        gone: u64,
        /// The first missing event.
        first: SequenceNumber,
        /// The event after the last gap.
        resumes_at: SequenceNumber,
    },
    /// A checkpoint that the policy asked for could not be written.
    #[error("the checkpoint could not be written: {error}")]
    Checkpoint {
        /// The error.
        #[source]
        error: CheckpointError,
    },
}

/// An error inside the host, for the log and the error handler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A store call did not succeed.
    #[error("store: {operation} failed, the store {}: {error}", since_when(*failing_for))]
    Store {
        /// The operation of the store.
        operation: &'static str,
        /// The partition, if the call was for one.
        partition: Option<PartitionId>,
        /// The time since the first failure without a success in between.
        failing_for: Duration,
        /// The error.
        #[source]
        error: StoreCallError,
    },
    /// The hub's properties could not be read.
    #[error("the hub could not be read: {error}")]
    Hub {
        /// The error.
        #[source]
        error: SourceError,
    },
    /// Another host that is alive has the same name.
    #[error(
        "another host runs under the name {:?} (as {other}); both work, each with partitions of its own, \
         but people cannot tell them apart: give each a name of its own",
        other.name.as_str()
    )]
    NameInUse {
        /// The other host.
        other: HostId,
    },
    /// A host of the same group, in the same store, reads another hub.
    #[error("{}", another_hub(ours, host, theirs))]
    AnotherHub {
        /// The hub that this host reads.
        ours: ReadHub,
        /// The other host.
        host: HostId,
        /// The hub that it reads.
        theirs: ReadHub,
    },
    /// The store's clock and ours advanced differently; nobody was declared dead in this scan.
    #[error(
        "the store's clock jumped, so no lease counts as expired in this scan; if this repeats, check the time \
         synchronisation (NTP) of the store's machine and of this one"
    )]
    ClockSkew,
    /// A partition's processor could not be created or opened.
    #[error("partition {partition}: the processor does not open: {error}")]
    OpenFailed {
        /// The partition.
        partition: PartitionId,
        /// The error.
        #[source]
        error: ProcessorError,
    },
    /// A partition's processor failed to close.
    #[error(
        "partition {partition}: the processor failed to close, so the policy writes no final checkpoint: {error}"
    )]
    CloseFailed {
        /// The partition.
        partition: PartitionId,
        /// The error.
        #[source]
        error: ProcessorError,
    },
    /// An error that the partition's processor received, too.
    #[error("partition {partition}: {error}")]
    Partition {
        /// The partition.
        partition: PartitionId,
        /// The error.
        #[source]
        error: PartitionError,
    },
    /// The position to resume from does not exist, and by the options the partition waits for a
    /// seek.
    #[error(
        "partition {partition} is halted until an operator seeks: {cause}; to go on, run `{}`, which shows what would \
         happen, and then the same with --yes",
        seek_command(group, *partition, cause)
    )]
    Halted {
        /// The consumer group of the hub.
        group: GroupId,
        /// The partition.
        partition: PartitionId,
        /// The reason.
        cause: PositionGone,
    },
    /// A foreign reader took the partition with a newer epoch.
    #[error(
        "partition {partition}: a foreign reader ({}) took it with epoch {epoch}; claiming it back, attempt {attempt}",
        by.as_deref().unwrap_or("without a name")
    )]
    ForeignReader {
        /// The partition.
        partition: PartitionId,
        /// The reader's name, if it has one.
        by: Option<String>,
        /// Its epoch.
        epoch: Epoch,
        /// The number of times that this happened in a row.
        attempt: u32,
    },
    /// A foreign reader holds the partition with an epoch above which no host claims
    /// ([`Epoch::MAX_FOREIGN`]).
    #[error(
        "partition {partition}: a foreign reader ({}) holds it with epoch {epoch}, and no host claims above {}; \
         nothing of the partition is processed until that reader is gone: stop that reader, or revoke its right to \
         listen; trying again, attempt {attempt}",
        by.as_deref().unwrap_or("without a name"),
        Epoch::MAX_FOREIGN
    )]
    ForeignReaderBeyondReach {
        /// The partition.
        partition: PartitionId,
        /// The reader's name, if it has one.
        by: Option<String>,
        /// Its epoch.
        epoch: Epoch,
        /// The number of times that this happened in a row.
        attempt: u32,
    },
    /// With processors of other SDKs in the group, which know no epochs: one of them reads a
    /// partition whose lease is ours.
    #[error(
        "partition {partition}: another reader ({}) took our place at the hub, although the lease is ours; reading \
         again in a moment, attempt {attempt}",
        by.as_deref().unwrap_or("without a name")
    )]
    Displaced {
        /// The partition.
        partition: PartitionId,
        /// The reader's name, if it has one.
        by: Option<String>,
        /// The number of times that this happened in a row.
        attempt: u32,
    },
    /// The lease could not be renewed in time, so the host stopped by itself (self-fencing).
    #[error(
        "partition {partition}: stopped by itself, its lease was not renewed in time{}",
        store_failing_for.map_or_else(String::new, |time| format!(
            "; the store {}, and work resumes when it is back", since_when(time)
        ))
    )]
    SelfFenced {
        /// The partition.
        partition: PartitionId,
        /// The time for which the store has been failing, if it is.
        store_failing_for: Option<Duration>,
    },
    /// A call to the processor blocks its thread, or does not end when it is dropped.
    #[error(
        "partition {partition}: a call to the processor has not returned for {running:?} and cannot be given up; \
         its lease will expire"
    )]
    Stuck {
        /// The partition.
        partition: PartitionId,
        /// The time for which the call has run.
        running: Duration,
    },
    /// Finished events could not be saved before the partition was given away.
    #[error("partition {partition}: given away without its final checkpoint, events will be repeated")]
    FinalCheckpointMissing {
        /// The partition.
        partition: PartitionId,
    },
    /// A task of the host panicked, in its own code or in the store's. It goes on.
    #[error(
        "the {task} of this host panicked: {message}; it goes on, and unless your own store did it, please report it"
    )]
    TaskPanicked {
        /// The task.
        task: &'static str,
        /// The panic message.
        message: String,
    },
    /// A task without which the host cannot work has ended with a panic. The host serves nothing
    /// any more.
    #[error(
        "the {task} of this host panicked and has ended: {message}; its partitions are free when their leases expire, \
         and other hosts take them: restart this host, and please report it"
    )]
    TaskEnded {
        /// The task.
        task: &'static str,
        /// The panic message.
        message: String,
    },
    /// A record in the store cannot be read.
    #[error("a record in the store is damaged: {what}")]
    Damaged {
        /// The record, and its fault.
        what: String,
    },
    /// Partitions have no owner, because no host may take them.
    #[error(
        "{partitions} partitions have no owner, because every host is at its max_partitions, draining or unhealthy"
    )]
    PartitionsWithoutOwner {
        /// The number of these partitions.
        partitions: usize,
    },
}

#[cfg(test)]
mod tests;
