//! Renews leases: one request for each lease, several concurrently, or one for each batch
//! (`renewal/batched.rs`).
//!
//! Other SDKs judge a lease by when its blob was written, so in a group shared with them each lease is
//! written. Hosts of Ephor also read the batches.
//!
//! Each lease has its own outcome. A request that hangs is abandoned before the caller's limit, and delays
//! only itself; the outcome of leases that were not reached in time is unknown.

use std::sync::Mutex;
use std::time::Duration;

use ephor_core::ids::GroupId;
use ephor_core::lease::LeaseToken;
use ephor_core::record;
use ephor_core::store::{RenewalOutcome, StoreError};
use futures_util::{StreamExt, stream};

use crate::azblob::layout::blob_names::Names;
use crate::azblob::operations::fencing::too_many_conflicts;
use crate::azblob::service::error_mapping;
use crate::azblob::session::{MAX_ATTEMPTS, Session, locked, within};

pub(in crate::azblob) type Outcome = Result<RenewalOutcome, StoreError>;

/// The outcomes of a call, by the index of the token. Each is stored as soon as it is known; those that are
/// missing when the call's time is over are unknown.
pub(in crate::azblob) struct Outcomes(Mutex<Vec<Option<Outcome>>>);

impl Outcomes {
    fn new(count: usize) -> Self {
        Self(Mutex::new((0..count).map(|_| None).collect()))
    }

    pub(in crate::azblob) fn put(&self, index: usize, outcome: Outcome) {
        if let Some(place) = locked(&self.0).get_mut(index) {
            *place = Some(outcome);
        }
    }

    fn take(&self) -> Vec<Option<Outcome>> {
        std::mem::take(&mut *locked(&self.0))
    }
}

/// The limit for the renewal of one lease or one batch, if the whole call may take `limit`.
fn limit_of_one(limit: Duration) -> Duration {
    limit * 3 / 4
}

impl Session {
    /// Renews as many leases as possible within the limit. Fails only if no renewal succeeded, with the error that
    /// asks for the longest pause.
    pub(in crate::azblob) async fn renew(
        &self,
        group: &GroupId,
        duration: Duration,
        tokens: &[LeaseToken],
        limit: Duration,
    ) -> Result<Vec<RenewalOutcome>, StoreError> {
        if tokens.is_empty() {
            return Ok(vec![]);
        }
        let outcomes = Outcomes::new(tokens.len());
        let renewals = async {
            let names = self.ensure_group(group).await?;
            let one = limit_of_one(limit);
            if self.renews_in_batches() {
                self.renew_in_batches(group, &names, duration, tokens, one, &outcomes).await;
            } else {
                let (names, outcomes) = (&names, &outcomes);
                let calls = tokens.iter().enumerate().map(|(index, token)| async move {
                    let renewal = self.renew_one(group, names, duration, token);
                    outcomes.put(index, self.in_time(one, "a renewal", renewal).await);
                });
                // Collected first, so that no closure borrows longer than this call.
                let calls: Vec<_> = calls.collect();
                stream::iter(calls)
                    .buffer_unordered(self.options.max_concurrent_requests)
                    .collect::<()>()
                    .await;
            }
            Ok::<(), StoreError>(())
        };
        let late = || error_mapping::too_late(&self.container.place, "renewals", limit);
        match within(limit, renewals).await {
            Some(done) => done?,
            None => tracing::debug!(
                store = self.container.place,
                ?limit,
                "the time limit ended before all leases were renewed"
            ),
        }
        let outcomes: Vec<Outcome> =
            outcomes.take().into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(late()))).collect();
        if outcomes.iter().all(Result::is_err) {
            // No renewal succeeded: the store fails, not a lease.
            return Err(longest_pause(outcomes).unwrap_or_else(late));
        }
        Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|error| unknown(&error))).collect())
    }

    /// Abandons a step that takes too long. Its outcome is then unknown.
    pub(in crate::azblob) async fn in_time<T>(
        &self,
        limit: Duration,
        what: &str,
        step: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let late = || Err(error_mapping::too_late(&self.container.place, what, limit));
        within(limit, step).await.unwrap_or_else(late)
    }

    pub(in crate::azblob) async fn renew_one(
        &self,
        group: &GroupId,
        names: &Names,
        duration: Duration,
        token: &LeaseToken,
    ) -> Outcome {
        let partition = token.partition;
        // The cached lease suffices if it is ours.
        let known = self.leases.get(names, partition);
        let mut known = known.filter(|lease| lease.is_held_by(token));
        for _ in 0..MAX_ATTEMPTS {
            let (lease, now) = match known.take() {
                Some(lease) => {
                    let now = lease.record.renewed_at;
                    (lease, now)
                }
                None => match self.ownership_now(group, names, partition).await? {
                    Some(found) => found,
                    None => return Ok(RenewalOutcome::Lost { holder: None }),
                },
            };
            let Some(renewed) = record::renew(Some(&lease.record), token, duration, now) else {
                let holder = self.with_batch(names, lease, now).await?.seen();
                return Ok(RenewalOutcome::Lost { holder: Some(holder) });
            };
            if self.write_lease(names, Some(&lease), &renewed).await?.is_some() {
                return Ok(RenewalOutcome::Renewed);
            }
        }
        Err(too_many_conflicts(partition))
    }
}

/// The error that asks for the longest pause, or else the first: a caller that retries must wait that long.
fn longest_pause(outcomes: Vec<Outcome>) -> Option<StoreError> {
    outcomes.into_iter().filter_map(Result::err).rev().max_by_key(StoreError::retry_after)
}

fn unknown(error: &StoreError) -> RenewalOutcome {
    RenewalOutcome::Unknown { what: error.to_string(), retry_after: error.retry_after() }
}
