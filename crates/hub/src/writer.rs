//! What becomes of a commit: the log first, then the readers, then what need not be kept.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ephor_core::position::SequenceNumber;
use ephor_core::time::{Monotonic, Timestamp};

use crate::error::{HubError, SendError};
use crate::files::is_disk_full;
use crate::journal::{Journal, Payload};
use crate::partition::Partition;
use crate::reserve::{DiskReserve, Reached};
use crate::time::{HubTime, Jump, Reading, TRUST_AFTER, TimeKeeper};

/// The partitions of a hub; it may grow.
pub(crate) type Partitions = Arc<RwLock<Vec<Arc<Partition>>>>;

/// Where and when a batch was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) first: SequenceNumber,
    pub(crate) enqueued_at: Timestamp,
}

/// How much the log takes, for those who must not wait for a commit to learn it.
#[derive(Debug, Default)]
pub(crate) struct LogSize {
    bytes: AtomicU64,
    segments: AtomicUsize,
}

impl LogSize {
    /// Bytes and segment files.
    pub(crate) fn get(&self) -> (u64, usize) {
        (self.bytes.load(Ordering::Relaxed), self.segments.load(Ordering::Relaxed))
    }

    fn set(&self, journal: &Journal) {
        self.bytes.store(journal.bytes(), Ordering::Relaxed);
        self.segments.store(journal.segments(), Ordering::Relaxed);
    }
}

/// The journal and what becomes of its commits.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) journal: Journal,
    size: Arc<LogSize>,
    keeper: TimeKeeper,
    reserve: Arc<DiskReserve>,
    /// When people were told that the clock jumps.
    told_of_jump: Option<Monotonic>,
    /// People know that events are kept until the clock has proved itself.
    told_of_waiting: bool,
    partitions: Partitions,
    /// The partition and the size of each frame that is kept in memory, oldest first.
    recent: VecDeque<(u32, usize)>,
    recent_bytes: usize,
    most_recent_bytes: usize,
    /// Nobody but senders will ever look whether something is to be freed.
    at_once: bool,
    /// Why nothing is stored any more.
    ended: Option<Arc<str>>,
}

/// What a frame takes in memory beside its payload, about.
const AROUND_A_FRAME: usize = 160;

/// A clock that jumps all the time shall not fill the log file.
const JUMPS_TOLD_EVERY: Duration = Duration::from_secs(60);

impl Writer {
    pub(crate) fn new(
        journal: Journal,
        keeper: TimeKeeper,
        reserve: Arc<DiskReserve>,
        partitions: Partitions,
        most_recent_bytes: usize,
    ) -> Self {
        let size = Arc::<LogSize>::default();
        size.set(&journal);
        Self {
            journal,
            size,
            keeper,
            reserve,
            told_of_jump: None,
            told_of_waiting: false,
            partitions,
            recent: VecDeque::new(),
            recent_bytes: 0,
            most_recent_bytes,
            at_once: false,
            ended: None,
        }
    }

    /// How much the log takes, as of the last commit.
    pub(crate) fn size(&self) -> Arc<LogSize> {
        self.size.clone()
    }

    /// Begins a new segment.
    pub(crate) fn roll(&mut self, now: Timestamp) -> io::Result<()> {
        let rolled = self.journal.roll(now);
        self.size.set(&self.journal);
        rolled
    }

    /// The same, for a hub without a committer: every commit looks whether something is to be freed.
    pub(crate) fn freeing_at_once(self) -> Self {
        Self { at_once: true, ..self }
    }

    /// Stores the batches and shows them to readers.
    pub(crate) fn commit(
        &mut self,
        batches: &[(u32, Payload)],
        reading: Reading,
    ) -> Result<Vec<Stored>, SendError> {
        if let Some(why) = &self.ended {
            return Err(SendError::Closed(why.clone()));
        }
        let now = self.look(reading);
        self.admit(batches, reading.now, now)?;
        let segments = self.journal.segments();
        let frames = match self.journal.commit(batches, now.stamp) {
            // Otherwise a disk without room for one more segment would wait for ever for the next one to begin.
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
            let bytes = payload.bytes.len() + AROUND_A_FRAME;
            let keep = bytes <= self.most_recent_bytes;
            partitions[*id as usize].publish(frame, keep);
            touched[*id as usize] = true;
            if keep {
                self.recent.push_back((*id, bytes));
                self.recent_bytes += bytes;
            } else {
                self.forget_recent_of(*id, &partitions);
            }
        }
        while self.recent_bytes > self.most_recent_bytes {
            let Some((id, bytes)) = self.recent.pop_front() else { break };
            self.recent_bytes -= bytes;
            partitions[id as usize].drop_oldest_recent();
        }
        partitions
            .iter()
            .zip(touched)
            .filter(|(_, touched)| *touched)
            .for_each(|(one, _)| one.news.notify_waiters());
        drop(partitions);
        // A hub on disk frees when its committer has nothing else to do, but it must not wait for that for ever.
        let rolled = self.journal.segments() != segments;
        if rolled || (self.at_once && self.journal.is_overdue(now)) {
            self.enforce_retention(now);
        }
        self.size.set(&self.journal);
        Ok(stored)
    }

    /// Refuses what would go to the reserve of the disk, unless retention has something to free.
    fn admit(&mut self, batches: &[(u32, Payload)], at: Monotonic, now: HubTime) -> Result<(), SendError> {
        let bytes = batches.iter().map(|(_, payload)| payload.bytes.len() as u64).sum();
        let mut admitted = self.reserve.admit(bytes, at);
        if admitted.is_err() && self.enforce_retention(now) {
            admitted = self.reserve.admit(bytes, at);
        }
        admitted.map_err(|Reached { free, reserve }| SendError::LowOnDisk { free, reserve })
    }

    /// Whether senders are refused for lack of room.
    pub(crate) fn is_low_on_disk(&self) -> bool {
        self.reserve.reached().is_some()
    }

    /// Looks whether there is room for senders; for when none comes.
    pub(crate) fn look_at_the_disk(&self, at: Monotonic) {
        // A refusal is told by the reserve itself.
        let _ = self.reserve.admit(0, at);
    }

    /// A frame that is not kept would leave a hole behind the recent ones of its partition.
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

    /// Looks at the clocks, and tells what time it is.
    pub(crate) fn look(&mut self, reading: Reading) -> HubTime {
        let jump = self.keeper.look(reading);
        let now = self.keeper.time();
        if let Some(jump) = self.keeper.jumped() {
            self.journal.time_jumped(jump);
        }
        if !self.keeper.may_yet_catch_up() {
            self.journal.clock_stands_at(now.stamp);
        }
        self.journal.time_is_proven(now.proven, self.keeper.marks());
        if self.keeper.jumped().is_some() {
            // Before an event carries the new time: after a crash in between, older ones would be older by the jump.
            self.journal.note_time();
        }
        let quiet = self.told_of_jump.is_some_and(|told| reading.now.since(told) < JUMPS_TOLD_EVERY);
        if let Some(jump) = jump.filter(|_| !quiet) {
            self.told_of_jump = Some(reading.now);
            tell(jump);
        }
        now
    }

    /// Tells people, once, that events stay although the wall clock says that they are past their age.
    pub(crate) fn tell_if_events_wait(&mut self, now: HubTime) {
        let waiting = self.journal.awaits_proof(now);
        if waiting && !self.told_of_waiting {
            tracing::warn!(
                unproven_seconds = now.stamp.since(now.proven).as_secs(),
                "events are past their age by the wall clock, and are kept: the hub was off, or the clock was set, \
                 and the hub cannot tell which. If the clock is right, do nothing: they go when the hub has run for \
                 {} hours in all under a clock that does not jump. If it is wrong, set it. A retention by size frees at once",
                TRUST_AFTER.as_secs() / 3_600
            );
        }
        self.told_of_waiting = waiting;
    }

    /// Frees what need not be kept any longer, and tells whether there was something.
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
            tracing::warn!(%error, "old segments could not be freed; it will be tried again");
            false
        })
    }

    /// Says why, if nothing may be written any more.
    pub(crate) fn check_open(&self) -> Result<(), HubError> {
        self.ended.clone().map_or(Ok(()), |why| Err(HubError::Closed(why)))
    }

    /// Stores nothing more.
    pub(crate) fn end(&mut self, why: &Arc<str>) {
        self.ended = Some(why.clone());
    }
}

fn tell(jump: Jump) {
    match jump {
        Jump::Ahead(by) => tracing::warn!(
            seconds = by.as_secs(),
            "the wall clock jumped ahead: new events carry its time, and none is deleted because of it"
        ),
        Jump::Back(by) => tracing::warn!(
            seconds = by.as_secs(),
            "the wall clock jumped back: new events follow it if it stays there, but never before the time that the hub has proven"
        ),
    }
}
