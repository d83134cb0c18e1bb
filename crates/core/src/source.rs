//! The seam to a hub: where events come from.
//!
//! An implementation keeps two promises that the host builds on. Dropping the
//! future of [`Receiver::receive`] loses no event: the next call yields it. And
//! a receiver that lost its link resumes by itself right behind the last event
//! it handed out, never at the position it was opened with. One with epoch 0
//! tells of the loss instead: that epoch keeps nobody out, so whoever opened it
//! must make sure that the partition is still its own.

use crate::BoxError;
use crate::BoxFuture;
use crate::epoch::Epoch;
use crate::event::Event;
use crate::ids::{ConsumerGroup, HubName, LogId, Namespace, PartitionId};
use crate::position::{Offset, SequenceNumber, StartPosition};
use crate::time::Timestamp;

/// What a hub says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubProperties {
    /// Its partitions, in order.
    pub partitions: Vec<PartitionId>,
    /// Names this life of the hub's log, where the source can tell.
    pub log: Option<LogId>,
}

/// The newest event of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastEnqueued {
    /// Its number.
    pub sequence: SequenceNumber,
    /// Its place in the log.
    pub offset: Offset,
    /// When it was stored, by the hub's clock.
    pub enqueued_at: Timestamp,
}

/// What a partition says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionProperties {
    /// Which partition.
    pub id: PartitionId,
    /// The oldest event that is kept; the next one to come if none is.
    pub first: SequenceNumber,
    /// The newest event that was ever stored, even if it is no longer kept.
    pub last: Option<LastEnqueued>,
    /// The number of the next event to come. It is further than right behind [`last`](Self::last) where a hub passed
    /// over numbers, so that none is given out twice.
    pub next: SequenceNumber,
}

impl PartitionProperties {
    /// Those of a partition whose numbers follow one another: the next event comes right behind the last.
    pub fn without_gap(id: PartitionId, first: SequenceNumber, last: Option<LastEnqueued>) -> Self {
        let next = last.as_ref().map_or(first, |last| last.sequence.next().max(first));
        Self { id, first, last, next }
    }
}

/// What a receiver is opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// The consumer group.
    pub group: ConsumerGroup,
    /// The partition.
    pub partition: PartitionId,
    /// Where to begin.
    pub start: StartPosition,
    /// The owner's epoch; without one the receiver shares the partition with others. [`Epoch::NONE`] is that of
    /// processors that know no epochs: the last of them that came reads.
    pub epoch: Option<Epoch>,
    /// What the hub calls this receiver when it tells another about it.
    pub receiver: String,
    /// At most this many events wait on this side.
    pub prefetch_events: usize,
    /// At most about this many bytes wait on this side.
    pub prefetch_bytes: usize,
}

impl OpenRequest {
    /// A receiver that nobody means to read: without epoch it disturbs nobody, and whether it
    /// opens tells whether the group exists.
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

/// A hub that cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The hub, the consumer group or the partition does not exist.
    #[error("{what} does not exist")]
    NotFound {
        /// What does not.
        what: String,
    },
    /// The credentials do not permit it.
    #[error("not permitted: {message}")]
    Unauthorized {
        /// What the hub said.
        message: String,
    },
    /// The client is set up so that it cannot reach the hub at all, for example without TLS where the hub wants it.
    /// Trying again changes nothing.
    #[error("{message}")]
    Misconfigured {
        /// What does not go together, and what to write instead.
        message: String,
    },
    /// The hub cannot be reached or is busy; it may pass.
    #[error("the hub is not available: {0}")]
    Unavailable(#[source] BoxError),
}

/// Why a receiver does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A receiver with a higher epoch is there.
    #[error("{message}")]
    Refused {
        /// The epoch of the receiver that is there.
        epoch: Option<Epoch>,
        /// Its name.
        by: Option<String>,
        /// What the hub said.
        message: String,
    },
    /// All places for receivers without epoch are taken.
    #[error("{message}")]
    TooManyReceivers {
        /// What the hub said.
        message: String,
    },
    /// The hub knows no such position.
    #[error("no such position: {message}")]
    InvalidPosition {
        /// What the hub said.
        message: String,
    },
    /// The hub cannot answer.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Why a receiver yields no more.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// Another receiver took its place.
    #[error("{message}")]
    Disconnected {
        /// The other's epoch.
        epoch: Option<Epoch>,
        /// The other's name.
        by: Option<String>,
        /// What the hub said.
        message: String,
    },
    /// The link is gone for good; opening anew may help.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// A hub, seen by those who read it.
pub trait EventSource: Send + Sync + 'static {
    /// Where the hub lives.
    fn namespace(&self) -> &Namespace;

    /// The hub's name.
    fn hub(&self) -> &HubName;

    /// Where the hub is, for people: what tells it from another of the same name. By default its namespace and name.
    fn endpoint(&self) -> String {
        format!("{}/{}", self.namespace(), self.hub())
    }

    /// The hub's partitions, and which log this is.
    fn hub_properties(&self) -> BoxFuture<'_, Result<HubProperties, SourceError>>;

    /// Where a partition begins and ends.
    fn partition_properties(
        &self,
        partition: PartitionId,
    ) -> BoxFuture<'_, Result<PartitionProperties, SourceError>>;

    /// Opens a receiver.
    fn open(&self, request: OpenRequest) -> BoxFuture<'_, Result<Box<dyn Receiver>, OpenError>>;
}

/// One reader of one partition.
pub trait Receiver: Send {
    /// Waits until there is at least one event, and appends at most `most` of
    /// them to `into`, in order. `into` is untouched until the future is ready,
    /// and dropping it loses nothing. After an error the receiver may be asked
    /// again or opened anew; whoever was disconnected stays so.
    fn receive<'a>(
        &'a mut self,
        into: &'a mut Vec<Event>,
        most: usize,
    ) -> BoxFuture<'a, Result<(), ReceiveError>>;

    /// The newest event of the partition, as the hub told along with the last
    /// delivery; none if it does not tell.
    fn last_enqueued(&self) -> Option<LastEnqueued>;

    /// Closes the receiver, so that the hub knows at once. Dropping it does the
    /// same without waiting for it.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}
