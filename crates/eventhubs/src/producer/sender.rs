//! The task of one sender link: sends in order, and retries over new links when a link is lost.
//!
//! ```text
//!   jobs ──► pending: [ 1 sent │ 2 sent │ 3 not yet ]     answers arrive for the first
//!
//!   stored            the job is answered and removed
//!   refused for good  the job gets the error; the others continue, over a new link if the connection is gone
//!   busy              wait for the others' answers, then, after a backoff, send the rest again
//!   link lost         open a new link, and send everything without an answer again, in the same order
//!   rejected so that  as if the link were lost, but wait for the others' answers first: the link still works, and
//!   a new link helps  messages that it stored are not sent again
//! ```
//!
//! The deadline of an answer is extended whenever another answer arrives on the connection, or bytes of a
//! message are written: a slow connection is no reason to give up. Only a connection that answers nothing is
//! abandoned.
//!
//! After a failure the first message is sent alone, so that each attempt can bring at least one message
//! further.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ephor_core::ids::PartitionId;
use ephor_core::panics;
use ephor_wire::address::Address;
use ephor_wire::condition::Class;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout_at;

use super::error::SendFailure;
use crate::client::Shared;
use crate::connection::{Command, ConnectionHandle, Deadline, LinkKey, Outgoing};
use crate::failure_classes::Failure;

/// A request to a sender task.
pub(super) enum Job {
    /// Return the maximum message size.
    Limit(oneshot::Sender<Result<usize, SendFailure>>),
    /// Send a message.
    Send(Outgoing, oneshot::Sender<Result<(), SendFailure>>),
}

struct Pending {
    job: Job,
    /// The number of failed attempts.
    attempts: u32,
    /// Set while the message is in flight: its answer, and the deadline for it.
    outcome: Option<(oneshot::Receiver<Result<(), Failure>>, Deadline)>,
}

/// The messages for which a failure counts as an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Concerns {
    /// All: there is no link, so none can be sent.
    All,
    /// The first: it has failed, and nothing is known about the others.
    First,
}

/// The current link. Dropping it releases it.
struct Link {
    connection: Arc<ConnectionHandle>,
    key: LinkKey,
    limit: usize,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.connection.release(self.key);
    }
}

pub(super) struct Sender {
    shared: Arc<Shared>,
    address: Address,
    partition: Option<PartitionId>,
    jobs: mpsc::Receiver<Job>,
    in_flight: usize,
    limit: Arc<AtomicUsize>,
    pending: VecDeque<Pending>,
    link: Option<Link>,
    /// The number of failures in a row.
    failures: u32,
}

impl Sender {
    pub(super) fn new(
        shared: Arc<Shared>,
        address: Address,
        partition: Option<PartitionId>,
        jobs: mpsc::Receiver<Job>,
        in_flight: usize,
        limit: Arc<AtomicUsize>,
    ) -> Self {
        let pending = VecDeque::new();
        Self { shared, address, partition, jobs, in_flight, limit, pending, link: None, failures: 0 }
    }

    #[expect(clippy::disallowed_methods, reason = "a link needs a task, and sockets are not simulated")]
    pub(super) fn start(self) {
        tokio::spawn(async move {
            // Callers that wait get an error, and the next send starts a new task.
            if let Err(panicked) = panics::caught_async(self.run()).await {
                tracing::error!(%panicked, "the task of a producer's link panicked");
            }
        });
    }

    /// Runs until all handles are dropped.
    async fn run(mut self) {
        loop {
            if self.pending.is_empty() {
                let Some(job) = self.jobs.recv().await else { return };
                self.take(job);
            }
            if self.link.is_none() {
                match self.attach().await {
                    Ok(link) => self.link = Some(link),
                    Err((failure, connection)) => {
                        self.after(&failure, Concerns::All, &connection).await;
                        continue;
                    }
                }
            }
            self.hand_over();
            let room = self.pending.len() < self.in_flight;
            tokio::select! {
                biased;
                outcome = first_outcome(&mut self.pending) => self.on_outcome(outcome).await,
                Some(job) = self.jobs.recv(), if room && !self.pending.is_empty() => self.take(job),
                // Only limit requests were pending, and they are answered.
                () = std::future::ready(()), if self.pending.is_empty() => {}
            }
        }
    }

    fn take(&mut self, job: Job) {
        self.pending.push_back(Pending { job, attempts: 0, outcome: None });
    }

    /// On failure, also returns the connection on which it failed.
    async fn attach(&self) -> Result<Link, (Failure, Arc<ConnectionHandle>)> {
        let connection = self.shared.connection(self.partition);
        let key = LinkKey::new();
        let (opened, answer) = oneshot::channel();
        // Released if this future is dropped, or if the hub refuses the link.
        let mut link = Link { connection, key, limit: 0 };
        link.connection.post(Command::Attach { key, address: self.address.clone(), opened });
        link.limit = match self.shared.answer(&link.connection, answer).await {
            Ok(limit) => limit,
            Err(failure) => return Err((failure, link.connection.clone())),
        };
        self.limit.store(link.limit, Ordering::Relaxed);
        Ok(link)
    }

    /// Posts unsent messages to the connection, and answers limit requests.
    fn hand_over(&mut self) {
        let Some(link) = &self.link else { return };
        let max = if self.failures > 0 { 1 } else { self.in_flight };
        let mut index = 0;
        while let Some(pending) = self.pending.get_mut(index).filter(|_| index < max) {
            if let Job::Send(message, _) = &pending.job {
                if pending.outcome.is_none() {
                    let (reply, outcome) = oneshot::channel();
                    link.connection.post(Command::Send { key: link.key, message: message.clone(), reply });
                    let deadline = Deadline::new(self.shared.options.answer_time, link.connection.traffic());
                    pending.outcome = Some((outcome, deadline));
                }
                index += 1;
            } else if let Some(Pending { job: Job::Limit(reply), .. }) = self.pending.remove(index) {
                reply.send(Ok(link.limit)).ok();
            }
        }
    }

    /// Handles the answer for the first message.
    async fn on_outcome(&mut self, outcome: Option<Result<(), Failure>>) {
        let Some(connection) = self.link.as_ref().map(|link| link.connection.clone()) else { return };
        let failure = match outcome {
            Some(Ok(())) => {
                self.failures = 0;
                self.answer_first(Ok(()));
                return self.extend_first(&connection);
            }
            Some(Err(failure)) => failure,
            None => match self.late(&connection) {
                Some(failure) => failure,
                None => return,
            },
        };
        match failure.class() {
            Class::GiveUp => {
                let attempts = self.pending.front().map_or(0, |first| first.attempts) + 1;
                self.answer_first(Err(SendFailure::of(&failure, attempts, true)));
                // The connection may be the reason: the others go over the next one.
                if connection.is_over() {
                    self.link = None;
                    self.take_stored();
                }
                self.extend_first(&connection);
            }
            Class::Retry => {
                if let Some(first) = self.pending.front_mut() {
                    first.outcome = None;
                }
                self.await_others(&connection).await;
                self.after(&failure, Concerns::First, &connection).await;
            }
            Class::Reopen if matches!(failure, Failure::Refused(_)) => {
                if let Some(first) = self.pending.front_mut() {
                    first.outcome = None;
                }
                self.await_others(&connection).await;
                self.link = None;
                self.after(&failure, Concerns::First, &connection).await;
            }
            Class::Reopen => {
                self.link = None;
                self.take_stored();
                self.after(&failure, Concerns::First, &connection).await;
            }
        }
    }

    /// The deadline of the first message has passed; none if it was extended.
    fn late(&mut self, connection: &ConnectionHandle) -> Option<Failure> {
        let (_, deadline) = self.pending.front_mut()?.outcome.as_mut()?;
        if deadline.extend(connection.traffic()) {
            return None;
        }
        let why = format!(
            "the hub did not answer within {:?} (answer_time); on a slow connection send smaller batches or raise \
             answer_time",
            self.shared.options.answer_time
        );
        if !deadline.others_are_answered() {
            connection.abandon(&why);
        }
        Some(Failure::lost(why))
    }

    fn answer_first(&mut self, answer: Result<(), SendFailure>) {
        if let Some(Pending { job: Job::Send(_, reply), .. }) = self.pending.pop_front() {
            reply.send(answer).ok();
        }
    }

    /// An answer has arrived: extend the deadline of the next one as if it were sent now.
    fn extend_first(&mut self, connection: &ConnectionHandle) {
        if let Some(Pending { outcome: Some((_, deadline)), .. }) = self.pending.front_mut() {
            *deadline = Deadline::new(self.shared.options.answer_time, connection.traffic());
        }
    }

    /// Waits for the answers to all messages in flight, so that those that are sent again come after them, in
    /// order. If the link is gone, the answers are ready immediately.
    async fn await_others(&mut self, connection: &ConnectionHandle) {
        let mut gave_up = false;
        for pending in &mut self.pending {
            let Some((mut outcome, _)) = pending.outcome.take() else { continue };
            let stored = match gave_up {
                true => matches!(outcome.try_recv(), Ok(Ok(()))),
                false => {
                    // An answer has just arrived.
                    let mut deadline = Deadline::new(self.shared.options.answer_time, connection.traffic());
                    let answer = deadline.wait(connection.traffic(), outcome).await;
                    gave_up = answer.is_none();
                    matches!(answer, Some(Ok(Ok(()))))
                }
            };
            if stored {
                answer_stored(pending);
            }
        }
        self.pending.retain(is_open);
    }

    /// Handles the answers that arrived before the link was lost; the fate of the rest is unknown.
    fn take_stored(&mut self) {
        for pending in &mut self.pending {
            if let Some((mut outcome, _)) = pending.outcome.take()
                && matches!(outcome.try_recv(), Ok(Ok(())))
            {
                answer_stored(pending);
            }
        }
        self.pending.retain(is_open);
    }

    /// Counts the failure, fails the jobs that are out of attempts, and waits for the backoff.
    async fn after(&mut self, failure: &Failure, concerns: Concerns, connection: &ConnectionHandle) {
        self.failures = self.failures.saturating_add(1);
        let gives_up = failure.class() == Class::GiveUp;
        let max = self.shared.options.attempts;
        let hub_is_away = connection.unanswered_dials() >= max;
        for (index, pending) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            // A message that was in flight with others and got no answer may be retried without counting. But
            // if nothing succeeds, it must not wait for the attempts of every message before it.
            let counts = index == 0 || concerns == Concerns::All || self.failures > 1;
            let attempts = pending.attempts + u32::from(counts);
            if gives_up || hub_is_away || attempts >= max {
                let failure = SendFailure::of(failure, attempts, gives_up);
                match pending.job {
                    Job::Limit(reply) => drop(reply.send(Err(failure))),
                    Job::Send(_, reply) => drop(reply.send(Err(failure))),
                }
            } else {
                self.pending.push_back(Pending { attempts, ..pending });
            }
        }
        // A link that the service detached for being idle is reopened without a pause.
        let at_once = self.failures == 1 && failure.class() == Class::Reopen;
        if !gives_up && !at_once {
            tracing::debug!(
                address = %self.address, failures = self.failures, reason = %failure,
                "sender waits to retry"
            );
            self.shared.pause(connection, self.failures).await;
        }
    }
}

/// The answer for the first message; none if it does not arrive in time.
async fn first_outcome(pending: &mut VecDeque<Pending>) -> Option<Result<(), Failure>> {
    let Some(Pending { outcome: Some((outcome, deadline)), .. }) = pending.front_mut() else {
        return std::future::pending().await;
    };
    match timeout_at(deadline.at(), outcome).await {
        Ok(Ok(outcome)) => Some(outcome),
        Ok(Err(_)) => Some(Err(Failure::lost("the connection has ended"))),
        Err(_) => None,
    }
}

/// Reports that a message is stored, and replaces its job by one that nobody waits for.
fn answer_stored(pending: &mut Pending) {
    let nobody = Job::Limit(oneshot::channel().0);
    if let Job::Send(_, reply) = std::mem::replace(&mut pending.job, nobody) {
        reply.send(Ok(())).ok();
    }
}

fn is_open(pending: &Pending) -> bool {
    match &pending.job {
        Job::Limit(reply) => !reply.is_closed(),
        Job::Send(..) => true,
    }
}
