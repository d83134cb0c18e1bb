//! Writes the results of one partition: applies events to the state, and appends the changes to the log.

use bytes::Bytes;

use super::entry::{Entry, Snapshot, samples};
use super::load::{Loaded, load};
use super::log::{Created, Log, LogError};
use crate::consolidate::Consolidation;
use crate::reading::Reading;

/// A snapshot of the whole state is written after this many updates.
pub const SNAPSHOT_EVERY: u64 = 60;

/// The most attempts while other writers are faster.
const TRIES: u32 = 20;

/// Why results could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultWriterError {
    /// Another host owns the partition. This writer must stop for good.
    #[error(
        "{log} was written by {owner} with epoch {epoch}, and this host has epoch {mine}: a newer owner \
         exists. If it does not, the leases were deleted but the results were not: delete the results, too"
    )]
    Fenced {
        /// The log.
        log: String,
        /// The newer owner.
        owner: String,
        /// Its epoch.
        epoch: u64,
        /// The epoch that came too late.
        mine: u64,
    },
    /// The storage failed. The changes are kept: flush again.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// The result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// The last update that was written; none if there was nothing to write.
    pub number: Option<u64>,
    /// Everything up to this event needs no repetition.
    pub last: Option<u64>,
}

/// Writes the results of one partition for its owner.
///
/// Every call may be dropped at any await and made again.
#[derive(Debug)]
pub struct ResultWriter<C: Consolidation> {
    log: Log,
    epoch: u64,
    owner: String,
    snapshot_every: u64,
    state: C,
    /// The last update in `state` that is in the log.
    number: u64,
    /// The newest snapshot that is known.
    snapshot: u64,
    /// The last event that was given to this writer.
    given: Option<u64>,
    /// The events that were folded since the last update.
    waiting: Vec<Folded>,
    /// An update that was taken, and of which it is not known whether it is in the log.
    pending: Option<PendingUpdate>,
}

#[derive(Clone, Copy, Debug)]
struct Folded {
    sequence: u64,
    /// None for an event that is no reading.
    reading: Option<Reading>,
    /// Whether it was new, by its sequence.
    new: bool,
}

#[derive(Debug)]
struct PendingUpdate {
    number: u64,
    token: u64,
    bytes: Bytes,
    /// The events that it covers.
    events: Vec<Folded>,
}

impl<C: Consolidation> ResultWriter<C> {
    /// Reads what is there. The epoch is that of the partition's lease.
    pub async fn open(log: Log, epoch: u64, owner: &str) -> Result<Self, ResultWriterError> {
        let loaded = load::<C>(&log).await?;
        let mut writer = Self {
            log,
            epoch,
            owner: owner.to_owned(),
            snapshot_every: SNAPSHOT_EVERY,
            state: C::default(),
            number: 0,
            snapshot: 0,
            given: None,
            waiting: Vec::new(),
            pending: None,
        };
        writer.take_over(loaded)?;
        Ok(writer)
    }

    /// Writes a snapshot after this many updates, instead of [`SNAPSHOT_EVERY`].
    pub fn with_snapshot_every(self, updates: u64) -> Self {
        Self { snapshot_every: updates.max(1), ..self }
    }

    /// Returns the state, with changes that are not flushed yet.
    pub fn state(&self) -> &C {
        &self.state
    }

    /// Folds a reading. One that was given to this writer before is skipped: a batch may be delivered again.
    pub fn fold(&mut self, sequence: u64, reading: &Reading) {
        self.give(sequence, Some(*reading));
    }

    /// Passes over an event that is no reading.
    pub fn skip(&mut self, sequence: u64) {
        self.give(sequence, None);
    }

    fn give(&mut self, sequence: u64, reading: Option<Reading>) {
        if self.given.is_none_or(|given| sequence > given) {
            self.given = Some(sequence);
            self.put(sequence, reading);
        }
    }

    fn put(&mut self, sequence: u64, reading: Option<Reading>) {
        let new = self.state.last().is_none_or(|last| sequence > last);
        match &reading {
            Some(reading) => self.state.fold(sequence, reading),
            None => self.state.skip(sequence),
        }
        self.waiting.push(Folded { sequence, reading, new });
    }

    /// Whether there is something that was folded and not flushed.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || self.pending.is_some()
    }

    /// Writes what changed. After `Ok` everything that was folded is in the log.
    pub async fn flush(&mut self) -> Result<Flushed, ResultWriterError> {
        let mut number = None;
        let mut overtaken = 0;
        loop {
            if self.pending.is_none() && !self.take_update()? {
                break;
            }
            if self.settle().await? {
                number = Some(self.number);
            } else {
                // Somebody else wrote: begin with that, and fold our own events again.
                let loaded = load::<C>(&self.log).await?;
                self.take_over(loaded)?;
                overtaken += 1;
                if overtaken == TRIES {
                    return Err(LogError::Restless { log: self.log.name().to_owned(), tries: TRIES }.into());
                }
            }
        }
        self.waiting.clear();
        if self.number >= self.snapshot + self.snapshot_every {
            self.write_snapshot().await;
        }
        Ok(Flushed { number, last: self.state.last() })
    }

    /// Starts again from the log, and folds the events that are not in it.
    fn take_over(&mut self, loaded: Loaded<C>) -> Result<(), ResultWriterError> {
        if loaded.epoch > self.epoch {
            let (owner, epoch, mine) = (loaded.owner, loaded.epoch, self.epoch);
            return Err(ResultWriterError::Fenced { log: self.log.name().to_owned(), owner, epoch, mine });
        }
        let taken = self.pending.take().map(|pending| pending.events);
        let waiting = std::mem::take(&mut self.waiting);
        (self.state, self.number, self.snapshot) = (loaded.state, loaded.number, loaded.snapshot);
        for event in taken.unwrap_or_default().into_iter().chain(waiting) {
            self.put(event.sequence, event.reading);
        }
        Ok(())
    }

    /// Makes an object of what changed; false if nothing did.
    fn take_update(&mut self) -> Result<bool, ResultWriterError> {
        let Some(update) = self.state.take_update() else { return Ok(false) };
        let last = self.state.last().unwrap_or(0);
        let events = std::mem::take(&mut self.waiting);
        let fresh: Vec<u64> = events
            .iter()
            .filter(|event| event.new)
            .filter_map(|event| event.reading)
            .map(|reading| reading.pushed)
            .collect();
        let entry = Entry {
            number: self.number + 1,
            epoch: self.epoch,
            owner: self.owner.clone(),
            token: fastrand::u64(..),
            first: events.first().map_or(last, |event| event.sequence),
            last,
            pushed: samples(&fresh),
            update,
        };
        let bytes = self.log.write_update(&entry)?;
        self.pending = Some(PendingUpdate { number: entry.number, token: entry.token, bytes, events });
        Ok(true)
    }

    /// Puts the update that was taken into the log; false if its place is somebody else's.
    async fn settle(&mut self) -> Result<bool, ResultWriterError> {
        let Some(PendingUpdate { number, token, ref bytes, .. }) = self.pending else { return Ok(true) };
        let created = self.log.create_update(number, bytes.clone()).await?;
        // Nobody deletes what is above the floor: there our object is the first of its number.
        let deleted_before = number <= self.log.floor().await?;
        let ours = match created {
            Created::New if deleted_before => {
                self.log.delete_update(number).await?;
                false
            }
            Created::New => true,
            // It may be ours: the answer to an earlier attempt was lost.
            Created::There if deleted_before => false,
            Created::There => {
                let there = self.log.update::<C::Update>(number).await?;
                there.is_some_and(|there| {
                    (there.token, there.epoch, &there.owner) == (token, self.epoch, &self.owner)
                })
            }
        };
        if ours {
            (self.number, self.pending) = (number, None);
        }
        Ok(ours)
    }

    /// A snapshot that fails is written after the next update.
    async fn write_snapshot(&mut self) {
        let (number, epoch, owner) = (self.number, self.epoch, self.owner.clone());
        let snapshot = Snapshot { number, epoch, owner, state: &self.state };
        let log = self.log.name();
        match self.log.create_snapshot(&snapshot).await {
            Ok(()) => self.snapshot = number,
            Err(error) => {
                return tracing::warn!(log, %error, "cannot write a snapshot; retrying after the next update");
            }
        }
        if let Err(error) = self.log.tidy().await {
            tracing::warn!(log = self.log.name(), %error, "cannot delete old updates; retrying after the \
                                                           next snapshot");
        }
    }
}
