//! One idempotent producer, shared by all its links, and the sequence numbers that a batch reserves.
//!
//! ```text
//!   claimed ─► waits for room in the hub's queue ─► queued ─► stored: acknowledged, also to deliveries that repeat it
//!                  └─ dropped: taken back             └─ failed: taken back; all that wait for it get the error
//! ```
//!
//! A [`Claim`] owns the numbers. It travels with the batch: it belongs to the connection until the batch is
//! in the hub's queue, and then to the queue. So a lost connection releases numbers that will not be stored,
//! and does not touch numbers that may still be stored. A delivery that repeats numbers in flight waits for
//! that claim, and gets the same outcome: nothing is acknowledged before it is on disk. Batches sent after
//! numbers that were taken back are refused, too, when the hub comes to them: otherwise they would be stored
//! before those numbers.
//!
//! A newer epoch fences the older ones: their queued batches are refused when the hub comes to them, and the
//! newer one is not accepted before the batches that are being written at that moment are settled. After that
//! nothing of them is stored.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_hub::SendError;
use ephor_wire::condition::{Condition, Refusal};
use tokio::sync::watch;

use super::fingerprint::Fingerprint;
use super::sequence::{FRESH, MAX_KNOWN_BATCHES, Numbers, Sequence};

/// The outcome of a batch, once it is known.
type Outcome = Option<Result<(), SendError>>;

/// A producer in one partition.
#[derive(Debug)]
pub(crate) struct NumberedProducer {
    pub(super) id: i64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    epoch: i16,
    sequence: Sequence<Commit>,
    /// Batches that the hub has taken out of its queue and may store at any time, by epoch and first number.
    being_written: BTreeMap<(i16, i64), Commit>,
}

/// The state of the numbers of a delivery.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// They are new: no other delivery stores them until this claim is dropped.
    New(Claim),
    /// All of them are on disk already.
    Stored,
    /// Some are in flight with another delivery, whose outcome is not known yet.
    Pending(Commit),
}

impl NumberedProducer {
    /// A producer whose numbers up to `last` are stored, if it knows such a number.
    pub(super) fn new(id: i64, epoch: i16, last: Option<i32>) -> Self {
        let sequence = Sequence::stored_up_to(last.unwrap_or(FRESH));
        Self { id, state: Mutex::new(State { epoch, sequence, being_written: BTreeMap::new() }) }
    }

    /// Attaches a link with this epoch, and with the last number that it knows to be stored, if it says one.
    pub(super) fn enter(&self, epoch: i16, last: Option<i32>) -> Result<(), Refusal> {
        let mut state = self.lock();
        if epoch < state.epoch {
            return Err(stolen(epoch, state.epoch));
        }
        if epoch > state.epoch {
            (state.epoch, state.sequence) = (epoch, Sequence::stored_up_to(last.unwrap_or(FRESH)));
        } else if let Some(last) = last {
            state.sequence.advance_to(last);
        }
        Ok(())
    }

    /// Its epoch, and the number up to which everything is on disk.
    pub(super) fn epoch_and_last_stored(&self) -> (i16, i32) {
        let state = self.lock();
        (state.epoch, state.sequence.last_stored())
    }

    /// The last batch in flight, if there is any.
    pub(crate) fn pending(&self) -> Option<Commit> {
        self.lock().sequence.last_pending()
    }

    /// A batch of an older epoch that is being written, if there is any.
    pub(super) fn written_by_older(&self) -> Option<Commit> {
        let state = self.lock();
        let first = state.being_written.first_key_value();
        first.filter(|((epoch, _), _)| *epoch < state.epoch).map(|(_, commit)| commit.clone())
    }

    /// Refuses a link whose epoch is older than the newest one.
    pub(crate) fn refuse_older(&self, epoch: i16) -> Result<(), Refusal> {
        let newest = self.lock().epoch;
        if epoch < newest { Err(stolen(epoch, newest)) } else { Ok(()) }
    }

    /// Claims the numbers of a delivery of `count` events, of which the first has the number `first`.
    pub(crate) fn claim(
        self: &Arc<Self>,
        epoch: i16,
        first: i32,
        count: usize,
        fingerprint: Fingerprint,
    ) -> Result<Claimed, Refusal> {
        if first < 0 {
            let text = format!("The sequence number {first} is out of range: numbers begin at 0.");
            return Err(Refusal::new(Condition::ArgumentError, text));
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX).max(1);
        let mut state = self.lock();
        if epoch < state.epoch {
            return Err(stolen(epoch, state.epoch));
        }
        match state.sequence.state_of(first, count, fingerprint) {
            Numbers::Next(start) => {
                let (outcome, commit) = watch::channel(None);
                state.sequence.claim(start, count, fingerprint, Commit(commit));
                Ok(Claimed::New(Claim { producer: self.clone(), epoch, start, outcome }))
            }
            Numbers::Stored => Ok(Claimed::Stored),
            Numbers::Pending(commit) => Ok(Claimed::Pending(commit)),
            Numbers::Old { last } => {
                // The JavaScript SDK's own live test looks for "old sequence".
                let text = format!(
                    "The sequence number {first} is an old sequence number, and these events repeat none of the \
                     last {MAX_KNOWN_BATCHES} batches: the producer's last number is {last}."
                );
                Err(Refusal::new(Condition::OutOfOrderSequence, text))
            }
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

/// The refusal of a producer whose epoch is older than the newest one. Clients look for both epochs in this form.
fn stolen(epoch: i16, newest: i16) -> Refusal {
    let text =
        format!("A producer of the same id with a higher epoch exists. Received:{epoch} Current:{newest}.");
    Refusal::new(Condition::ProducerEpochStolen, text)
}

/// Numbers that are reserved for one batch. Dropping it releases them.
#[derive(Debug)]
pub(crate) struct Claim {
    producer: Arc<NumberedProducer>,
    epoch: i16,
    start: i64,
    outcome: watch::Sender<Outcome>,
}

impl Claim {
    /// A handle that waits for the outcome of the batch.
    pub(crate) fn commit(&self) -> Commit {
        Commit(self.outcome.subscribe())
    }

    /// Returns a check that the hub calls when it is about to store the batch. It is true if no numbers
    /// before it were taken back and no newer epoch has begun; then the batch counts as being written.
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

    /// Records the outcome of the batch.
    pub(crate) fn settle(self, sent: Result<(), SendError>) {
        if sent.is_ok() {
            self.of_this_epoch(|sequence, start| sequence.stored(start));
        } else {
            self.of_this_epoch(Sequence::take_back);
        }
        self.outcome.send_replace(Some(sent));
    }

    /// Marks the batch as not being written any more. Then applies `change`, unless a newer epoch has begun,
    /// which has numbers of its own.
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
        // Waiters are notified when the sender of the outcome is dropped, which is after this.
        if self.outcome.borrow().is_none() {
            self.of_this_epoch(Sequence::take_back);
        }
    }
}

/// Waits for the outcome of a claim. Clones wait for the same one.
#[derive(Clone, Debug)]
pub(crate) struct Commit(watch::Receiver<Outcome>);

impl Commit {
    /// Waits until the batch is stored or failed; `None` if it was dropped before the hub had it, or with the
    /// hub.
    pub(crate) async fn settled(mut self) -> Option<Result<(), SendError>> {
        self.0.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone())
    }
}
