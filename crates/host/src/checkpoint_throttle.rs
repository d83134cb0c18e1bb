//! Rate-limits checkpoints: a processor that checkpoints after every event causes no more store calls than
//! the policy allows.
//!
//! ```text
//!   asked for    1 2 3 4 5      6                7
//!   written      1        5         6            7      spacing: ├────────┤
//! ```
//!
//! The first checkpoint after a pause is written at once, by its caller. Later ones are
//! deferred, each replacing the one before, until a task of their own writes the last of them. One
//! that is still deferred when the partition closes is written before the partition is given away.

use std::sync::Weak;
use std::time::Duration;

use ephor_core::checkpoint::Position;
use ephor_core::time::Monotonic;

use crate::context::{Checkpointed, ContextInner, PartitionContext};
use crate::environment::TaskHandle;
use crate::error::CheckpointError;

/// The minimum time before a deferred checkpoint is retried that could not be written.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The rate limit of the checkpoints of a partition, and the deferred one.
#[derive(Debug, Default)]
pub(crate) struct CheckpointThrottle {
    /// The furthest position that was asked for and is not written.
    pub(crate) pending: Option<Position>,
    /// A checkpoint before this time is deferred.
    pub(crate) not_before: Monotonic,
    /// The task that writes it when it is due. Dropped with the partition.
    writer: Option<TaskHandle>,
    writer_runs: bool,
}

impl CheckpointThrottle {
    /// Drops the deferred checkpoint if one that is as far or further was written.
    pub(crate) fn drop_up_to(&mut self, written: &Position) {
        self.pending.take_if(|pending| pending.finished() <= written.finished());
    }

    fn keep_furthest(&mut self, position: &Position) {
        if self.pending.as_ref().is_none_or(|pending| pending.finished() < position.finished()) {
            self.pending = Some(position.clone());
        }
    }
}

impl PartitionContext {
    /// Writes a checkpoint, or defers it if one was written just now.
    pub(crate) async fn save_rate_limited(
        &self,
        position: Position,
    ) -> Result<Checkpointed, CheckpointError> {
        if self.defer(&position) { Ok(Checkpointed::Deferred) } else { self.save(position).await }
    }

    /// True if it was deferred. A checkpoint that is refused or written already gets its result at
    /// once.
    fn defer(&self, position: &Position) -> bool {
        let inner = self.inner();
        let now = inner.environment.now();
        let mut progress = self.progress();
        let written = progress.saved_up_to(position).is_some();
        if now >= progress.throttle.not_before || written || !inner.lease.is_ours(now) {
            return false;
        }
        progress.throttle.keep_furthest(position);
        if !progress.throttle.writer_runs {
            progress.throttle.writer_runs = true;
            let task = write_when_due(self.downgrade());
            progress.throttle.writer = Some(inner.environment.spawn(Box::pin(task)));
        }
        true
    }

    /// The checkpoint to write before the partition is given away: the deferred one, and the
    /// finished position if `finished_too`.
    pub(crate) fn pending_checkpoint(&self, finished_too: bool) -> Option<Position> {
        let progress = self.progress();
        let finished = progress.finished.clone().filter(|_| finished_too);
        let pending = progress.throttle.pending.clone();
        [pending, finished].into_iter().flatten().max_by_key(Position::finished)
    }
}

/// Writes the deferred checkpoint when it is due, until there is none. It holds the partition only
/// while it writes.
async fn write_when_due(inner: Weak<ContextInner>) {
    loop {
        let Some(context) = PartitionContext::upgrade(&inner) else { return };
        let not_before = context.progress().throttle.not_before;
        let sleep = context.inner().environment.sleep_until(not_before);
        drop(context);
        sleep.await;
        let Some(context) = PartitionContext::upgrade(&inner) else { return };
        let now = context.inner().environment.now();
        let Some(position) = next_due(&context, now) else { return };
        // Another call has written meanwhile, so it is due later.
        let Some(position) = position else { continue };
        let reporter = context.inner().store.reporter();
        let saved =
            reporter.catch_panics("writer of deferred checkpoints", context.save(position.clone())).await;
        let mut progress = context.progress();
        match saved {
            Some(Ok(Checkpointed::Refused)) => progress.throttle.pending = None,
            // Also if the stored checkpoint is ahead of it.
            Some(Ok(_)) => progress.throttle.drop_up_to(&position),
            // The error was reported by the store calls, or the panic by `catch_panics`.
            Some(Err(_)) | None => progress.throttle.not_before = now + RETRY_AFTER,
        }
    }
}

/// The position to write now. The inner `None` means that it is not due yet; the outer `None`, that
/// nothing is deferred and the task ends.
fn next_due(context: &PartitionContext, now: Monotonic) -> Option<Option<Position>> {
    let mut progress = context.progress();
    let throttle = &mut progress.throttle;
    if throttle.pending.is_none() {
        throttle.writer_runs = false;
        return None;
    }
    Some(throttle.pending.clone().filter(|_| now >= throttle.not_before))
}
