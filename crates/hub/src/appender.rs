//! Applies a commit: appends to the log, publishes to readers, enforces retention.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ephor_core::position::SequenceNumber;
use ephor_core::time::{Monotonic, Timestamp};

use crate::disk_reserve::{DiskReserve, ReserveReached};
use crate::error::{HubError, SendError};
use crate::files::is_disk_full;
use crate::journal::{Journal, Payload};
use crate::partition::Partition;
use crate::time::{ClockReading, HubClock, HubTime, Jump, TRUST_AFTER};

/// The partitions of a hub. There may be more later.
pub(crate) type Partitions = Arc<RwLock<Vec<Arc<Partition>>>>;

/// The position and time of a stored batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) first: SequenceNumber,
    pub(crate) enqueued_at: Timestamp,
}

/// The size of the log, readable without waiting for a commit.
#[derive(Debug, Default)]
pub(crate) struct LogSize {
    bytes: AtomicU64,
    segments: AtomicUsize,
}

impl LogSize {
    /// Returns the bytes and the number of segment files.
    pub(crate) fn get(&self) -> (u64, usize) {
        (self.bytes.load(Ordering::Relaxed), self.segments.load(Ordering::Relaxed))
    }

    fn set(&self, journal: &Journal) {
        self.bytes.store(journal.bytes(), Ordering::Relaxed);
        self.segments.store(journal.segments(), Ordering::Relaxed);
    }
}

/// Appends batches to the journal, publishes them to readers, and enforces retention.
#[derive(Debug)]
pub(crate) struct Appender {
    pub(crate) journal: Journal,
    size: Arc<LogSize>,
    hub_clock: HubClock,
    reserve: Arc<DiskReserve>,
    /// When a jump of the clock was logged last.
    jump_logged_at: Option<Monotonic>,
    /// The proven time at which it was logged last that expired events wait for proof.
    waiting_logged_at: Option<Timestamp>,
    partitions: Partitions,
    /// The partition and the size of each frame that is cached in memory, oldest first.
    recent: VecDeque<(u32, usize)>,
    recent_bytes: usize,
    max_recent_bytes: usize,
    /// There is no committer thread: every commit checks retention.
    retention_on_commit: bool,
    /// Why no more batches are stored.
    ended: Option<Arc<str>>,
}

/// The memory of a cached frame beside its payload, about.
const FRAME_OVERHEAD: usize = 160;

/// Rate limit, so that a clock that jumps all the time does not fill the log file.
const LOG_JUMPS_EVERY: Duration = Duration::from_secs(60);
/// A warning that expired events wait to be deleted is repeated after this time.
const LOG_WAITING_EVERY: Duration = Duration::from_secs(60 * 60);

impl Appender {
    pub(crate) fn new(
        journal: Journal,
        hub_clock: HubClock,
        reserve: Arc<DiskReserve>,
        partitions: Partitions,
        max_recent_bytes: usize,
    ) -> Self {
        let size = Arc::<LogSize>::default();
        size.set(&journal);
        Self {
            journal,
            size,
            hub_clock,
            reserve,
            jump_logged_at: None,
            waiting_logged_at: None,
            partitions,
            recent: VecDeque::new(),
            recent_bytes: 0,
            max_recent_bytes,
            retention_on_commit: false,
            ended: None,
        }
    }

    /// Returns the size of the log, updated by every commit.
    pub(crate) fn size(&self) -> Arc<LogSize> {
        self.size.clone()
    }

    /// Begins a new segment.
    pub(crate) fn roll(&mut self, now: Timestamp) -> io::Result<()> {
        let rolled = self.journal.roll(now);
        self.size.set(&self.journal);
        rolled
    }

    /// Checks retention on every commit; for a hub without a committer thread.
    pub(crate) fn with_retention_on_commit(self) -> Self {
        Self { retention_on_commit: true, ..self }
    }

    /// Stores the batches and publishes them to readers.
    pub(crate) fn commit(
        &mut self,
        batches: &[(u32, Payload)],
        reading: ClockReading,
    ) -> Result<Vec<Stored>, SendError> {
        if let Some(why) = &self.ended {
            return Err(SendError::Closed(why.clone()));
        }
        let now = self.update_time(reading);
        self.admit(batches, reading.now, now)?;
        let segments = self.journal.segments();
        let frames = match self.journal.commit(batches, now.stamp) {
            // Retention frees whole segments. Without this, a disk without room for a new segment would stay full for ever.
            Err(error) if is_disk_full(&error) && self.enforce_retention(now) => {
                self.journal.commit(batches, now.stamp)?
            }
            committed => committed?,
        };
        let shared = self.partitions.clone();
        let partitions = shared.read().unwrap_or_else(PoisonError::into_inner);
        let mut stored = Vec::with_capacity(frames.len());
        let mut touched = vec![false; partitions.len()];
        for ((id, payload), frame) in batches.iter().zip(frames) {
            stored.push(Stored { first: SequenceNumber(frame.first), enqueued_at: frame.enqueued_at });
            let bytes = payload.bytes.len() + FRAME_OVERHEAD;
            let keep = bytes <= self.max_recent_bytes;
            partitions[*id as usize].publish(frame, keep);
            touched[*id as usize] = true;
            if keep {
                self.recent.push_back((*id, bytes));
                self.recent_bytes += bytes;
            } else {
                self.forget_recent_of(*id, &partitions);
            }
        }
        while self.recent_bytes > self.max_recent_bytes {
            let Some((id, bytes)) = self.recent.pop_front() else { break };
            self.recent_bytes -= bytes;
            partitions[id as usize].drop_oldest_recent();
        }
        partitions
            .iter()
            .zip(touched)
            .filter(|(_, touched)| *touched)
            .for_each(|(one, _)| one.changed.notify_waiters());
        drop(partitions);
        // A hub on disk frees segments when its committer is idle. Under constant load, it does so after each new segment.
        let rolled = self.journal.segments() != segments;
        if rolled || (self.retention_on_commit && self.journal.is_overdue(now)) {
            self.enforce_retention(now);
        }
        self.size.set(&self.journal);
        Ok(stored)
    }

    /// Refuses batches that would use the disk reserve, unless retention can free enough.
    fn admit(&mut self, batches: &[(u32, Payload)], at: Monotonic, now: HubTime) -> Result<(), SendError> {
        let bytes = batches.iter().map(|(_, payload)| payload.bytes.len() as u64).sum();
        let mut admitted = self.reserve.admit(bytes, at);
        if admitted.is_err() && self.enforce_retention(now) {
            admitted = self.reserve.admit(bytes, at);
        }
        admitted.map_err(|ReserveReached { free, reserve }| SendError::LowOnDisk { free, reserve })
    }

    /// Whether senders are refused because the disk is nearly full.
    pub(crate) fn is_low_on_disk(&self) -> bool {
        self.reserve.reached().is_some()
    }

    /// Measures the free disk space while nobody sends.
    pub(crate) fn check_disk_space(&self, at: Monotonic) {
        // The reserve logs a change by itself.
        let _ = self.reserve.admit(0, at);
    }

    /// Empties the cache of a partition: a frame that is not cached would leave a gap after the cached ones.
    fn forget_recent_of(&mut self, id: u32, partitions: &[Arc<Partition>]) {
        let mut freed = 0;
        self.recent.retain(|(other, bytes)| {
            let keep = *other != id;
            if !keep {
                freed += bytes;
                partitions[id as usize].drop_oldest_recent();
            }
            keep
        });
        self.recent_bytes -= freed;
    }

    /// Updates the time of the hub from the clocks, and returns it.
    pub(crate) fn update_time(&mut self, reading: ClockReading) -> HubTime {
        let jump = self.hub_clock.update(reading);
        let now = self.hub_clock.time();
        if let Some(jump) = self.hub_clock.jumped() {
            self.journal.time_jumped(jump);
        }
        if !self.hub_clock.may_yet_catch_up() {
            self.journal.clock_is_at(now.stamp);
        }
        self.journal.set_proven_time(now.proven, self.hub_clock.clock_samples());
        if self.hub_clock.jumped().is_some() {
            // On disk before an event carries the new time. Otherwise a crash in between would age older events by the jump.
            self.journal.note_time();
        }
        let quiet = self.jump_logged_at.is_some_and(|logged| reading.now.since(logged) < LOG_JUMPS_EVERY);
        if let Some(jump) = jump.filter(|_| !quiet) {
            self.jump_logged_at = Some(reading.now);
            log_jump(jump);
        }
        now
    }

    /// Logs, once an hour, that events are kept although they are past their age by the wall clock.
    pub(crate) fn warn_if_events_wait(&mut self, now: HubTime) {
        if !self.journal.awaits_proof(now) {
            self.waiting_logged_at = None;
            return;
        }
        // The proven time moves with the monotonic clock.
        if self.waiting_logged_at.is_none_or(|logged| now.proven.since(logged) >= LOG_WAITING_EVERY) {
            self.waiting_logged_at = Some(now.proven);
            tracing::warn!(
                unproven_seconds = now.stamp.since(now.proven).as_secs(),
                "expired events are kept for now: they are past their age by the wall clock, but the hub was off or the \
                 clock was set, and the hub cannot tell which. If the clock is right, do nothing: the events are \
                 deleted when the hub has run for {} hours in all without a jump of the clock. If the clock is \
                 wrong, set it. Retention by size deletes at once",
                TRUST_AFTER.as_secs() / 3_600
            );
        }
    }

    /// Frees expired segments, and returns whether there were any.
    pub(crate) fn enforce_retention(&mut self, now: HubTime) -> bool {
        let freed = self.journal.expire(now).and_then(|expired| {
            let freed = !expired.is_empty();
            if freed {
                let firsts = self.journal.first_numbers();
                let partitions = self.partitions.read().unwrap_or_else(PoisonError::into_inner);
                partitions.iter().zip(firsts).for_each(|(partition, first)| partition.begins_at(first));
            }
            self.journal.remove_files(expired)?;
            Ok(freed)
        });
        self.size.set(&self.journal);
        freed.unwrap_or_else(|error| {
            tracing::warn!(%error, "could not free old segments; retrying later");
            false
        })
    }

    /// Fails with the reason if the hub is closed.
    pub(crate) fn check_open(&self) -> Result<(), HubError> {
        self.ended.clone().map_or(Ok(()), |why| Err(HubError::Closed(why)))
    }

    /// Ends the appender: later commits fail with this reason.
    pub(crate) fn end(&mut self, why: &Arc<str>) {
        self.ended = Some(why.clone());
    }
}

fn log_jump(jump: Jump) {
    match jump {
        Jump::Ahead(by) => tracing::warn!(
            seconds = by.as_secs(),
            "the wall clock jumped ahead: new events carry its time, and no event is deleted because of the jump"
        ),
        Jump::Back(by) => tracing::warn!(
            seconds = by.as_secs(),
            "the wall clock jumped back: if it stays there, new events carry its time, but no earlier time than the hub's proven time"
        ),
    }
}
