//! Counts the saves of a partition that the store may still execute, so that a rewind can wait for them.

use std::time::Duration;

use ephor_core::time::Monotonic;
use tokio::sync::watch;

use crate::environment::Environment;

/// The saves of one partition.
#[derive(Debug, Default)]
pub(crate) struct SavesInFlight(watch::Sender<Saves>);

#[derive(Debug, Default)]
struct Saves {
    in_flight: usize,
    /// The time until which a save that got no answer may still be carried out.
    unanswered_until: Monotonic,
}

/// A save in flight. One that is dropped got no answer.
pub(crate) struct Saving<'a> {
    saves: &'a SavesInFlight,
    environment: &'a dyn Environment,
    timeout: Duration,
    answered: bool,
}

impl SavesInFlight {
    /// Notes that a save begins. `timeout` is the time that the store has for it.
    pub(crate) fn begin<'a>(&'a self, environment: &'a dyn Environment, timeout: Duration) -> Saving<'a> {
        self.0.send_modify(|saves| saves.in_flight += 1);
        Saving { saves: self, environment, timeout, answered: false }
    }

    /// Waits for the saves in flight, but no longer than one may take: user code may hold on to a
    /// save without polling it. A save without an answer counts for as long again, because the
    /// store may still carry it out.
    pub(crate) async fn none_left(&self, environment: &dyn Environment, timeout: Duration) {
        let limit = environment.sleep_until(environment.now() + timeout);
        tokio::select! {
            biased;
            () = self.none_in_flight() => {}
            () = limit => {}
        }
        let unanswered_until = self.0.borrow().unanswered_until;
        environment.sleep_until(unanswered_until).await;
    }

    async fn none_in_flight(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|saves| saves.in_flight == 0).await;
    }
}

impl Saving<'_> {
    /// Notes that the store answered.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Saving<'_> {
    fn drop(&mut self) {
        let until = self.environment.now() + self.timeout;
        self.saves.0.send_modify(|saves| {
            saves.in_flight -= 1;
            if !self.answered {
                saves.unanswered_until = saves.unanswered_until.max(until);
            }
        });
    }
}
