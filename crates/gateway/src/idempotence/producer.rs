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
        Self { id, state: Mutex::new(State { epoch, sequence }) }
    }

    /// A link comes with this epoch, and with the last number that it knows to be stored.
    pub(super) fn enter(&self, epoch: i16, last: i32) -> Result<(), Refusal> {
        let mut state = self.lock();
        if epoch < state.epoch {
            return Err(stolen(state.epoch));
        }
        if epoch > state.epoch {
            *state = State { epoch, sequence: Sequence::stored_up_to(last) };
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

    /// Tells, when the batch is about to be stored, whether all that was sent before it is stored.
    pub(crate) fn in_order(&self) -> impl FnOnce() -> bool + Send + 'static {
        let (producer, epoch, start) = (self.producer.clone(), self.epoch, self.start);
        move || {
            let state = producer.lock();
            state.epoch != epoch || !state.sequence.is_doomed(start)
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

    /// Changes the numbers, unless a newer epoch has begun, which has numbers of its own.
    fn of_this_epoch(&self, change: impl FnOnce(&mut Sequence<Commit>, i64)) {
        let mut state = self.producer.lock();
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
