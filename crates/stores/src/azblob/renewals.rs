//! Renewals: one request for each lease, several at a time.

use std::time::Duration;

use ephor_core::ids::GroupId;
use ephor_core::lease::LeaseToken;
use ephor_core::record;
use ephor_core::store::{Renewal, StoreError};
use futures_util::{StreamExt, stream};

use super::names::Names;
use super::ownership::Ownership;
use super::seals::changing_without_end;
use super::session::{MOST_ATTEMPTS, Session};

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
        let calls: Vec<_> =
            tokens.iter().map(|token| self.renew_one(group, &names, duration, token)).collect();
        let mut outcomes: Vec<Result<Renewal, StoreError>> =
            stream::iter(calls).buffered(self.options.at_once).collect().await;
        if outcomes.iter().all(Result::is_err) {
            // Nothing came through: the store is unwell, not a lease.
            outcomes.swap_remove(0)?;
        }
        let told = |outcome: Result<Renewal, StoreError>| {
            outcome.unwrap_or_else(|error| Renewal::Unknown { what: error.to_string() })
        };
        Ok(outcomes.into_iter().map(told).collect())
    }

    async fn renew_one(
        &self,
        group: &GroupId,
        names: &Names,
        duration: Duration,
        token: &LeaseToken,
    ) -> Result<Renewal, StoreError> {
        let partition = token.partition;
        // What is known of it is enough, if it is ours by that.
        let known = self.leases.get(names, partition);
        let is_ours = |lease: &Ownership| {
            lease.record.owner.as_ref() == Some(&token.owner) && lease.record.epoch == token.epoch
        };
        let mut known = known.filter(is_ours);
        for _ in 0..MOST_ATTEMPTS {
            let (lease, now) = match known.take() {
                Some(lease) => {
                    let now = lease.record.renewed_at;
                    (lease, now)
                }
                None => match self.lease_now(group, names, partition).await? {
                    Some(found) => found,
                    None => return Ok(Renewal::Lost { holder: None }),
                },
            };
            let Some(renewed) = record::renew(Some(&lease.record), token, duration, now) else {
                return Ok(Renewal::Lost { holder: Some(lease.seen_at(now)) });
            };
            if self.write_lease(names, Some(&lease), &renewed).await?.is_some() {
                return Ok(Renewal::Renewed);
            }
        }
        Err(changing_without_end(partition))
    }
}
