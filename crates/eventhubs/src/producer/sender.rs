//! One link that sends, and the task that owns it across its losses.
//!
//! ```text
//!   jobs ──► pending: [ 1 sent │ 2 sent │ 3 not yet ]     answers come for the first
//!
//!   stored            it is answered and leaves
//!   refused for good  it is answered with the reason; the others go on, over a new link if the connection is gone
//!   busy              the others' answers are waited for, then, after a pause, what is left is sent again
//!   link lost         a new link, and everything that has no answer is sent again, in the same order
//!   rejected so that  as if the link were lost, but the others' answers are waited for: the link lives, and what
//!   a new link helps  it stored is not sent again
//! ```
//!
//! An answer is worth waiting for as long as others come: a slow way to the hub is no reason to give up.
//!
//! After a failure the first message goes alone, so that each attempt brings at least one of them further.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ephor_core::ids::PartitionId;
use ephor_core::panics;
use ephor_wire::address::Address;
use ephor_wire::condition::Class;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::error::SendFailure;
use crate::client::Shared;
use crate::failure::Failure;
use crate::line::{Command, Key, Line, Outgoing};

/// What a sender is asked.
pub(super) enum Job {
    /// How large a message may be.
    Limit(oneshot::Sender<Result<usize, SendFailure>>),
    /// To send.
    Send(Outgoing, oneshot::Sender<Result<(), SendFailure>>),
}

struct Pending {
    job: Job,
    /// How often it was tried and failed.
    attempts: u32,
    /// It is on its way; its answer is worth waiting for until then.
    outcome: Option<(oneshot::Receiver<Result<(), Failure>>, Instant)>,
}

/// Whom a failure is counted for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Concerns {
    /// There is no link: nobody can send.
    All,
    /// The first message has failed, and of the others nothing is known.
    First,
}

/// The link of the moment. Dropping it gives it up.
struct Link {
    line: Arc<Line>,
    key: Key,
    limit: usize,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.line.release(self.key);
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
    /// In a row.
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
            // Whoever waits for it is told that it is gone, and the next send starts another.
            if let Err(panicked) = panics::caught_async(self.run()).await {
                tracing::error!(%panicked, "the task of a producer's link panicked");
            }
        });
    }

    /// Serves until nobody can ask any more.
    async fn run(mut self) {
        loop {
            if self.pending.is_empty() {
                let Some(job) = self.jobs.recv().await else { return };
                self.take(job);
            }
            if self.link.is_none() {
                match self.attach().await {
                    Ok(link) => self.link = Some(link),
                    Err((failure, line)) => {
                        self.after(&failure, Concerns::All, &line).await;
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
                // Only questions were there, and they are answered.
                () = std::future::ready(()), if self.pending.is_empty() => {}
            }
        }
    }

    fn take(&mut self, job: Job) {
        self.pending.push_back(Pending { job, attempts: 0, outcome: None });
    }

    /// If it fails, with the connection on which it did.
    async fn attach(&self) -> Result<Link, (Failure, Arc<Line>)> {
        let line = self.shared.line(self.partition);
        let key = Key::new();
        let (opened, answer) = oneshot::channel();
        // Given up if this future is dropped, or the hub says no.
        let mut link = Link { line, key, limit: 0 };
        link.line.post(Command::Attach { key, address: self.address.clone(), opened });
        link.limit = match self.shared.answer(&link.line, answer).await {
            Ok(limit) => limit,
            Err(failure) => return Err((failure, link.line.clone())),
        };
        self.limit.store(link.limit, Ordering::Relaxed);
        Ok(link)
    }

    /// Gives the connection what it has not got yet, and answers questions.
    fn hand_over(&mut self) {
        let Some(link) = &self.link else { return };
        let deadline = Instant::now() + self.shared.options.answer_time;
        let most = if self.failures > 0 { 1 } else { self.in_flight };
        let mut index = 0;
        while let Some(pending) = self.pending.get_mut(index).filter(|_| index < most) {
            if let Job::Send(message, _) = &pending.job {
                if pending.outcome.is_none() {
                    let (reply, outcome) = oneshot::channel();
                    link.line.post(Command::Send { key: link.key, message: message.clone(), reply });
                    pending.outcome = Some((outcome, deadline));
                }
                index += 1;
            } else if let Some(Pending { job: Job::Limit(reply), .. }) = self.pending.remove(index) {
                reply.send(Ok(link.limit)).ok();
            }
        }
    }

    /// The first message has its answer.
    async fn on_outcome(&mut self, outcome: Option<Result<(), Failure>>) {
        let Some(line) = self.link.as_ref().map(|link| link.line.clone()) else { return };
        let failure = match outcome {
            Some(Ok(())) => {
                self.failures = 0;
                self.answer_first(Ok(()));
                return self.extend_first();
            }
            Some(Err(failure)) => failure,
            None => {
                let why = format!("the hub did not answer within {:?}", self.shared.options.answer_time);
                line.condemn(&why);
                Failure::lost(why)
            }
        };
        match failure.class() {
            Class::GiveUp => {
                let attempts = self.pending.front().map_or(0, |first| first.attempts) + 1;
                self.answer_first(Err(SendFailure::of(&failure, attempts, true)));
                // The reason may be the connection's: the others go over the next one.
                if line.is_over() {
                    self.link = None;
                    self.take_stored();
                }
                self.extend_first();
            }
            Class::Retry => {
                if let Some(first) = self.pending.front_mut() {
                    first.outcome = None;
                }
                self.await_others().await;
                self.after(&failure, Concerns::First, &line).await;
            }
            Class::Reopen if matches!(failure, Failure::Refused(_)) => {
                if let Some(first) = self.pending.front_mut() {
                    first.outcome = None;
                }
                self.await_others().await;
                self.link = None;
                self.after(&failure, Concerns::First, &line).await;
            }
            Class::Reopen => {
                self.link = None;
                self.take_stored();
                self.after(&failure, Concerns::First, &line).await;
            }
        }
    }

    fn answer_first(&mut self, answer: Result<(), SendFailure>) {
        if let Some(Pending { job: Job::Send(_, reply), .. }) = self.pending.pop_front() {
            reply.send(answer).ok();
        }
    }

    /// An answer has come: the next one has as long as if it were sent now.
    fn extend_first(&mut self) {
        let extended = Instant::now() + self.shared.options.answer_time;
        if let Some(Pending { outcome: Some((_, deadline)), .. }) = self.pending.front_mut() {
            *deadline = extended.max(*deadline);
        }
    }

    /// Waits for the answers to what is on its way, so that what is sent again comes behind it in order. None of
    /// them has to wait if the link is gone.
    async fn await_others(&mut self) {
        // One has just come.
        let mut extended = Instant::now() + self.shared.options.answer_time;
        for pending in &mut self.pending {
            let Some((mut outcome, deadline)) = pending.outcome.take() else { continue };
            let answer = timeout_at(deadline.max(extended), &mut outcome).await;
            if answer.is_ok() {
                extended = Instant::now() + self.shared.options.answer_time;
            }
            if matches!(answer, Ok(Ok(Ok(())))) {
                answer_stored(pending);
            }
        }
        self.pending.retain(is_open);
    }

    /// Takes the answers that came before the link was lost; of the rest nothing is known.
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

    /// Counts the failure, tells those who have waited long enough, and pauses.
    async fn after(&mut self, failure: &Failure, concerns: Concerns, line: &Line) {
        self.failures = self.failures.saturating_add(1);
        let gives_up = failure.class() == Class::GiveUp;
        let most = self.shared.options.attempts;
        let hub_is_away = line.unanswered_dials() >= most;
        for (index, pending) in std::mem::take(&mut self.pending).into_iter().enumerate() {
            // What went along with others and was not answered may try again; who waits while nothing succeeds
            // shall not wait for each of those before.
            let counts = index == 0 || concerns == Concerns::All || self.failures > 1;
            let attempts = pending.attempts + u32::from(counts);
            if gives_up || hub_is_away || attempts >= most {
                let failure = SendFailure::of(failure, attempts, gives_up);
                match pending.job {
                    Job::Limit(reply) => drop(reply.send(Err(failure))),
                    Job::Send(_, reply) => drop(reply.send(Err(failure))),
                }
            } else {
                self.pending.push_back(Pending { attempts, ..pending });
            }
        }
        // A link that the service detached for being idle is nobody's fault.
        let at_once = self.failures == 1 && failure.class() == Class::Reopen;
        if !gives_up && !at_once {
            tracing::debug!(address = %self.address, failures = self.failures, reason = %failure, "sender waits");
            self.shared.pause(line, self.failures).await;
        }
    }
}

/// The answer for the first message; none if it does not come in time.
async fn first_outcome(pending: &mut VecDeque<Pending>) -> Option<Result<(), Failure>> {
    let Some(Pending { outcome: Some((outcome, deadline)), .. }) = pending.front_mut() else {
        return std::future::pending().await;
    };
    match timeout_at(*deadline, outcome).await {
        Ok(Ok(outcome)) => Some(outcome),
        Ok(Err(_)) => Some(Err(Failure::lost("the connection is gone"))),
        Err(_) => None,
    }
}

/// Tells that a message is stored; what is left of it is a question that nobody asks.
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
