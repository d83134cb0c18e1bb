//! The source interface, through which a host reads the events of a hub.
//!
//! An implementation keeps two promises on which the host builds. Dropping the future of
//! [`Receiver::receive`] loses no event: the next call yields it. And a receiver that lost its link
//! reconnects by itself and resumes right after the last event that it yielded, never at the
//! position with which it was opened. A receiver with epoch 0, and every receiver of a source that
//! does not fence readers, reports the loss instead: nobody is fenced there, so the caller must
//! first make sure that it still owns the partition.

use std::sync::Arc;

use crate::BoxError;
use crate::BoxFuture;
use crate::causes::with_causes;
use crate::epoch::Epoch;
use crate::event::Event;
use crate::ids::{ConsumerGroup, HubName, LogId, Namespace, PartitionId};
use crate::position::{Offset, SequenceNumber, StartPosition};
use crate::time::Timestamp;

/// The properties of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubProperties {
    /// Its partitions, in order.
    pub partitions: Vec<PartitionId>,
    /// Identifies this life of the hub's log, if the source can tell.
    pub log: Option<LogId>,
}

/// The newest event of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastEnqueued {
    /// Its number.
    pub sequence: SequenceNumber,
    /// Its offset in the log.
    pub offset: Offset,
    /// The time at which it was stored, by the hub's clock.
    pub enqueued_at: Timestamp,
}

/// The properties of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionProperties {
    /// The partition.
    pub id: PartitionId,
    /// The number of the oldest event that is kept; that of the next event to come if none is kept.
    pub first: SequenceNumber,
    /// The newest event that was ever stored, even if it is no longer kept.
    pub last: Option<LastEnqueued>,
    /// The number of the next event to come. There is a gap after [`last`](Self::last) if the hub
    /// passed over numbers, so that no number is used twice.
    pub next: SequenceNumber,
}

impl PartitionProperties {
    /// The properties of a partition without a gap: the next event comes right after the last.
    pub fn without_gap(id: PartitionId, first: SequenceNumber, last: Option<LastEnqueued>) -> Self {
        let next = last.as_ref().map_or(first, |last| last.sequence.next().max(first));
        Self { id, first, last, next }
    }
}

/// The optional features of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceCapabilities {
    /// The hub disconnects the reader of a partition when another one opens with the same or a
    /// higher epoch, and refuses lower epochs, as Event Hubs does. If it does not, any number of
    /// readers read side by side, whatever their epochs: a host then reads with epoch 0, and has
    /// the store confirm its lease before every attach.
    pub fences_readers: bool,
}

impl SourceCapabilities {
    /// The capabilities of Event Hubs.
    pub const EVENT_HUBS: Self = Self { fences_readers: true };

    /// The capabilities of a log that anybody may read at any time.
    pub const PLAIN_LOG: Self = Self { fences_readers: false };
}

/// A request to open a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The consumer group.
    pub group: ConsumerGroup,
    /// The partition.
    pub partition: PartitionId,
    /// The position at which to start.
    pub start: StartPosition,
    /// The owner's epoch. A receiver without one shares the partition with others. [`Epoch::NONE`]
    /// is the epoch of processors that know no epochs: the one that attached last reads. A source
    /// that does not fence readers ignores it.
    pub epoch: Option<Epoch>,
    /// The name of this receiver that the hub shows to others.
    pub receiver: String,
    /// The most events that may wait on this side.
    pub prefetch_events: usize,
    /// The approximate limit of the bytes that may wait on this side.
    pub prefetch_bytes: usize,
}

impl OpenRequest {
    /// A request for a receiver that nobody will read, to check that the group exists. Without an
    /// epoch it disconnects nobody.
    pub fn probe(group: &ConsumerGroup, partition: PartitionId, who: &str) -> Self {
        Self {
            group: group.clone(),
            partition,
            start: StartPosition::Latest,
            epoch: None,
            receiver: format!("{who}-probe"),
            prefetch_events: 1,
            prefetch_bytes: 1,
        }
    }
}

/// An error of a hub that cannot answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The hub, the consumer group or the partition does not exist.
    #[error("{what} does not exist")]
    NotFound {
        /// The missing thing.
        what: String,
    },
    /// The credentials do not permit it.
    #[error("not permitted: {message}")]
    Unauthorized {
        /// The message of the hub.
        message: String,
    },
    /// The client is configured in a way that can never reach the hub, for example without TLS
    /// although the hub requires it. A retry changes nothing.
    #[error("{message}")]
    Misconfigured {
        /// The conflict, and the setting that would be right.
        message: String,
    },
    /// The hub cannot be reached or is busy; a retry may succeed.
    #[error("the hub is not available: {}", with_causes(&**.0))]
    Unavailable(#[source] BoxError),
}

/// The reason why a receiver does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is a receiver with a higher epoch.
    #[error("{message}")]
    Refused {
        /// The epoch of the present receiver.
        epoch: Option<Epoch>,
        /// Its name.
        by: Option<String>,
        /// The message of the hub.
        message: String,
    },
    /// The limit of receivers without an epoch is reached.
    #[error("{message}")]
    TooManyReceivers {
        /// The message of the hub.
        message: String,
    },
    /// The hub does not know the position.
    #[error("no such position: {message}")]
    InvalidPosition {
        /// The message of the hub.
        message: String,
    },
    /// The hub cannot answer.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// The reason why a receiver yields no more events.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Another receiver took its place.
    #[error("{message}")]
    Disconnected {
        /// The other's epoch.
        epoch: Option<Epoch>,
        /// The other's name.
        by: Option<String>,
        /// The message of the hub.
        message: String,
    },
    /// The link is lost for good; opening a new receiver may help.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// A hub, as its readers see it.
pub trait EventSource: Send + Sync + 'static {
    /// The namespace of the hub.
    fn namespace(&self) -> &Namespace;

    /// The hub's name.
    fn hub(&self) -> &HubName;

    /// The endpoint of the hub, for people: it differs between hubs of the same name. By
    /// default the namespace and the name.
    fn endpoint(&self) -> String {
        format!("{}/{}", self.namespace(), self.hub())
    }

    /// The optional features of this source. A source that wraps another returns its capabilities.
    fn capabilities(&self) -> SourceCapabilities;

    /// The hub's partitions, and its log.
    fn hub_properties(&self) -> BoxFuture<'_, Result<HubProperties, SourceError>>;

    /// The oldest kept, the newest and the next event of a partition.
    fn partition_properties(
        &self,
        partition: PartitionId,
    ) -> BoxFuture<'_, Result<PartitionProperties, SourceError>>;

    /// The number of bytes that have come from the hub so far: while it grows, the connection is
    /// slow and not dead. Always zero if the source does not count them.
    fn received_bytes(&self) -> u64 {
        0
    }

    /// Opens a receiver.
    fn open(&self, request: OpenRequest) -> BoxFuture<'_, Result<Box<dyn Receiver>, OpenError>>;
}

/// A source that is chosen at run time is a source, too.
impl<S: EventSource + ?Sized> EventSource for Arc<S> {
    fn namespace(&self) -> &Namespace {
        (**self).namespace()
    }

    fn hub(&self) -> &HubName {
        (**self).hub()
    }

    fn endpoint(&self) -> String {
        (**self).endpoint()
    }

    fn capabilities(&self) -> SourceCapabilities {
        (**self).capabilities()
    }

    fn hub_properties(&self) -> BoxFuture<'_, Result<HubProperties, SourceError>> {
        (**self).hub_properties()
    }

    fn partition_properties(
        &self,
        partition: PartitionId,
    ) -> BoxFuture<'_, Result<PartitionProperties, SourceError>> {
        (**self).partition_properties(partition)
    }

    fn received_bytes(&self) -> u64 {
        (**self).received_bytes()
    }

    fn open(&self, request: OpenRequest) -> BoxFuture<'_, Result<Box<dyn Receiver>, OpenError>> {
        (**self).open(request)
    }
}

/// One reader of one partition.
pub trait Receiver: Send {
    /// Waits until there is at least one event, and appends at most `max` of them to `into`, in
    /// order. `into` is untouched until the future is ready, and dropping the future loses nothing.
    /// After an error the receiver may be called again or replaced by a new one; a disconnected
    /// receiver stays disconnected.
    fn receive<'a>(
        &'a mut self,
        into: &'a mut Vec<Event>,
        max: usize,
    ) -> BoxFuture<'a, Result<(), ReceiveError>>;

    /// The newest event of the partition, as the hub reported it with the last delivery; `None` if
    /// it does not report it.
    fn last_enqueued(&self) -> Option<LastEnqueued>;

    /// The id of the log that it reads, which was asked for after it was opened; `None` if the
    /// source does not know it.
    fn log(&self) -> Option<LogId> {
        None
    }

    /// Closes the receiver, so that the hub knows at once. Dropping it does the same without
    /// waiting for it.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}
