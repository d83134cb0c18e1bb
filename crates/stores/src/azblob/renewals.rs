//! Renewals: one request for each lease and several at a time, or one for all that are on a roll (`roll_call.rs`).
//!
//! Other SDKs look when each lease was written, so that beside them each one is. Hosts of Ephor look at the roll, too.
//!
//! Each lease has its own answer. A request that hangs is given up before the caller's time is up, and costs the others
//! nothing but its place; what was not asked in time is unknown.

use std::pin::pin;
use std::time::Duration;

use ephor_core::ids::GroupId;
use ephor_core::lease::LeaseToken;
use ephor_core::record;
use ephor_core::store::{Renewal, StoreError};
use futures_util::{Stream, StreamExt, stream};

use super::failure;
use super::names::Names;
use super::seals::changing_without_end;
use super::session::{MOST_ATTEMPTS, Session, within};

pub(super) type Outcome = Result<Renewal, StoreError>;

/// How long a renewal of one lease, or of what is on one roll, may wait for an answer, if the whole call may take `limit`.
fn limit_of_one(limit: Duration) -> Duration {
    limit * 3 / 4
}

impl Session {
    /// Renews what can be renewed within the limit. The error is that of a call in which nothing came through:
    /// the one that asks for the longest pause.
    pub(super) async fn renew(
        &self,
        group: &GroupId,
        duration: Duration,
        tokens: &[LeaseToken],
        limit: Duration,
    ) -> Result<Vec<Renewal>, StoreError> {
        if tokens.is_empty() {
            return Ok(vec![]);
        }
        let mut outcomes: Vec<Option<Outcome>> = tokens.iter().map(|_| None).collect();
        let renewals = async {
            let names = self.introduced(group).await?;
            let one = limit_of_one(limit);
            if self.by_roll() {
                let calls = self.renew_by_roll(group, &names, duration, tokens, one);
                take_in(&mut outcomes, calls).await;
            } else {
                let names = &names;
                let calls = tokens.iter().enumerate().map(|(place, token)| async move {
                    let renewal = self.renew_one(group, names, duration, token);
                    vec![(place, self.in_time(one, "a renewal", renewal).await)]
                });
                // All at hand: nothing is borrowed by a closure that outlives this.
                let calls: Vec<_> = calls.collect();
                take_in(&mut outcomes, stream::iter(calls).buffer_unordered(self.options.at_once)).await;
            }
            Ok::<(), StoreError>(())
        };
        let late = || failure::too_late(&self.container.place, "renewals", limit);
        match within(limit, renewals).await {
            Some(done) => done?,
            None => tracing::debug!(store = self.container.place, ?limit, "renewals were cut short"),
        }
        let outcomes: Vec<Outcome> =
            outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(late()))).collect();
        if outcomes.iter().all(Result::is_err) {
            // Nothing came through: the store is unwell, not a lease.
            return Err(longest_pause(outcomes).unwrap_or_else(late));
        }
        Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|error| unknown(&error))).collect())
    }

    /// Gives a step up that takes too long: whether it was carried out is then unknown.
    pub(super) async fn in_time<T>(
        &self,
        limit: Duration,
        what: &str,
        step: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let late = || Err(failure::too_late(&self.container.place, what, limit));
        within(limit, step).await.unwrap_or_else(late)
    }

    pub(super) async fn renew_one(
        &self,
        group: &GroupId,
        names: &Names,
        duration: Duration,
        token: &LeaseToken,
    ) -> Outcome {
        let partition = token.partition;
        // What is known of it is enough, if it is ours by that.
        let known = self.leases.get(names, partition);
        let mut known = known.filter(|lease| lease.is_held_by(token));
        for _ in 0..MOST_ATTEMPTS {
            let (lease, now) = match known.take() {
                Some(lease) => {
                    let now = lease.record.renewed_at;
                    (lease, now)
                }
                None => match self.ownership_now(group, names, partition).await? {
                    Some(found) => found,
                    None => return Ok(Renewal::Lost { holder: None }),
                },
            };
            let Some(renewed) = record::renew(Some(&lease.record), token, duration, now) else {
                let holder = self.with_roll(names, lease, now).await?.seen();
                return Ok(Renewal::Lost { holder: Some(holder) });
            };
            if self.write_lease(names, Some(&lease), &renewed).await?.is_some() {
                return Ok(Renewal::Renewed);
            }
        }
        Err(changing_without_end(partition))
    }
}

/// Takes answers in as they come. What is still open when this is dropped stays open.
async fn take_in(outcomes: &mut [Option<Outcome>], calls: impl Stream<Item = Vec<(usize, Outcome)>>) {
    let mut calls = pin!(calls);
    while let Some(done) = calls.next().await {
        for (place, outcome) in done {
            outcomes[place] = Some(outcome);
        }
    }
}

/// The error that asks for the longest pause, or else the first: whoever asks again waits for as long as any of them says.
fn longest_pause(outcomes: Vec<Outcome>) -> Option<StoreError> {
    outcomes.into_iter().filter_map(Result::err).rev().max_by_key(StoreError::retry_after)
}

fn unknown(error: &StoreError) -> Renewal {
    Renewal::Unknown { what: error.to_string(), retry_after: error.retry_after() }
}
