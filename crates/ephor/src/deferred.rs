//! Rate-limits checkpoints: a processor that writes one for every event costs the store no more
//! than the policy's rate.
//!
//! ```text
//!   asked for    1 2 3 4 5      6                7
//!   written      1        5         6            7      spacing: ├────────┤
//! ```
//!
//! The first checkpoint after a quiet time is written at once, by its caller. Later ones are
//! deferred, each replacing the one before, until a task of their own writes the last of them. One
//! that is still deferred when the partition closes is written before the partition is given away.

use std::sync::Weak;
use std::time::Duration;

use ephor_core::checkpoint::Position;
use ephor_core::time::Monotonic;

use crate::context::{CheckpointError, Checkpointed, ContextInner, PartitionContext};
use crate::environment::TaskHandle;

/// The minimum time before a deferred checkpoint is retried that could not be written.
const RETRY: Duration = Duration::from_secs(1);

/// The deferred checkpoint of a partition.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// The furthest position that was asked for and is not written.
    pub(crate) position: Option<Position>,
    /// A checkpoint before this time is deferred.
    pub(crate) turn: Monotonic,
    /// The task that writes it when it is due. Dropped with the partition.
    writer: Option<TaskHandle>,
    writer_runs: bool,
}

impl Deferred {
    /// Drops the deferred checkpoint if a written one covers it.
    pub(crate) fn forget_up_to(&mut self, written: &Position) {
        self.position.take_if(|waiting| waiting.finished() <= written.finished());
    }

    fn put_off(&mut self, position: &Position) {
        if self.position.as_ref().is_none_or(|waiting| waiting.finished() < position.finished()) {
            self.position = Some(position.clone());
        }
    }
}

impl PartitionContext {
    /// Writes a checkpoint, or defers it if one was written just now.
    pub(crate) async fn save_in_turn(&self, position: Position) -> Result<Checkpointed, CheckpointError> {
        if self.defer(&position) { Ok(Checkpointed::Deferred) } else { self.save(position).await }
    }

    /// True if it was deferred. A checkpoint that is refused or written already gets its result at
    /// once.
    fn defer(&self, position: &Position) -> bool {
        let inner = self.inner();
        let now = inner.environment.now();
        let mut progress = self.progress();
        let written = progress.saved.as_ref().is_some_and(|saved| self.covers(saved, position));
        if now >= progress.deferred.turn || written || !inner.lease.is_ours(now) {
            return false;
        }
        progress.deferred.put_off(position);
        if !progress.deferred.writer_runs {
            progress.deferred.writer_runs = true;
            let task = write_when_due(self.downgrade());
            progress.deferred.writer = Some(inner.environment.spawn(Box::pin(task)));
        }
        true
    }

    /// The checkpoint to write before the partition is given away: the deferred one, and the
    /// finished position if `finished_too`.
    pub(crate) fn owed(&self, finished_too: bool) -> Option<Position> {
        let progress = self.progress();
        let finished = progress.finished.clone().filter(|_| finished_too);
        let waiting = progress.deferred.position.clone();
        [waiting, finished].into_iter().flatten().max_by_key(Position::finished)
    }
}

/// Writes the deferred checkpoint when it is due, until there is none. It holds the partition only
/// while it writes.
async fn write_when_due(inner: Weak<ContextInner>) {
    loop {
        let Some(context) = PartitionContext::upgrade(&inner) else { return };
        let turn = context.progress().deferred.turn;
        let sleep = context.inner().environment.sleep_until(turn);
        drop(context);
        sleep.await;
        let Some(context) = PartitionContext::upgrade(&inner) else { return };
        let now = context.inner().environment.now();
        let Some(position) = next(&context, now) else { return };
        // Another call has written meanwhile, so it is due later.
        let Some(position) = position else { continue };
        let reporter = context.inner().store.reporter();
        let saved = reporter.survive("writer of deferred checkpoints", context.save(position.clone())).await;
        let mut progress = context.progress();
        match saved {
            Some(Ok(Checkpointed::Refused)) => progress.deferred.position = None,
            // Also if the stored checkpoint is ahead of it.
            Some(Ok(_)) => progress.deferred.forget_up_to(&position),
            // The error was reported by the store calls, or the panic by `survive`.
            Some(Err(_)) | None => progress.deferred.turn = now + RETRY,
        }
    }
}

/// The position to write now. The inner `None` means that it is not due yet; the outer `None`, that
/// nothing is deferred and the task ends.
fn next(context: &PartitionContext, now: Monotonic) -> Option<Option<Position>> {
    let mut progress = context.progress();
    let deferred = &mut progress.deferred;
    if deferred.position.is_none() {
        deferred.writer_runs = false;
        return None;
    }
    Some(deferred.position.clone().filter(|_| now >= deferred.turn))
}
