//! Group commit: collects sends in a queue and commits them together, in one thread for each hub on disk.
//!
//!   senders ─► CommitQueue (bounded in bytes) ─► CommitterThread: one write, one sync ─► readers, then senders
//!
//! A hub in memory has no committer thread: the sender commits.
//!
//! While a commit waits for the disk, the queue collects the next one. After a commit with many senders, the
//! committer waits a moment for them to send again. Otherwise every other commit would contain only the batch
//! of the first sender that is back.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ephor_core::time::{Clock, Monotonic};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::appender::{Appender, Stored};
use crate::error::SendError;
use crate::health::CommitHealth;
use crate::journal::Payload;
use crate::time::ClockReading;

/// A commit takes about this many bytes at most, so that later senders do not wait for a huge one.
const MAX_BYTES_PER_COMMIT: usize = 8 << 20;

/// The longest time that the committer waits for senders to send again.
const MAX_GATHER_TIME: Duration = Duration::from_millis(1);

/// An idle committer checks its clocks and its disk at least this often.
const MAX_IDLE: Duration = Duration::from_secs(60);

/// The same while senders are refused because the disk is nearly full.
const MAX_IDLE_LOW_ON_DISK: Duration = Duration::from_secs(1);

/// Called once with the result of a batch, also when its sender has gone away. Dropped without a call if nobody will
/// store the batch.
pub(crate) type Answer = Box<dyn FnOnce(Result<Stored, SendError>) + Send>;

/// Called right before a batch is stored. If it returns false, the batch is not stored.
pub(crate) type ShouldStore = Box<dyn FnOnce() -> bool + Send>;

/// A batch in the queue.
struct QueuedBatch {
    partition: u32,
    payload: Payload,
    wanted: ShouldStore,
    answer: Answer,
    _room: OwnedSemaphorePermit,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<QueuedBatch>,
    /// The committer sleeps until this many batches are queued, and need not be woken earlier.
    wake_at: usize,
    /// The next deadline changed: the committer must compute it again before it sleeps.
    recheck: bool,
    /// Why the queue takes no more batches.
    closing: Option<Arc<str>>,
}

/// The queue in front of the appender.
pub(crate) struct CommitQueue {
    appender: Arc<Mutex<Appender>>,
    clock: Arc<dyn Clock>,
    health: Arc<CommitHealth>,
    /// None for a hub in memory: the sender commits.
    committer: Option<CommitterHandle>,
}

struct CommitterHandle {
    queue: Arc<(Mutex<QueueState>, Condvar)>,
    room: Arc<Semaphore>,
    queue_bytes: u32,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CommitQueue {
    /// Creates a queue without a committer: every sender commits in its own task.
    pub(crate) fn direct(appender: Appender, clock: Arc<dyn Clock>) -> Self {
        let appender = appender.with_retention_on_commit();
        Self { appender: Arc::new(Mutex::new(appender)), clock, health: Arc::default(), committer: None }
    }

    /// Creates a queue with a thread that commits what is queued.
    pub(crate) fn with_committer(
        appender: Appender,
        clock: Arc<dyn Clock>,
        queue_bytes: u64,
        name: &str,
    ) -> io::Result<Self> {
        let waits_for_the_disk = appender.journal.waits_for_the_disk();
        let appender = Arc::new(Mutex::new(appender));
        let queue: Arc<(Mutex<QueueState>, Condvar)> = Arc::default();
        let queue_bytes = u32::try_from(queue_bytes).unwrap_or(u32::MAX);
        let room = Arc::new(Semaphore::new(queue_bytes as usize));
        let health: Arc<CommitHealth> = Arc::default();
        let committer_thread = CommitterThread {
            queue: queue.clone(),
            room: room.clone(),
            appender: appender.clone(),
            clock: clock.clone(),
            health: health.clone(),
            waits_for_the_disk,
        };
        let thread =
            std::thread::Builder::new().name(format!("hub {name}")).spawn(move || committer_thread.run())?;
        let thread = Mutex::new(Some(thread));
        let committer = Some(CommitterHandle { queue, room, queue_bytes, thread });
        Ok(Self { appender, clock, health, committer })
    }

    /// Stores a batch. Once it waits in the queue, dropping the future does not take it back.
    pub(crate) async fn store(&self, partition: u32, payload: Payload) -> Result<Stored, SendError> {
        let Some(committer) = &self.committer else { return self.store_now(partition, payload) };
        let (answer, answered) = oneshot::channel();
        // The receiver is gone if the sender dropped its future.
        self.enqueue(partition, payload, Box::new(|| true), Box::new(|stored| drop(answer.send(stored))))
            .await?;
        answered.await.unwrap_or_else(|_| Err(committer.queue().closed()))
    }

    /// Puts a batch into the queue as soon as there is room. Dropping the future before that takes the batch back and
    /// drops `answer`. After that, `answer` is called with the result, in the thread that stores the batch.
    pub(crate) async fn enqueue(
        &self,
        partition: u32,
        payload: Payload,
        wanted: ShouldStore,
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
        queue.waiting.push_back(QueuedBatch { partition, payload, wanted, answer, _room: room });
        if queue.waiting.len() >= queue.wake_at {
            committer.queue.1.notify_one();
        }
        Ok(())
    }

    /// Stores a batch in the sender's own task.
    fn store_now(&self, partition: u32, payload: Payload) -> Result<Stored, SendError> {
        let stored = self.appender().commit(&[(partition, payload)], ClockReading::of(&*self.clock))?;
        stored.first().copied().ok_or(SendError::EmptyBatch)
    }

    /// Locks the appender, between two commits.
    pub(crate) fn appender(&self) -> MutexGuard<'_, Appender> {
        // After a commit that panicked, the journal is as it was after the last good commit.
        self.appender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the health of the commits.
    pub(crate) fn health(&self) -> &CommitHealth {
        &self.health
    }

    /// Whether the committer thread ended although nobody closed the hub.
    pub(crate) fn committer_stopped(&self) -> bool {
        self.committer.as_ref().is_some_and(|committer| {
            let thread = committer.thread.lock().unwrap_or_else(PoisonError::into_inner);
            thread.as_ref().is_some_and(JoinHandle::is_finished)
        })
    }

    /// Makes the committer compute its next deadline again.
    pub(crate) fn wake_committer(&self) {
        if let Some(committer) = &self.committer {
            committer.queue.0.lock().unwrap_or_else(PoisonError::into_inner).recheck = true;
            committer.queue.1.notify_one();
        }
    }

    /// Stores what is queued, and ends the committer thread.
    pub(crate) fn close(&self, why: &Arc<str>) {
        let Some(committer) = &self.committer else { return };
        committer.queue().closing.get_or_insert_with(|| why.clone());
        committer.room.close();
        committer.queue.1.notify_one();
        let thread = committer.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the committer thread of a hub panicked");
        }
    }
}

impl CommitterHandle {
    fn queue(&self) -> MutexGuard<'_, QueueState> {
        self.queue.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// Returns the error for senders whose batch nobody will store.
    fn closed(&self) -> SendError {
        SendError::Closed(self.closing.clone().unwrap_or_else(|| "the hub is closed".into()))
    }
}

/// The committer thread: takes batches from the queue and commits them.
struct CommitterThread {
    queue: Arc<(Mutex<QueueState>, Condvar)>,
    room: Arc<Semaphore>,
    appender: Arc<Mutex<Appender>>,
    clock: Arc<dyn Clock>,
    health: Arc<CommitHealth>,
    waits_for_the_disk: bool,
}

/// Closes the queue when the committer thread ends, also by a panic, so that no sender waits for it.
struct CloseOnDrop {
    queue: Arc<(Mutex<QueueState>, Condvar)>,
    room: Arc<Semaphore>,
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                "the committer thread of a hub panicked: the hub stores no more events; restart the program"
            );
        }
        self.room.close();
        let mut queue = self.queue.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue
            .closing
            .get_or_insert_with(|| Arc::from("the hub's committer thread stopped; restart the program"));
        queue.waiting.clear();
    }
}

impl CommitterThread {
    fn run(self) {
        let _close_on_drop = CloseOnDrop { queue: self.queue.clone(), room: self.room.clone() };
        let mut answered = 0;
        // The duration of the last commit: no batch waits longer than that for others to join.
        let mut took = Duration::ZERO;
        while let Some(taken) = self.gather(answered, took) {
            let began = self.clock.now();
            answered = self.commit(taken, began);
            let ended = self.clock.now();
            self.health.ended_at(ended);
            took = ended.since(began);
        }
    }

    /// Waits for batches and takes them; none when the hub closes and the queue is empty.
    fn gather(&self, expected: usize, patience: Duration) -> Option<Vec<QueuedBatch>> {
        let (queue, ready) = &*self.queue;
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        while queue.waiting.is_empty() {
            if queue.closing.is_some() {
                return None;
            }
            queue.recheck = false;
            drop(queue);
            let due = self.idle();
            queue = self.queue.0.lock().unwrap_or_else(PoisonError::into_inner);
            if queue.waiting.is_empty() && queue.closing.is_none() && !queue.recheck {
                queue.wake_at = 1;
                let woken = ready.wait_timeout(queue, due);
                queue = woken.map_or_else(|error| error.into_inner().0, |woken| woken.0);
            }
        }
        let patience = (patience / 2).min(MAX_GATHER_TIME);
        // Without a sync a commit is cheap: waiting for more batches would save nothing.
        if self.waits_for_the_disk && expected > 1 && !patience.is_zero() {
            let deadline = self.clock.now() + patience;
            queue.wake_at = expected;
            while queue.waiting.len() < expected && queue.closing.is_none() {
                let left = deadline.since(self.clock.now());
                if left.is_zero() {
                    break;
                }
                let (woken, waited) = ready.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner);
                queue = woken;
                // By the time of this machine, since the clock of a test may stand still.
                if waited.timed_out() {
                    break;
                }
            }
        }
        let mut bytes = 0;
        let enough = queue.waiting.iter().position(|waiting| {
            let full = bytes > 0 && bytes + waiting.payload.bytes.len() > MAX_BYTES_PER_COMMIT;
            bytes += waiting.payload.bytes.len();
            full
        });
        let count = enough.unwrap_or(queue.waiting.len());
        Some(queue.waiting.drain(..count).collect())
    }

    /// Idle work: writes the durable mark, enforces retention, and returns how long the committer may sleep.
    fn idle(&self) -> Duration {
        self.health.begin_idle();
        let sleep = self.idle_work();
        self.health.end_idle();
        sleep
    }

    fn idle_work(&self) -> Duration {
        let mut appender = self.appender.lock().unwrap_or_else(PoisonError::into_inner);
        appender.journal.note_durable();
        let reading = ClockReading::of(&*self.clock);
        appender.check_disk_space(reading.now);
        let now = appender.update_time(reading);
        if appender.journal.is_overdue(now) {
            appender.enforce_retention(now);
        }
        appender.warn_if_events_wait(now);
        /// The delay before a failed deletion of segments is tried again.
        const RETRY_AFTER: Duration = Duration::from_secs(60);
        if appender.journal.is_overdue(now) {
            return RETRY_AFTER;
        }
        let longest = if appender.is_low_on_disk() { MAX_IDLE_LOW_ON_DISK } else { MAX_IDLE };
        appender.journal.due().map_or(longest, |due| due.since(now.proven).min(longest))
    }

    fn commit(&self, taken: Vec<QueuedBatch>, began: Monotonic) -> usize {
        let (mut batches, mut answers) = (Vec::with_capacity(taken.len()), Vec::with_capacity(taken.len()));
        for QueuedBatch { partition, payload, wanted, answer, _room } in taken {
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
            let mut appender = self.appender.lock().unwrap_or_else(PoisonError::into_inner);
            appender.commit(&batches, ClockReading { wall: self.clock.wall(), now: began })
        };
        self.health.end(&result);
        let count = answers.len();
        match result {
            Ok(stored) => answers.into_iter().zip(stored).for_each(|((answer, _), one)| answer(Ok(one))),
            Err(error) => {
                // The disk reserve logs by itself when the disk gets nearly full, and when there is room again.
                if !matches!(error, SendError::LowOnDisk { .. }) {
                    tracing::warn!(batches = count, %error, "a commit failed");
                }
                answers.into_iter().for_each(|(answer, _)| answer(Err(error.clone())));
            }
        }
        count
    }
}

impl std::fmt::Debug for CommitQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommitQueue").field("committer", &self.committer.is_some()).finish_non_exhaustive()
    }
}
