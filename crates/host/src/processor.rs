//! `EventProcessor`, the trait of the user's code, with one instance for each owned partition; the reasons to
//! close it, and the processors that call a closure for each event or batch.

use std::future::Future;

use ephor_core::BoxError;
use ephor_core::event::Event;
use ephor_core::position::SequenceNumber;

use crate::context::PartitionContext;
use crate::error::PartitionError;

/// The reason why a partition closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum CloseReason {
    /// The host stops. Checkpoints are still accepted.
    Shutdown,
    /// Another host asked for the partition and will get it. Checkpoints are still accepted.
    Handover,
    /// The processor failed, and its policy is to close. Checkpoints are still accepted.
    ProcessorFailed,
    /// The hub cannot be read. Checkpoints are still accepted.
    SourceFailed,
    /// The lease is lost or was not renewed in time. Checkpoints are refused.
    LeaseLost,
    /// A receiver with a newer epoch took over. Checkpoints are refused.
    Disconnected,
    /// An operator moved the position; or the host that took the partition has released it already,
    /// which looks the same from here. Checkpoints are refused.
    Seek,
}

impl CloseReason {
    /// True if this host is still the owner while the partition closes.
    pub fn still_owner(self) -> bool {
        matches!(self, Self::Shutdown | Self::Handover | Self::ProcessorFailed | Self::SourceFailed)
    }
}

/// Handles the events of one partition.
///
/// The host creates one instance for each partition that it owns, calls `open` before the first
/// batch and `close` after the last, and never makes two calls at a time. A call may be dropped at
/// any await: when the partition is lost, when a handover runs out of time, and when
/// `process_timeout` is over.
///
/// ```
/// # use ephor_host as ephor;
/// use ephor::{BoxError, Event, EventProcessor, PartitionContext};
///
/// struct Printer;
///
/// impl EventProcessor for Printer {
///     async fn process_events(
///         &mut self,
///         context: &PartitionContext,
///         events: &[Event],
///     ) -> Result<(), BoxError> {
///         for event in events {
///             println!("{} {}: {:?}", context.partition(), event.sequence, event.text());
///         }
///         context.checkpoint().await?;
///         Ok(())
///     }
/// }
/// ```
pub trait EventProcessor: Send + 'static {
    /// Called once, before the first batch. If it fails, the partition is released.
    fn open(&mut self, context: &PartitionContext) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = context;
        async { Ok(()) }
    }

    /// Called with events in order. `Ok` means that all of them are finished: a policy may
    /// checkpoint them, and they are not delivered again after a handover or a stop. `Err` is
    /// handled by the failure policy.
    fn process_events(
        &mut self,
        context: &PartitionContext,
        events: &[Event],
    ) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Called with the errors of this partition.
    fn process_error(
        &mut self,
        context: &PartitionContext,
        error: &PartitionError,
    ) -> impl Future<Output = ()> + Send {
        let _ = (context, error);
        async {}
    }

    /// Called once, after the last batch. If it fails, the host writes no final checkpoint by policy;
    /// a checkpoint that was [deferred](crate::Checkpointed::Deferred) is still written.
    fn close(
        &mut self,
        context: &PartitionContext,
        reason: CloseReason,
    ) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = (context, reason);
        async { Ok(()) }
    }
}

/// A closure for each batch.
#[derive(Debug)]
pub(crate) struct PerBatch<F>(pub(crate) F);

impl<F, Fut> EventProcessor for PerBatch<F>
where
    F: Fn(PartitionContext, Vec<Event>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), BoxError>> + Send,
{
    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        (self.0)(context.clone(), events.to_vec()).await
    }
}

/// A closure for each event. A batch that failed half-way is retried from the event that failed.
#[derive(Debug)]
pub(crate) struct PerEvent<F> {
    pub(crate) handle: F,
    pub(crate) finished: Option<SequenceNumber>,
}

impl<F, Fut> EventProcessor for PerEvent<F>
where
    F: Fn(PartitionContext, Event) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), BoxError>> + Send,
{
    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        for event in events {
            if self.finished.is_none_or(|finished| event.sequence > finished) {
                context.progress().delivering(event);
                (self.handle)(context.clone(), event.clone()).await?;
                self.finished = Some(event.sequence);
            }
        }
        // A batch that is redelivered in pieces is done with its last piece.
        if events.last().is_none_or(|last| self.finished <= Some(last.sequence)) {
            self.finished = None;
        }
        Ok(())
    }
}
