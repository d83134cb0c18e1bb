//! One producer that numbers its events, as all its links see it, and the numbers that a batch has for itself.
//!
//! ```text
//!   claimed ─► waits for room in the hub's queue ─► queued ─► stored: acknowledged, also to whoever repeats it
//!                  └─ dropped: taken back             └─ failed: taken back; all who wait for it hear why
//! ```
//!
//! A [`Claim`] owns the numbers. It travels with the batch: with the connection as long as the batch is not in the
//! hub's queue, then with the queue. So a connection that is lost takes back what nobody will store, and does not
//! touch what may be stored yet. Whoever repeats numbers that are on their way waits for that claim, and is told the
//! same: nothing is acknowledged before it is on disk. What was sent after numbers that are taken back is refused, too,
//! when its turn comes: otherwise it would be stored before them.
//!
//! A newer epoch ends the older ones: what they have in the queue is refused when its turn comes, and what is being
//! written in that moment is waited for before the newer one is let in. After that nothing of them is stored.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_hub::SendError;
use ephor_wire::condition::{Condition, Refusal};
use tokio::sync::watch;

use super::sequence::{Numbers, Sequence};

/// What became of a batch, once that is known.
type Outcome = Option<Result<(), SendError>>;

/// A producer in one partition.
#[derive(Debug)]
pub(crate) struct Numbered {
    pub(super) id: i64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    epoch: i16,
    sequence: Sequence<Commit>,
    /// By epoch and first number: what the hub has taken out of its queue and may have stored any time.
    being_written: BTreeMap<(i16, i64), Commit>,
}

/// What the numbers of a delivery are.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// New: nobody else stores them until this is dropped.
    New(Claim),
    /// All of them are on disk already.
    Stored,
    /// Another delivery brought some of them, of which nobody knows yet whether it is stored.
    Pending(Commit),
}

impl Numbered {
    /// A producer of which all numbers up to this one are stored.
    pub(super) fn new(id: i64, epoch: i16, last: i32) -> Self {
        let sequence = Sequence::stored_up_to(last);
        Self { id, state: Mutex::new(State { epoch, sequence, being_written: BTreeMap::new() }) }
    }

    /// A link comes with this epoch, and with the last number that it knows to be stored.
    pub(super) fn enter(&self, epoch: i16, last: i32) -> Result<(), Refusal> {
        let mut state = self.lock();
        if epoch < state.epoch {
            return Err(stolen(state.epoch));
        }
        if epoch > state.epoch {
            (state.epoch, state.sequence) = (epoch, Sequence::stored_up_to(last));
        }
        Ok(())
    }

    /// Its epoch, and the last number up to which everything is on disk.
    pub(super) fn standing(&self) -> (i16, i32) {
        let state = self.lock();
        (state.epoch, state.sequence.last_stored())
    }

    /// A batch that is on its way, if there is any.
    pub(crate) fn pending(&self) -> Option<Commit> {
        self.lock().sequence.last_pending()
    }

    /// A batch of an older epoch that is being written, if there is any.
    pub(super) fn written_by_older(&self) -> Option<Commit> {
        let state = self.lock();
        let first = state.being_written.first_key_value();
        first.filter(|((epoch, _), _)| *epoch < state.epoch).map(|(_, commit)| commit.clone())
    }

    /// What a link of this epoch is told, if there is a newer one.
    pub(crate) fn refuse_older(&self, epoch: i16) -> Result<(), Refusal> {
        let newest = self.lock().epoch;
        if epoch < newest { Err(stolen(newest)) } else { Ok(()) }
    }

    /// A delivery of so many events came on a link with this epoch, and the first of them has this number.
    pub(crate) fn claim(self: &Arc<Self>, epoch: i16, first: i32, count: usize) -> Result<Claimed, Refusal> {
        if first < 0 {
            let text = format!("The sequence number {first} is out of range: numbers begin at 0.");
            return Err(Refusal::new(Condition::ArgumentError, text));
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX).max(1);
        let mut state = self.lock();
        if epoch < state.epoch {
            return Err(stolen(state.epoch));
        }
        match state.sequence.look(first, count) {
            Numbers::Next(start) => {
                let (outcome, commit) = watch::channel(None);
                state.sequence.claim(start, count, Commit(commit));
                Ok(Claimed::New(Claim { producer: self.clone(), epoch, start, outcome }))
            }
            Numbers::Stored => Ok(Claimed::Stored),
            Numbers::Pending(commit) => Ok(Claimed::Pending(commit)),
            Numbers::OutOfOrder { last } => {
                let text = format!(
                    "The sequence number {first} is out of order: the producer's last one is {last}."
                );
                Err(Refusal::new(Condition::OutOfOrderSequence, text))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stolen(epoch: i16) -> Refusal {
    let text = format!("A producer of the same id with the higher epoch {epoch} exists.");
    Refusal::new(Condition::ProducerEpochStolen, text)
}

/// Numbers that one batch has for itself. Dropping it takes them back.
#[derive(Debug)]
pub(crate) struct Claim {
    producer: Arc<Numbered>,
    epoch: i16,
    start: i64,
    outcome: watch::Sender<Outcome>,
}

impl Claim {
    /// Tells what becomes of the batch.
    pub(crate) fn commit(&self) -> Commit {
        Commit(self.outcome.subscribe())
    }

    /// Tells, when the batch is about to be stored, whether it may be: all that was sent before it is stored, and no
    /// newer epoch has begun. If so, it counts as being written.
    pub(crate) fn may_be_stored(&self) -> impl FnOnce() -> bool + Send + 'static {
        let (producer, epoch, start, commit) = (self.producer.clone(), self.epoch, self.start, self.commit());
        move || {
            let mut state = producer.lock();
            let may = state.epoch == epoch && !state.sequence.is_doomed(start);
            if may {
                state.being_written.insert((epoch, start), commit);
            }
            may
        }
    }

    /// The hub has stored the batch, or could not.
    pub(crate) fn settle(self, sent: Result<(), SendError>) {
        if sent.is_ok() {
            self.of_this_epoch(|sequence, start| sequence.stored(start));
        } else {
            self.of_this_epoch(Sequence::take_back);
        }
        self.outcome.send_replace(Some(sent));
    }

    /// The batch is not being written any more. Changes the numbers, unless a newer epoch has begun, which has
    /// numbers of its own.
    fn of_this_epoch(&self, change: impl FnOnce(&mut Sequence<Commit>, i64)) {
        let mut state = self.producer.lock();
        state.being_written.remove(&(self.epoch, self.start));
        if state.epoch == self.epoch {
            change(&mut state.sequence, self.start);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Those who wait learn of it when the sender of the outcome is dropped, which is after this.
        if self.outcome.borrow().is_none() {
            self.of_this_epoch(Sequence::take_back);
        }
    }
}

/// What becomes of a claim. Clones wait for the same.
#[derive(Clone, Debug)]
pub(crate) struct Commit(watch::Receiver<Outcome>);

impl Commit {
    /// Waits until the batch is stored or failed; none if it was dropped before the hub had it, or with the hub.
    pub(crate) async fn settled(mut self) -> Option<Result<(), SendError>> {
        self.0.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone())
    }
}
