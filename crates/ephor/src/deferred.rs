//! Checkpoints that wait for their turn, so that a processor that writes one for every event costs the
//! store no more than the policy's rate.
//!
//! ```text
//!   asked for    1 2 3 4 5      6                7
//!   written      1        5         6            7      spacing: ├────────┤
//! ```
//!
//! The first of a quiet partition is written at once, by whoever asks for it. The next ones wait, each in
//! place of the one before, until a task of their own writes the last of them. What still waits when the
//! partition closes is written before it is given away.

use std::sync::Weak;
use std::time::Duration;

use ephor_core::checkpoint::Position;
use ephor_core::time::Monotonic;

use crate::context::{CheckpointError, Checkpointed, ContextInner, PartitionContext};
use crate::environment::TaskHandle;

/// A deferred checkpoint that could not be written is tried again no sooner than this.
const RETRY: Duration = Duration::from_secs(1);

/// What waits, and until when.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// The furthest that was asked for and is not written.
    pub(crate) position: Option<Position>,
    /// Whoever asks before this waits.
    pub(crate) turn: Monotonic,
    /// Writes it when its turn comes. Dropped with the partition.
    writer: Option<TaskHandle>,
    writer_runs: bool,
}

impl Deferred {
    /// What is written needs not to be written again.
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
    /// Writes a checkpoint, or lets it wait if one was written just now.
    pub(crate) async fn save_in_turn(&self, position: Position) -> Result<Checkpointed, CheckpointError> {
        if self.defer(&position) { Ok(Checkpointed::Deferred) } else { self.save(position).await }
    }

    /// Whether it has to wait. What is lost or written already is told at once.
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

    /// What has to be written before the partition is given away: what waits, and what is finished if the
    /// policy asks for that.
    pub(crate) fn owed(&self, finished_too: bool) -> Option<Position> {
        let progress = self.progress();
        let finished = progress.finished.clone().filter(|_| finished_too);
        let waiting = progress.deferred.position.clone();
        [waiting, finished].into_iter().flatten().max_by_key(Position::finished)
    }
}

/// Writes what waits when its turn comes, until nothing waits. It holds the partition only while it writes.
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
        // Somebody else has written meanwhile: the turn is a later one.
        let Some(position) = position else { continue };
        let reporter = context.inner().store.reporter();
        let saved = reporter.survive("writer of deferred checkpoints", context.save(position.clone())).await;
        let mut progress = context.progress();
        match saved {
            Some(Ok(Checkpointed::Refused)) => progress.deferred.position = None,
            // Also if what is stored is ahead of it.
            Some(Ok(_)) => progress.deferred.forget_up_to(&position),
            // The store calls have reported it, or the panic was.
            Some(Err(_)) | None => progress.deferred.turn = now + RETRY,
        }
    }
}

/// What to write now; inside, none if it is not time yet; outside, none if nothing waits and the task is over.
fn next(context: &PartitionContext, now: Monotonic) -> Option<Option<Position>> {
    let mut progress = context.progress();
    let deferred = &mut progress.deferred;
    if deferred.position.is_none() {
        deferred.writer_runs = false;
        return None;
    }
    Some(deferred.position.clone().filter(|_| now >= deferred.turn))
}
