//! One reader of one partition: a receiver in a consumer group, or a tool outside of all groups.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use ephor_core::BoxFuture;
use ephor_core::event::Event;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::SequenceNumber;
use ephor_core::receivers::Place;
use ephor_core::source::{LastEnqueued, ReceiveError, Receiver, SourceError};
use ephor_core::time::{Clock, Timestamp};
use tokio::task::JoinHandle;

use crate::batch::StoredBatch;
use crate::journal::{Cursor, Frame, Log};
use crate::partition::{Partition, Taken};

/// About so much is read from the log at a time; or one frame, if that is larger.
const READ_BYTES: usize = 256 << 10;

/// What was found, and where to go on.
pub(crate) type Read = (io::Result<Vec<Frame>>, Cursor);

/// A reader of one partition. Dropping it frees its place at once.
pub struct HubReceiver {
    pub(crate) partition: Arc<Partition>,
    pub(crate) log: Arc<Log>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Its place among the receivers of its group; a tool has none.
    pub(crate) place: Option<(ConsumerGroup, Arc<Place>)>,
    pub(crate) cursor: Cursor,
    /// Older events are passed over: a start in the future has no event to point at yet.
    pub(crate) not_before: Option<Timestamp>,
    /// What was read from the log and not handed out yet.
    pub(crate) ahead: VecDeque<StoredBatch>,
    /// The bytes of that, as long as any of it lies there. What the hub keeps in memory anyway does not count.
    pub(crate) ahead_bytes: usize,
    /// A look into the log that is under way: whoever stops waiting for it finds it again.
    pub(crate) reading: Option<JoinHandle<Read>>,
    pub(crate) last_enqueued: Option<LastEnqueued>,
    pub(crate) missed: u64,
}

impl HubReceiver {
    /// The partition that it reads.
    pub fn partition(&self) -> PartitionId {
        self.partition.id
    }

    /// Waits until there is at least one event, and takes at most so many, and about as many bytes.
    /// Dropping the future loses nothing.
    pub async fn next(&mut self, most: usize, most_bytes: usize) -> Result<StoredBatch, ReceiveError> {
        loop {
            if let Some(batch) = self.next_in_memory(most, most_bytes).await? {
                return Ok(batch);
            }
            self.read_older((), |_| ()).await?;
        }
    }

    /// The same, but only what is in memory: none if the next event has to be read from the log first, by
    /// [`Self::read_older`]. Whoever has many receivers says when.
    pub async fn next_in_memory(
        &mut self,
        most: usize,
        most_bytes: usize,
    ) -> Result<Option<StoredBatch>, ReceiveError> {
        // A long backlog is always ready; whoever reads it in a loop shall not starve other tasks.
        tokio::task::coop::consume_budget().await;
        let partition = self.partition.clone();
        loop {
            if self.reading.is_some() {
                return Ok(None);
            }
            // Listens before it looks, so that what happens in between still rings.
            let news = partition.news.notified();
            match self.look()? {
                Taken::Batch(_) => {
                    if let Some(batch) = self.hand_out(most, most_bytes) {
                        return Ok(Some(batch));
                    }
                }
                Taken::Older => return Ok(None),
                Taken::Nothing => {
                    let _waiting = self.place.as_ref().map(|(_, place)| place.waiting());
                    news.await;
                }
            }
        }
    }

    /// Waits until this receiver is disconnected, and tells why. No event is taken, so that whoever has no
    /// use for events yet hears of its end all the same. Dropping the future loses nothing.
    pub async fn disconnected(&mut self) -> ReceiveError {
        let place = self.place.as_ref().map(|(_, place)| place);
        loop {
            // Listens before it looks.
            let mut ending = pin!(self.partition.endings.notified());
            ending.as_mut().enable();
            if let Err(error) = self.partition.may_take(place) {
                return error;
            }
            let _waiting = place.map(|place| place.waiting());
            ending.await;
        }
    }

    /// Gives back what was taken from this event on, and whatever lies ahead: it is read again when it is asked
    /// for, and takes no memory until then.
    pub fn give_back(&mut self, from: SequenceNumber) {
        self.reading = None;
        self.ahead = VecDeque::new();
        self.ahead_bytes = 0;
        self.cursor = Cursor::at(from.0);
    }

    /// Gives back whatever lies ahead, as [`Self::give_back`] does.
    pub fn give_back_ahead(&mut self) {
        let from = self.ahead.front().map_or(SequenceNumber(self.cursor.next), StoredBatch::first);
        self.give_back(from);
    }

    /// How many bytes of memory this receiver holds for itself: what it has read from the log, and not handed
    /// out yet.
    pub fn ahead_bytes(&self) -> usize {
        self.ahead_bytes
    }

    /// Tells from elsewhere whether this receiver has come to the end of what there is, and waits.
    pub fn lookout(&self) -> Lookout {
        Lookout(self.place.as_ref().map(|(_, place)| place.clone()))
    }

    /// How many events this receiver has passed over since it was asked last: retention freed them before
    /// it came, or they cannot be read any more ([`damage`](crate::Hub::damage) names those).
    pub fn take_missed(&mut self) -> u64 {
        std::mem::take(&mut self.missed)
    }

    /// Takes a sign of life for a receiver that stands for somebody behind a network.
    pub fn heard(&self) {
        if let Some((_, place)) = &self.place {
            place.heard(self.clock.now());
        }
    }

    /// Sees to it that something lies ahead, or tells what has to be done for it.
    fn look(&mut self) -> Result<Taken, ReceiveError> {
        let place = self.place.as_ref().map(|(_, place)| place);
        if let Some(batch) = self.ahead.front() {
            self.partition.may_take(place)?;
            return Ok(Taken::Batch(batch.clone()));
        }
        let wanted = self.cursor.next;
        let taken = self.partition.take(place, &mut self.cursor.next)?;
        self.missed += self.cursor.next - wanted;
        match &taken {
            Taken::Batch(batch) => {
                let mut batch = batch.clone();
                batch.skip_to(self.cursor.next);
                // A new cursor holds no file open: one that retention removes shall free its room.
                self.cursor = Cursor::at(batch.end());
                self.ahead.push_back(batch);
            }
            Taken::Nothing => self.cursor = Cursor::at(self.cursor.next),
            Taken::Older => {}
        }
        Ok(taken)
    }

    fn hand_out(&mut self, most: usize, most_bytes: usize) -> Option<StoredBatch> {
        let front = self.ahead.front_mut()?;
        if self.not_before.is_some_and(|time| front.enqueued_at() < time) {
            self.pop_ahead();
            return None;
        }
        let batch = front.split(most.max(1), most_bytes);
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

    /// Reads older events from the log, once: about 256 KiB. Where that may take time, a thread that may
    /// wait does it. A larger frame is read whole: `loading` hears how many bytes it is going to be, before they are
    /// read. Both are dropped when the log has been read, also if this future is dropped before.
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
            // Nothing more can be read from the files: what is left is in memory, or still to come.
            self.cursor = Cursor::at(self.partition.recent_or_next().max(from));
        }
        self.ahead_bytes += frames.iter().map(|frame| frame.payload.len()).sum::<usize>();
        for frame in &frames {
            let mut batch = StoredBatch::of_stored(frame, self.partition.id, &self.partition.left_out);
            batch.skip_to(from);
            self.ahead.push_back(batch);
        }
        // A recent frame may lie behind what was read: nothing is read twice.
        if let Some(last) = frames.last() {
            self.cursor.next = last.end();
        }
    }
}

/// Looks at a receiver that somebody else has in hand.
#[derive(Clone, Debug)]
pub struct Lookout(Option<Arc<Place>>);

impl Lookout {
    /// Whether the receiver waits: no event is there for it, or nobody asked it for one.
    pub fn sees_it_wait(&self) -> bool {
        self.0.as_ref().is_none_or(|place| place.is_waiting())
    }
}

fn unavailable(error: ephor_core::BoxError) -> ReceiveError {
    ReceiveError::Source(SourceError::Unavailable(error))
}

impl Receiver for HubReceiver {
    fn receive<'a>(
        &'a mut self,
        into: &'a mut Vec<Event>,
        most: usize,
    ) -> BoxFuture<'a, Result<(), ReceiveError>> {
        Box::pin(async move {
            let batch = self.next(most, usize::MAX).await?;
            batch.decode_into(into);
            // Small batches that are there already come along, as far as there is room.
            let mut room = most.saturating_sub(batch.len());
            while room > 0 && matches!(self.look(), Ok(Taken::Batch(_))) {
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
        if let Some((group, place)) = self.place.take() {
            self.partition.leave(&group, &place);
        }
    }
}

impl fmt::Debug for HubReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HubReceiver({} at {})", self.partition.id, self.cursor.next)
    }
}

/// What a reader of the log fails with.
pub(crate) fn source_error(error: io::Error) -> SourceError {
    SourceError::Unavailable(error.into())
}
