//! The thread that owns the database connection. It runs store calls in order, one transaction each, and
//! syncs several waiting calls with one sync.

use std::io;
use std::time::Instant;

use ephor_core::ids::GroupId;
use ephor_core::panics;
use ephor_core::store::StoreError;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::clock::ClockRow;
use super::records::{Records, TransactionResult};
use super::session::Session;

/// The number of calls in the queue; further calls wait for space in it.
const MAX_QUEUED_CALLS: usize = 256;

/// The number of calls that share one sync.
const MAX_CALLS_PER_SYNC: usize = 64;

/// Sends the result to the caller after the sync.
type Answer = Box<dyn FnOnce(&Result<(), String>) + Send>;

type Job = Box<dyn FnOnce(&mut Session) -> Option<Answer> + Send>;

/// A handle to the thread, which ends after the last handle is dropped.
#[derive(Clone)]
pub(super) struct Worker {
    jobs: mpsc::Sender<Job>,
}

impl Worker {
    pub(super) fn start(session: Session) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel(MAX_QUEUED_CALLS);
        std::thread::Builder::new().name("ephor-sqlite".into()).spawn(move || run(session, queue))?;
        Ok(Self { jobs })
    }

    /// Runs a transaction that may write; returns after it is on disk.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        group: &GroupId,
        act: impl FnOnce(&Records<'_>) -> TransactionResult<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let group = group.clone();
        self.call(true, move |session, since| session.write(&group, since, act)).await
    }

    /// Runs a transaction that only reads.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection, &ClockRow) -> TransactionResult<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.call(false, move |session, since| session.read(since, act)).await
    }

    #[expect(clippy::disallowed_methods, reason = "a wait for a lock is real")]
    async fn call<T: Send + 'static>(
        &self,
        writes: bool,
        step: impl FnOnce(&mut Session, Instant) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let since = Instant::now();
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |session| {
            // The caller has gone: skip the transaction.
            if answer.is_closed() {
                return None;
            }
            let result = step(session, since);
            Some(Box::new(move |synced: &Result<(), String>| {
                let _ = answer.send(match synced {
                    Err(why) if writes => Err(StoreError::Unavailable(why.clone().into())),
                    _ => result,
                });
            }))
        });
        self.jobs.send(job).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

fn ended() -> StoreError {
    StoreError::Unavailable("the store's thread returned no result".into())
}

fn run(mut session: Session, mut queue: mpsc::Receiver<Job>) {
    while let Some(first) = queue.blocking_recv() {
        let mut answers = Vec::new();
        let mut next = Some(first);
        while let Some(job) = next {
            answers.extend(carry_out(&mut session, job));
            next = (answers.len() < MAX_CALLS_PER_SYNC).then(|| queue.try_recv().ok()).flatten();
        }
        let synced = panics::caught(|| session.sync()).unwrap_or_else(|panicked| {
            tracing::error!(%panicked, "syncing the store panicked");
            Err(format!("the write may not be on disk: the sync panicked: {panicked}"))
        });
        for answer in answers {
            answer(&synced);
        }
    }
}

/// Runs one job. A panic rolls back its transaction, and the thread continues.
fn carry_out(session: &mut Session, job: Job) -> Option<Answer> {
    panics::caught(|| job(session)).unwrap_or_else(|panicked| {
        tracing::error!(%panicked, "a transaction of the store panicked and was rolled back");
        None
    })
}
