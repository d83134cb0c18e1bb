//! Renewals: one request for each lease and several at a time, or one for all that are on a roll (`roll_call.rs`).
//!
//! Other SDKs look when each lease was written, so that beside them each one is. Hosts of Ephor look at the roll, too.

use std::time::Duration;

use ephor_core::ids::GroupId;
use ephor_core::lease::LeaseToken;
use ephor_core::record;
use ephor_core::store::{Renewal, StoreError};
use futures_util::{StreamExt, stream};

use super::names::Names;
use super::seals::changing_without_end;
use super::session::{MOST_ATTEMPTS, Session};

pub(super) type Outcome = Result<Renewal, StoreError>;

impl Session {
    pub(super) async fn renew(
        &self,
        group: &GroupId,
        duration: Duration,
        tokens: &[LeaseToken],
    ) -> Result<Vec<Renewal>, StoreError> {
        if tokens.is_empty() {
            return Ok(vec![]);
        }
        let names = self.introduced(group).await?;
        let mut outcomes = if self.by_roll() {
            self.renew_by_roll(group, &names, duration, tokens).await
        } else {
            let calls: Vec<_> =
                tokens.iter().map(|token| self.renew_one(group, &names, duration, token)).collect();
            stream::iter(calls).buffered(self.options.at_once).collect().await
        };
        if outcomes.iter().all(Result::is_err) {
            // Nothing came through: the store is unwell, not a lease.
            outcomes.swap_remove(0)?;
        }
        let told =
            |outcome: Outcome| outcome.unwrap_or_else(|error| Renewal::Unknown { what: error.to_string() });
        Ok(outcomes.into_iter().map(told).collect())
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
