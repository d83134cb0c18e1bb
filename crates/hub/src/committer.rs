//! What turns sends into commits: one thread for each hub on disk, none for a hub in memory.
//!
//!   senders ─► queue (bounded in bytes) ─► committer: one write, one sync ─► readers, then senders
//!
//! While a commit waits for the disk the next one gathers. A committer that has
//! just answered many senders waits a moment for them to come back: otherwise
//! every other commit would carry only the first who did.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ephor_core::time::{Clock, Monotonic};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::error::SendError;
use crate::health::CommitHealth;
use crate::journal::Payload;
use crate::time::Reading;
use crate::writer::{Stored, Writer};

/// No commit takes more than about this much: whoever comes later shall not wait for a flood.
const MOST_BYTES_PER_COMMIT: usize = 8 << 20;

/// So long at most a committer waits for senders to come back.
const LONGEST_GATHERING: Duration = Duration::from_millis(1);

/// So long at most an idle committer looks neither at its clocks nor at its disk.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// The same, while senders are refused for lack of room.
const REST_WITHOUT_ROOM: Duration = Duration::from_secs(1);

/// Is told once what became of a batch, also when its sender has gone away. It is dropped untold if nobody will store
/// the batch.
pub(crate) type Answer = Box<dyn FnOnce(Result<Stored, SendError>) + Send>;

/// Is asked right before a batch would be stored whether it still shall be.
pub(crate) type Wanted = Box<dyn FnOnce() -> bool + Send>;

/// A batch that waits to be stored.
struct Waiting {
    partition: u32,
    payload: Payload,
    wanted: Wanted,
    answer: Answer,
    _room: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// The committer sleeps until so many wait, and need not be woken before.
    wanted: usize,
    /// Somebody changed what is due.
    look_again: bool,
    /// Why nothing more is taken.
    closing: Option<Arc<str>>,
}

/// The way to the writer.
pub(crate) struct Door {
    writer: Arc<Mutex<Writer>>,
    clock: Arc<dyn Clock>,
    health: Arc<CommitHealth>,
    /// None for a hub in memory: whoever sends stores.
    committer: Option<Committer>,
}

struct Committer {
    queue: Arc<(Mutex<Queue>, Condvar)>,
    room: Arc<Semaphore>,
    queue_bytes: u32,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Door {
    /// Everyone who sends stores at once.
    pub(crate) fn direct(writer: Writer, clock: Arc<dyn Clock>) -> Self {
        let writer = writer.freeing_at_once();
        Self { writer: Arc::new(Mutex::new(writer)), clock, health: Arc::default(), committer: None }
    }

    /// A thread stores what has gathered.
    pub(crate) fn with_committer(
        writer: Writer,
        clock: Arc<dyn Clock>,
        queue_bytes: u64,
        name: &str,
    ) -> io::Result<Self> {
        let waits_for_the_disk = writer.journal.waits_for_the_disk();
        let writer = Arc::new(Mutex::new(writer));
        let queue: Arc<(Mutex<Queue>, Condvar)> = Arc::default();
        let queue_bytes = u32::try_from(queue_bytes).unwrap_or(u32::MAX);
        let room = Arc::new(Semaphore::new(queue_bytes as usize));
        let health: Arc<CommitHealth> = Arc::default();
        let committing = Committing {
            queue: queue.clone(),
            room: room.clone(),
            writer: writer.clone(),
            clock: clock.clone(),
            health: health.clone(),
            waits_for_the_disk,
        };
        let thread =
            std::thread::Builder::new().name(format!("hub {name}")).spawn(move || committing.run())?;
        let thread = Mutex::new(Some(thread));
        let committer = Some(Committer { queue, room, queue_bytes, thread });
        Ok(Self { writer, clock, health, committer })
    }

    /// Stores a batch. Once it waits in the queue, dropping the future does not take it back.
    pub(crate) async fn store(&self, partition: u32, payload: Payload) -> Result<Stored, SendError> {
        let Some(committer) = &self.committer else { return self.store_now(partition, payload) };
        let (answer, answered) = oneshot::channel();
        // Whoever has gone away has taken its answer with it.
        self.enqueue(partition, payload, Box::new(|| true), Box::new(|stored| drop(answer.send(stored))))
            .await?;
        answered.await.unwrap_or_else(|_| Err(committer.queue().closed()))
    }

    /// Puts a batch into the queue as soon as there is room. Dropping the future before that takes the batch back and
    /// drops `answer`; afterwards `answer` is told what becomes of it, by whoever stores it.
    pub(crate) async fn enqueue(
        &self,
        partition: u32,
        payload: Payload,
        wanted: Wanted,
        answer: Answer,
    ) -> Result<(), SendError> {
        let Some(committer) = &self.committer else {
            let stored =
                if wanted() { self.store_now(partition, payload) } else { Err(SendError::OutOfOrder) };
            answer(stored);
            return Ok(());
        };
        let bytes = u32::try_from(payload.bytes.len()).unwrap_or(u32::MAX).min(committer.queue_bytes);
        let room = committer.room.clone().acquire_many_owned(bytes).await;
        let room = room.map_err(|_| committer.queue().closed())?;
        let mut queue = committer.queue();
        if queue.closing.is_some() {
            return Err(queue.closed());
        }
        queue.waiting.push_back(Waiting { partition, payload, wanted, answer, _room: room });
        if queue.waiting.len() >= queue.wanted {
            committer.queue.1.notify_one();
        }
        Ok(())
    }

    /// Stores a batch in the sender's own task.
    fn store_now(&self, partition: u32, payload: Payload) -> Result<Stored, SendError> {
        let stored = self.writer().commit(&[(partition, payload)], Reading::of(&*self.clock))?;
        stored.first().copied().ok_or(SendError::EmptyBatch)
    }

    /// The writer, between two commits.
    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        // A commit that panicked left the journal behind its last good one.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How commits go.
    pub(crate) fn health(&self) -> &CommitHealth {
        &self.health
    }

    /// Whether the committer ended although nobody closed the hub.
    pub(crate) fn committer_is_gone(&self) -> bool {
        self.committer.as_ref().is_some_and(|committer| {
            let thread = committer.thread.lock().unwrap_or_else(PoisonError::into_inner);
            thread.as_ref().is_some_and(JoinHandle::is_finished)
        })
    }

    /// Has the committer look again at when it must act.
    pub(crate) fn nudge(&self) {
        if let Some(committer) = &self.committer {
            committer.queue.0.lock().unwrap_or_else(PoisonError::into_inner).look_again = true;
            committer.queue.1.notify_one();
        }
    }

    /// Stores what waits, and ends the committer.
    pub(crate) fn close(&self, why: &Arc<str>) {
        let Some(committer) = &self.committer else { return };
        committer.queue().closing.get_or_insert_with(|| why.clone());
        committer.room.close();
        committer.queue.1.notify_one();
        let thread = committer.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the committer of a hub panicked");
        }
    }
}

impl Committer {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// What a sender is told whom nobody will answer.
    fn closed(&self) -> SendError {
        SendError::Closed(self.closing.clone().unwrap_or_else(|| "the hub is closed".into()))
    }
}

/// The committer's own side.
struct Committing {
    queue: Arc<(Mutex<Queue>, Condvar)>,
    room: Arc<Semaphore>,
    writer: Arc<Mutex<Writer>>,
    clock: Arc<dyn Clock>,
    health: Arc<CommitHealth>,
    waits_for_the_disk: bool,
}

/// However the committer ends, also by a panic: nobody waits for it any more.
struct LastWords {
    queue: Arc<(Mutex<Queue>, Condvar)>,
    room: Arc<Semaphore>,
}

impl Drop for LastWords {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                "the committer of a hub panicked: nothing is stored any more; restart the program"
            );
        }
        self.room.close();
        let mut queue = self.queue.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.closing.get_or_insert_with(|| Arc::from("the hub's committer is gone; restart the program"));
        queue.waiting.clear();
    }
}

impl Committing {
    fn run(self) {
        let _last_words = LastWords { queue: self.queue.clone(), room: self.room.clone() };
        let mut answered = 0;
        // What the last commit took: nobody is made to wait longer for company.
        let mut took = Duration::ZERO;
        while let Some(taken) = self.gather(answered, took) {
            let began = self.clock.now();
            answered = self.commit(taken, began);
            let ended = self.clock.now();
            self.health.ended_at(ended);
            took = ended.since(began);
        }
    }

    /// Waits for something to store, and takes it; none when the hub closes and nothing is left.
    fn gather(&self, expected: usize, patience: Duration) -> Option<Vec<Waiting>> {
        let (queue, ready) = &*self.queue;
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        while queue.waiting.is_empty() {
            if queue.closing.is_some() {
                return None;
            }
            queue.look_again = false;
            drop(queue);
            let due = self.rest();
            queue = self.queue.0.lock().unwrap_or_else(PoisonError::into_inner);
            if queue.waiting.is_empty() && queue.closing.is_none() && !queue.look_again {
                queue.wanted = 1;
                let woken = ready.wait_timeout(queue, due);
                queue = woken.map_or_else(|error| error.into_inner().0, |woken| woken.0);
            }
        }
        let patience = (patience / 2).min(LONGEST_GATHERING);
        // From the page cache an answer costs nothing that company would save.
        if self.waits_for_the_disk && expected > 1 && !patience.is_zero() {
            let deadline = self.clock.now() + patience;
            queue.wanted = expected;
            while queue.waiting.len() < expected && queue.closing.is_none() {
                let left = deadline.since(self.clock.now());
                if left.is_zero() {
                    break;
                }
                let (woken, waited) = ready.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner);
                queue = woken;
                // By this machine's time, whatever the clock says: one in a test may stand still.
                if waited.timed_out() {
                    break;
                }
            }
        }
        let mut bytes = 0;
        let enough = queue.waiting.iter().position(|waiting| {
            let full = bytes > 0 && bytes + waiting.payload.bytes.len() > MOST_BYTES_PER_COMMIT;
            bytes += waiting.payload.bytes.len();
            full
        });
        let count = enough.unwrap_or(queue.waiting.len());
        Some(queue.waiting.drain(..count).collect())
    }

    /// Nothing to store: leaves a mark, frees what is due, and tells when the next thing will be.
    fn rest(&self) -> Duration {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.journal.note_durable();
        let reading = Reading::of(&*self.clock);
        writer.look_at_the_disk(reading.now);
        let now = writer.look(reading);
        if writer.journal.is_overdue(now) {
            writer.enforce_retention(now);
        }
        writer.tell_if_events_wait(now);
        /// What could not be freed is tried again, but not all the time.
        const AGAIN: Duration = Duration::from_secs(60);
        if writer.journal.is_overdue(now) {
            return AGAIN;
        }
        let longest = if writer.is_low_on_disk() { REST_WITHOUT_ROOM } else { LONGEST_REST };
        writer.journal.due().map_or(longest, |due| due.since(now.proven).min(longest))
    }

    fn commit(&self, taken: Vec<Waiting>, began: Monotonic) -> usize {
        let (mut batches, mut answers) = (Vec::with_capacity(taken.len()), Vec::with_capacity(taken.len()));
        for Waiting { partition, payload, wanted, answer, _room } in taken {
            if wanted() {
                batches.push((partition, payload));
                answers.push((answer, _room));
            } else {
                answer(Err(SendError::OutOfOrder));
            }
        }
        if batches.is_empty() {
            return 0;
        }
        self.health.begin(began);
        let result = {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            writer.commit(&batches, Reading { wall: self.clock.wall(), now: began })
        };
        self.health.end(&result);
        let count = answers.len();
        match result {
            Ok(stored) => answers.into_iter().zip(stored).for_each(|((answer, _), one)| answer(Ok(one))),
            Err(error) => {
                // That the disk is nearly full is told when it begins and when it ends.
                if !matches!(error, SendError::LowOnDisk { .. }) {
                    tracing::warn!(batches = count, %error, "a commit failed");
                }
                answers.into_iter().for_each(|(answer, _)| answer(Err(error.clone())));
            }
        }
        count
    }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("committer", &self.committer.is_some()).finish_non_exhaustive()
    }
}
