//! `PartitionContext`, the partition as its processor sees it: identity, epoch, lag, and methods that write
//! checkpoints.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ephor_core::checkpoint::{Checkpoint, Position};
use ephor_core::epoch::Epoch;
use ephor_core::event::Event;
use ephor_core::ids::{ConsumerGroup, GroupId, HostId, HubName, LogId, Namespace, PartitionId};
use ephor_core::position::StartPosition;
use ephor_core::progress::Lag;
use ephor_core::store::{SaveOutcome, SaveRequest};
use tokio::sync::watch;

use crate::environment::Environment;
use crate::error::CheckpointError;
use crate::lease_state::LeaseState;
use crate::metric_names as names;
use crate::progress::Progress;
use crate::saves_in_flight::SavesInFlight;
use crate::store_calls::StoreCalls;

/// The outcome of a checkpoint. A refusal is not a failure: another host is the owner now, and
/// resumes from the last checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checkpointed {
    /// It is written.
    Saved(Checkpoint),
    /// Rate-limited: another checkpoint was written just now, and this one waits for its turn
    /// ([`CheckpointPolicy::spacing`](ephor_core::checkpoint::CheckpointPolicy::spacing)), or for
    /// one that is further ahead. It is written then, or before the partition is given away; if the
    /// host crashes first, its events are delivered again. [`PartitionContext::flush`] writes it
    /// now.
    Deferred,
    /// The stored checkpoint is as far or further, and stays as it is.
    Unchanged(Checkpoint),
    /// No event was delivered to this processor yet, so there is nothing to write.
    Nothing,
    /// The epoch is no longer ours: this host was fenced off.
    Refused,
}

impl Checkpointed {
    /// True if the epoch is no longer ours.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused)
    }
}

pub(crate) struct ContextInner {
    /// The minimum time between two checkpoints.
    pub(crate) spacing: Duration,
    pub(crate) lease: Arc<LeaseState>,
    pub(crate) store: StoreCalls,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) log: Option<LogId>,
    /// The epoch in which the checkpoint was written from which this owner starts.
    pub(crate) start_epoch: Option<Epoch>,
    progress: Mutex<Progress>,
    /// The saves in flight. A rewind waits for them, so that none is carried out after it.
    saving: SavesInFlight,
    cancel: watch::Sender<bool>,
    checkpoints: metrics::Counter,
    fenced: metrics::Counter,
}

/// The partition of a processor. It is cheap to clone. A clone that outlives the ownership is
/// harmless: its checkpoints are refused.
#[derive(Clone)]
pub struct PartitionContext(Arc<ContextInner>);

impl PartitionContext {
    pub(crate) fn new(
        lease: Arc<LeaseState>,
        store: StoreCalls,
        environment: Arc<dyn Environment>,
        log: Option<LogId>,
        checkpoint: Option<Checkpoint>,
        spacing: Duration,
    ) -> Self {
        let labels = partition_labels(&store, lease.token().partition);
        let checkpoints = metrics::counter!(names::CHECKPOINTS, &labels);
        let fenced = metrics::counter!(names::FENCED_WRITES, &labels);
        let start_epoch = checkpoint.as_ref().map(|checkpoint| checkpoint.epoch);
        let progress = Mutex::new(Progress::new(log.clone(), checkpoint));
        let cancel = watch::Sender::new(false);
        Self(Arc::new(ContextInner {
            spacing,
            lease,
            store,
            environment,
            log,
            start_epoch,
            progress,
            saving: SavesInFlight::default(),
            cancel,
            checkpoints,
            fenced,
        }))
    }

    pub(crate) fn inner(&self) -> &ContextInner {
        &self.0
    }

    pub(crate) fn lease(&self) -> &Arc<LeaseState> {
        &self.0.lease
    }

    pub(crate) fn downgrade(&self) -> Weak<ContextInner> {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn upgrade(inner: &Weak<ContextInner>) -> Option<Self> {
        inner.upgrade().map(Self)
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The namespace of the hub.
    pub fn namespace(&self) -> &Namespace {
        &self.0.store.group().namespace
    }

    /// The hub.
    pub fn hub(&self) -> &HubName {
        &self.0.store.group().hub
    }

    /// The consumer group.
    pub fn consumer_group(&self) -> &ConsumerGroup {
        &self.0.store.group().group
    }

    /// The partition.
    pub fn partition(&self) -> PartitionId {
        self.0.lease.token().partition
    }

    /// This host.
    pub fn host(&self) -> &HostId {
        &self.0.lease.token().owner
    }

    /// The epoch of this ownership: the fencing token for your own database, which should refuse
    /// anything older than it has seen. Processors of other SDKs that share the group have no such
    /// token.
    pub fn epoch(&self) -> Epoch {
        self.0.lease.token().epoch
    }

    /// The consumer group of the hub in its namespace: the scope of leases and checkpoints.
    pub fn group(&self) -> &GroupId {
        self.0.store.group()
    }

    /// The id of the hub's log; `None` if the source does not know it. A hub that is deleted and
    /// created again counts its events from 0 again, in another log: code that recognises repeated
    /// events by their sequence numbers must compare the log, too.
    pub fn log(&self) -> Option<&LogId> {
        self.0.log.as_ref()
    }

    /// A request to save the position up to and including this event, with the proof of this
    /// ownership: for a store that saves inside your own transaction.
    pub fn save_request(&self, event: &Event) -> SaveRequest {
        SaveRequest::new(self.0.lease.token(), &Position::of(event), self.0.log.as_ref())
    }

    /// Tells the host about a checkpoint that your own transaction has committed, such as one that
    /// used `PostgresStore::save_in`: then it knows that nothing is left to save when it gives the
    /// partition away.
    ///
    /// Call it on the context that made the request. A checkpoint of another log or epoch, or of an
    /// event that this processor has not received, is ignored with a warning.
    pub fn checkpoint_committed(&self, checkpoint: &Checkpoint) {
        let delivered = self.progress().delivered();
        let ours = checkpoint.log == self.0.log
            && checkpoint.epoch == self.epoch()
            && checkpoint.position.finished() <= delivered;
        if ours {
            self.progress().note_saved(checkpoint);
        } else {
            let (partition, epoch) = (self.partition(), self.epoch());
            tracing::warn!(%partition, %epoch, ?checkpoint, "a committed checkpoint of another owner or partition is ignored");
        }
    }

    /// The position at which this owner starts to read: after the checkpoint, or the initial
    /// position, or the replacement of one that does not exist. It is known when the processor is
    /// created, and changes only if that position turns out not to exist.
    pub fn starts_at(&self) -> Option<StartPosition> {
        self.progress().start.clone()
    }

    /// The last checkpoint that is known to be stored.
    pub fn last_checkpoint(&self) -> Option<Checkpoint> {
        self.progress().saved.clone()
    }

    /// The lag of this partition, as of the last batch; while it is paused or fails, as of a few
    /// seconds ago.
    pub fn lag(&self) -> Lag {
        self.progress().lag(self.partition())
    }

    /// True if this host may no longer act for the partition.
    pub fn is_cancelled(&self) -> bool {
        *self.0.cancel.borrow() || !self.0.lease.is_ours(self.0.environment.now())
    }

    /// Completes when work on this partition should be given up: it is lost, or the time for a
    /// handover is over.
    pub async fn cancelled(&self) {
        let mut cancel = self.0.cancel.subscribe();
        // The sender lives as long as `self`.
        let _ = cancel.wait_for(|cancelled| *cancelled).await;
    }

    pub(crate) fn cancel(&self) {
        self.0.cancel.send_replace(true);
    }

    /// Writes a checkpoint up to the end of the batch that is being processed (the high-water
    /// mark); in `close`, up to the last finished batch. For a closure per event, up to that event.
    /// It is rate-limited ([`Checkpointed::Deferred`]).
    pub async fn checkpoint(&self) -> Result<Checkpointed, CheckpointError> {
        let position = self.progress().current().cloned();
        match position {
            Some(position) => self.save_rate_limited(position).await,
            None => Ok(Checkpointed::Nothing),
        }
    }

    /// Writes a checkpoint up to and including this event (a low-water mark): the next owner
    /// resumes right after it. It is rate-limited ([`Checkpointed::Deferred`]).
    pub async fn checkpoint_at(&self, event: &Event) -> Result<Checkpointed, CheckpointError> {
        if self.progress().delivered().is_none_or(|delivered| event.sequence > delivered) {
            return Err(CheckpointError::NotDelivered { sequence: event.sequence });
        }
        self.save_rate_limited(Position::of(event)).await
    }

    /// Writes the deferred checkpoint now, if there is one.
    pub async fn flush(&self) -> Result<Checkpointed, CheckpointError> {
        let pending = self.progress().throttle.pending.clone();
        match pending {
            Some(position) => self.save(position).await,
            None => Ok(self.last_checkpoint().map_or(Checkpointed::Nothing, Checkpointed::Unchanged)),
        }
    }

    pub(crate) async fn save(&self, position: Position) -> Result<Checkpointed, CheckpointError> {
        self.write(position, false).await
    }

    /// Saves the position at which reading starts; with `rewind`, over a checkpoint whose position
    /// does not exist in this log. Progress from before the start is reset.
    pub(crate) async fn begin(&self, start: Position, rewind: bool) -> Result<Checkpointed, CheckpointError> {
        if rewind {
            self.progress().forget();
            let inner = &*self.0;
            inner.saving.none_left(&*inner.environment, inner.store.timeout()).await;
        }
        let written = self.write(start, rewind).await?;
        if !written.is_refused() {
            self.progress().begin();
        }
        Ok(written)
    }

    async fn write(&self, position: Position, rewind: bool) -> Result<Checkpointed, CheckpointError> {
        let inner = &*self.0;
        if !inner.lease.is_ours(inner.environment.now()) {
            inner.fenced.increment(1);
            return Ok(Checkpointed::Refused);
        }
        let already_saved = if rewind { None } else { self.progress().saved_up_to(&position).cloned() };
        if let Some(saved) = already_saved {
            return Ok(Checkpointed::Unchanged(saved));
        }
        self.progress().throttle.not_before = inner.environment.now() + inner.spacing;
        let token = inner.lease.token();
        let request = SaveRequest { rewind, ..SaveRequest::new(token, &position, inner.log.as_ref()) };
        let saving = inner.saving.begin(&*inner.environment, inner.store.timeout());
        let saved = inner.store.save(&request).await;
        // A rewind that is carried out late does no harm: events are repeated, not skipped.
        if saved.is_ok() || rewind {
            saving.answered();
        } else {
            drop(saving);
        }
        match saved? {
            SaveOutcome::Saved(checkpoint) => {
                inner.checkpoints.increment(1);
                let mut progress = self.progress();
                if rewind {
                    progress.saved = None;
                }
                progress.note_saved(&checkpoint);
                Ok(Checkpointed::Saved(checkpoint))
            }
            SaveOutcome::Behind { stored } => {
                self.progress().note_saved(&stored);
                Ok(Checkpointed::Unchanged(stored))
            }
            SaveOutcome::Fenced { .. } => {
                inner.lease.end();
                inner.fenced.increment(1);
                Ok(Checkpointed::Refused)
            }
        }
    }

    /// The position after which to resume: the progress made here, or else the checkpoint.
    pub(crate) fn resume_point(&self) -> Option<Checkpoint> {
        let progress = self.progress();
        let Some(position) = progress.finished.clone() else { return progress.saved.clone() };
        let (log, saved_at) = (self.0.log.clone(), self.0.environment.wall());
        Some(Checkpoint { position, log, epoch: self.epoch(), saved_at })
    }
}

/// The labels of all metrics per partition.
pub(crate) fn partition_labels(store: &StoreCalls, partition: PartitionId) -> [(&'static str, String); 3] {
    let group = store.group();
    [("hub", group.hub.to_string()), ("group", group.group.to_string()), ("partition", partition.to_string())]
}

impl fmt::Debug for PartitionContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionContext({}, {:?})", self.0.store.group(), self.0.lease.token())
    }
}
