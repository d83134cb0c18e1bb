//! The thread that owns the connection: it carries out the calls in order, one step each, and brings those
//! that were waiting together to disk at once.

use std::io;
use std::time::Instant;

use ephor_core::ids::GroupId;
use ephor_core::panics;
use ephor_core::store::StoreError;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::clock::ClockRow;
use super::records::{Records, StepResult};
use super::session::Session;

/// So many calls may wait for their turn; further ones wait for a place.
const QUEUE: usize = 256;

/// So many calls share one wait for the disk, at most.
const TOGETHER: usize = 64;

/// Gives the answer, once it is known whether what was written is on disk.
type Answer = Box<dyn FnOnce(&Result<(), String>) + Send>;

type Job = Box<dyn FnOnce(&mut Session) -> Option<Answer> + Send>;

/// A handle to the thread, which ends when the last handle is gone.
#[derive(Clone)]
pub(super) struct Worker {
    jobs: mpsc::Sender<Job>,
}

impl Worker {
    pub(super) fn start(session: Session) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        std::thread::Builder::new().name("ephor-sqlite".into()).spawn(move || run(session, queue))?;
        Ok(Self { jobs })
    }

    /// One step that may write; answered when it is on disk.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        group: &GroupId,
        act: impl FnOnce(&Records<'_>) -> StepResult<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let group = group.clone();
        self.call(true, move |session, since| session.write(&group, since, act)).await
    }

    /// One step that only reads.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection, &ClockRow) -> StepResult<T> + Send + 'static,
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
            // Whoever asked has given up: then the step is not done.
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
    StoreError::Unavailable("the store's thread gave no answer".into())
}

fn run(mut session: Session, mut queue: mpsc::Receiver<Job>) {
    while let Some(first) = queue.blocking_recv() {
        let mut answers = Vec::new();
        let mut next = Some(first);
        while let Some(job) = next {
            answers.extend(carry_out(&mut session, job));
            next = (answers.len() < TOGETHER).then(|| queue.try_recv().ok()).flatten();
        }
        let synced = panics::caught(|| session.sync()).unwrap_or_else(|panicked| {
            tracing::error!(%panicked, "bringing the store's writes to disk panicked");
            Err(format!("whether it is on disk is unknown: {panicked}"))
        });
        for answer in answers {
            answer(&synced);
        }
    }
}

/// A panic in one step rolls that step back and is no reason to end all others.
fn carry_out(session: &mut Session, job: Job) -> Option<Answer> {
    panics::caught(|| job(session)).unwrap_or_else(|panicked| {
        tracing::error!(%panicked, "a step of the store panicked and was rolled back");
        None
    })
}
