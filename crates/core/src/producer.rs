//! The producer interface, through which a program sends events to any hub.
//!
//! A program that sends through this trait runs unchanged on the embedded hub, on Azure Event Hubs
//! and on a hub in memory. The types behind it have methods of their own, which tell more about the
//! stored events.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::BoxError;
use crate::BoxFuture;
use crate::event::NewEvent;
use crate::ids::PartitionId;
use crate::source::SourceError;

/// Chooses the partition of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target<'a> {
    /// The partition that an event's own key chooses. An event without a key goes to any partition.
    #[default]
    Any,
    /// This partition. Keys of the events are stored with them and choose nothing.
    Partition(PartitionId),
    /// The partition that this key chooses, by the hash of Azure Event Hubs. The key is stored with
    /// every event, in place of its own.
    Key(&'a str),
}

/// The acknowledgement of stored events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sent {
    /// The number of events.
    pub count: usize,
}

impl Sent {
    /// The acknowledgement of this many events, for authors of a producer.
    pub fn new(count: usize) -> Self {
        Self { count }
    }
}

/// A send that failed. It reads as its cause.
#[derive(Debug)]
#[non_exhaustive]
pub struct ProducerError {
    /// The number of events, counted from the first, that are stored nevertheless. Some of the later
    /// ones may be stored, too: sending again from here on loses nothing.
    pub stored: usize,
    /// The cause.
    pub cause: SendCause,
}

impl ProducerError {
    /// A failure after which this many events, counted from the first, are stored.
    pub fn new(stored: usize, cause: impl Into<SendCause>) -> Self {
        Self { stored, cause: cause.into() }
    }
}

impl fmt::Display for ProducerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl Error for ProducerError {
    /// The source of the cause, because the cause itself is what this error displays.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}

/// The cause of a failed send.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendCause {
    /// The hub can never store this event: it is too large, its key is too long, or it cannot be
    /// encoded. Neither it nor the events after it are stored.
    #[error("event {index} cannot be sent: {error}")]
    Event {
        /// The index of the event in its batch, from 0.
        index: usize,
        /// The reason.
        #[source]
        error: BoxError,
    },
    /// The hub refuses the events for another reason, and a retry changes nothing.
    #[error("the hub refused the events: {0}")]
    Refused(#[source] BoxError),
    /// The hub cannot store anything now, or not for this sender.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// A hub, as its senders see it.
///
/// When a send returns, the hub has stored its events, as durably as the hub promises. Dropping the
/// future of a send that waits for the hub does not cancel it: its events may be stored.
pub trait Producer: Send + Sync + 'static {
    /// Sends events, in as few steps as the hub permits. No events at all are sent at once.
    ///
    /// The order is kept among events for one partition ([`Target::Partition`], [`Target::Key`]),
    /// and with [`Target::Any`] among those with one key. A batch may be stored in parts: see
    /// [`ProducerError::stored`].
    fn send_batch<'a>(
        &'a self,
        target: Target<'a>,
        events: Vec<NewEvent>,
    ) -> BoxFuture<'a, Result<Sent, ProducerError>>;

    /// Sends one event to the partition that its key chooses; to any partition if it has no key.
    fn send(&self, event: NewEvent) -> BoxFuture<'_, Result<Sent, ProducerError>> {
        self.send_batch(Target::Any, vec![event])
    }

    /// Sends one event to a partition.
    fn send_to(&self, partition: PartitionId, event: NewEvent) -> BoxFuture<'_, Result<Sent, ProducerError>> {
        self.send_batch(Target::Partition(partition), vec![event])
    }
}

impl<P: Producer + ?Sized> Producer for Arc<P> {
    fn send_batch<'a>(
        &'a self,
        target: Target<'a>,
        events: Vec<NewEvent>,
    ) -> BoxFuture<'a, Result<Sent, ProducerError>> {
        (**self).send_batch(target, events)
    }

    fn send(&self, event: NewEvent) -> BoxFuture<'_, Result<Sent, ProducerError>> {
        (**self).send(event)
    }

    fn send_to(&self, partition: PartitionId, event: NewEvent) -> BoxFuture<'_, Result<Sent, ProducerError>> {
        (**self).send_to(partition, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_as_its_cause_and_leads_to_the_reason_once() {
        let reason: BoxError = "3 MB are too many".into();
        let error = ProducerError::new(2, SendCause::Event { index: 4, error: reason });
        assert_eq!(error.to_string(), "event 4 cannot be sent: 3 MB are too many");
        assert_eq!(error.source().unwrap().to_string(), "3 MB are too many");
        assert!(error.source().unwrap().source().is_none());
        let missing = SourceError::NotFound { what: "partition 9".into() };
        let error = ProducerError::new(0, missing);
        assert_eq!((error.stored, error.to_string().as_str()), (0, "partition 9 does not exist"));
    }
}
