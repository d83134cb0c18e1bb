//! Reads one partition: a receiver of a consumer group, or a reader for tools that belongs to no group.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use ephor_core::BoxFuture;
use ephor_core::event::Event;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::SequenceNumber;
use ephor_core::receivers::Admission;
use ephor_core::source::{LastEnqueued, ReceiveError, Receiver, SourceError};
use ephor_core::time::{Clock, Timestamp};
use tokio::task::JoinHandle;

use crate::batch::StoredBatch;
use crate::journal::{Cursor, Frame, Log};
use crate::partition::{Partition, Taken};

/// About this much is read from the log at a time; or one frame, if it is larger.
const READ_BYTES: usize = 256 << 10;

/// The frames that were read, and where to continue.
pub(crate) type Read = (io::Result<Vec<Frame>>, Cursor);

/// Reads one partition. Dropping it closes it at once.
pub struct HubReceiver {
    pub(crate) partition: Arc<Partition>,
    pub(crate) log: Arc<Log>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Its admission to its group; none for a tool.
    pub(crate) admission: Option<(ConsumerGroup, Arc<Admission>)>,
    pub(crate) cursor: Cursor,
    /// Skips older events: a start time in the future has no event to point at yet.
    pub(crate) not_before: Option<Timestamp>,
    /// Batches that were read from the log and not returned yet.
    pub(crate) ahead: VecDeque<StoredBatch>,
    /// The bytes of `ahead`, until all of it is returned. Frames that the hub caches anyway do not count.
    pub(crate) ahead_bytes: usize,
    /// A read of the log under way. It survives when the future that waits for it is dropped.
    pub(crate) reading: Option<JoinHandle<Read>>,
    pub(crate) last_enqueued: Option<LastEnqueued>,
    pub(crate) missed: u64,
}

impl HubReceiver {
    /// Returns the partition that it reads.
    pub fn partition(&self) -> PartitionId {
        self.partition.id
    }

    /// Waits for at least one event, and returns at most `max_events`, and about `max_bytes`. Cancel-safe: dropping the
    /// future loses no event.
    pub async fn next(&mut self, max_events: usize, max_bytes: usize) -> Result<StoredBatch, ReceiveError> {
        loop {
            if let Some(batch) = self.next_in_memory(max_events, max_bytes).await? {
                return Ok(batch);
            }
            self.read_older((), |_| ()).await?;
        }
    }

    /// Like [`Self::next`], but only from memory. Returns none if the next event has to be read from the log first, by
    /// [`Self::read_older`]: so a caller with many receivers can limit the reads.
    pub async fn next_in_memory(
        &mut self,
        max_events: usize,
        max_bytes: usize,
    ) -> Result<Option<StoredBatch>, ReceiveError> {
        // A long backlog is always ready: reading it in a loop must not starve other tasks.
        tokio::task::coop::consume_budget().await;
        let partition = self.partition.clone();
        loop {
            if self.reading.is_some() {
                return Ok(None);
            }
            // Registered before the check, so that no notification in between is lost.
            let changed = partition.changed.notified();
            match self.peek()? {
                Taken::Batch(_) => {
                    if let Some(batch) = self.hand_out(max_events, max_bytes) {
                        return Ok(Some(batch));
                    }
                }
                Taken::Older => return Ok(None),
                Taken::Nothing => {
                    let _waiting = self.admission.as_ref().map(|(_, admission)| admission.waiting());
                    changed.await;
                }
            }
        }
    }

    /// Waits until this receiver is disconnected, and returns why. Takes no event: for callers that do not want events
    /// now. Cancel-safe.
    pub async fn disconnected(&mut self) -> ReceiveError {
        let admission = self.admission.as_ref().map(|(_, admission)| admission);
        loop {
            // Registered before the check.
            let mut ending = pin!(self.partition.disconnects.notified());
            ending.as_mut().enable();
            if let Err(error) = self.partition.may_take(admission) {
                return error;
            }
            let _waiting = admission.map(|admission| admission.waiting());
            ending.await;
        }
    }

    /// Returns the events from this number on to the log, together with what was read ahead: they are read again by the
    /// next call, and take no memory until then.
    pub fn give_back(&mut self, from: SequenceNumber) {
        self.reading = None;
        self.ahead = VecDeque::new();
        self.ahead_bytes = 0;
        self.cursor = Cursor::at(from.0);
    }

    /// Drops what was read ahead, as [`Self::give_back`] does.
    pub fn give_back_ahead(&mut self) {
        let from = self.ahead.front().map_or(SequenceNumber(self.cursor.next), StoredBatch::first);
        self.give_back(from);
    }

    /// Returns the bytes that this receiver holds for itself: read from the log, and not returned yet.
    pub fn ahead_bytes(&self) -> usize {
        self.ahead_bytes
    }

    /// Returns a probe that shows from another task whether this receiver waits for new events.
    pub fn idle_probe(&self) -> IdleProbe {
        IdleProbe(self.admission.as_ref().map(|(_, admission)| admission.clone()))
    }

    /// Returns how many events this receiver has skipped since the last call: retention freed them before they were
    /// read, or they are damaged ([`damage`](crate::Hub::damage) lists those).
    pub fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    /// Notes a sign of life of the remote client that this receiver reads for.
    pub fn heard(&self) {
        if let Some((_, admission)) = &self.admission {
            admission.heard(self.clock.now());
        }
    }

    /// Puts the next batch into `ahead` if it is in memory, and returns what was found.
    fn peek(&mut self) -> Result<Taken, ReceiveError> {
        let admission = self.admission.as_ref().map(|(_, admission)| admission);
        if let Some(batch) = self.ahead.front() {
            self.partition.may_take(admission)?;
            return Ok(Taken::Batch(batch.clone()));
        }
        let wanted = self.cursor.next;
        let taken = self.partition.take(admission, &mut self.cursor.next)?;
        self.missed += self.cursor.next - wanted;
        match &taken {
            Taken::Batch(batch) => {
                let mut batch = batch.clone();
                batch.skip_to(self.cursor.next);
                // A new cursor holds no file open, so that a file that retention removes frees its space.
                self.cursor = Cursor::at(batch.end());
                self.ahead.push_back(batch);
            }
            Taken::Nothing => self.cursor = Cursor::at(self.cursor.next),
            Taken::Older => {}
        }
        Ok(taken)
    }

    fn hand_out(&mut self, max_events: usize, max_bytes: usize) -> Option<StoredBatch> {
        let front = self.ahead.front_mut()?;
        if self.not_before.is_some_and(|time| front.enqueued_at() < time) {
            self.pop_ahead();
            return None;
        }
        let batch = front.split(max_events.max(1), max_bytes);
        if front.is_empty() {
            self.pop_ahead();
        }
        self.not_before = None;
        self.last_enqueued = self.partition.last();
        self.heard();
        Some(batch)
    }

    fn pop_ahead(&mut self) {
        self.ahead.pop_front();
        if self.ahead.is_empty() {
            self.ahead_bytes = 0;
        }
    }

    /// Reads older events from the log, once: about 256 KiB. A blocking thread reads if the files may block. A larger frame is read
    /// whole: `loading` is called with its bytes before they are read. Both arguments are dropped when the log has been read,
    /// also if this future is dropped before.
    pub async fn read_older(
        &mut self,
        turn: impl Send + 'static,
        mut loading: impl FnMut(usize) + Send + 'static,
    ) -> Result<(), ReceiveError> {
        let from = self.cursor.next;
        if self.reading.is_none() {
            let (log, id) = (self.log.clone(), self.partition.id.0);
            let mut cursor = std::mem::replace(&mut self.cursor, Cursor::at(from));
            let read = move || {
                let frames = log.read(id, &mut cursor, READ_BYTES, &mut loading);
                drop((turn, loading));
                (frames, cursor)
            };
            match tokio::runtime::Handle::try_current().ok().filter(|_| self.log.files.may_block()) {
                Some(runtime) => self.reading = Some(runtime.spawn_blocking(read)),
                None => return self.take_in(read(), from),
            }
        }
        if let Some(reading) = &mut self.reading {
            let read = reading.await;
            self.reading = None;
            self.take_in(read.map_err(|error| unavailable(error.into()))?, from)?;
        }
        Ok(())
    }

    fn take_in(&mut self, (frames, cursor): Read, from: u64) -> Result<(), ReceiveError> {
        self.cursor = cursor;
        self.missed += std::mem::take(&mut self.cursor.lost);
        self.lay_ahead(frames.map_err(|error| unavailable(error.into()))?, from);
        Ok(())
    }

    fn lay_ahead(&mut self, frames: Vec<Frame>, from: u64) {
        if frames.is_empty() && self.cursor.next <= from {
            // The files have nothing more: the next event is cached, or not sent yet.
            self.cursor = Cursor::at(self.partition.recent_or_next().max(from));
        }
        self.ahead_bytes += frames.iter().map(|frame| frame.payload.len()).sum::<usize>();
        for frame in &frames {
            let mut batch = StoredBatch::of_stored(frame, self.partition.id, &self.partition.omissions);
            batch.skip_to(from);
            self.ahead.push_back(batch);
        }
        // Cached frames may follow what was read: nothing is read twice.
        if let Some(last) = frames.last() {
            self.cursor.next = last.end();
        }
    }
}

/// Shows whether a receiver that another task uses is idle.
#[derive(Clone, Debug)]
pub struct IdleProbe(Option<Arc<Admission>>);

impl IdleProbe {
    /// Whether the receiver is idle: it waits for a new event, or nobody reads from it.
    pub fn is_idle(&self) -> bool {
        self.0.as_ref().is_none_or(|admission| admission.is_waiting())
    }
}

fn unavailable(error: ephor_core::BoxError) -> ReceiveError {
    ReceiveError::Source(SourceError::Unavailable(error))
}

impl Receiver for HubReceiver {
    fn receive<'a>(
        &'a mut self,
        into: &'a mut Vec<Event>,
        max_events: usize,
    ) -> BoxFuture<'a, Result<(), ReceiveError>> {
        Box::pin(async move {
            let batch = self.next(max_events, usize::MAX).await?;
            batch.decode_into(into);
            // Adds small batches that are in memory already, as far as there is room.
            let mut room = max_events.saturating_sub(batch.len());
            while room > 0 && matches!(self.peek(), Ok(Taken::Batch(_))) {
                let Some(batch) = self.hand_out(room, usize::MAX) else { continue };
                batch.decode_into(into);
                room -= batch.len();
            }
            Ok(())
        })
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.last_enqueued.clone()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { drop(self) })
    }
}

impl Drop for HubReceiver {
    fn drop(&mut self) {
        if let Some((group, admission)) = self.admission.take() {
            self.partition.leave(&group, &admission);
        }
    }
}

impl fmt::Debug for HubReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HubReceiver({} at {})", self.partition.id, self.cursor.next)
    }
}

/// Wraps an error of reading the log.
pub(crate) fn source_error(error: io::Error) -> SourceError {
    SourceError::Unavailable(error.into())
}
