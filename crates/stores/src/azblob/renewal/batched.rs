//! Renews leases in batches: one write for all leases of a host among 256 partitions.
//!
//! A lease is renewed if the cache shows it as ours and the batch that is overwritten does not revoke it.
//! The cache is filled by our own writes and by reads, and no process takes a lease without a revocation.
//! If another process has changed the batch, it is read, and leases without an entry in it are read again:
//! they may have been revoked and the entry dropped since.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor_core::ids::{GroupId, HostId};
use ephor_core::lease::LeaseToken;
use ephor_core::store::{FORGET_HOSTS_AFTER, Renewal, StoreError};
use ephor_core::time::Timestamp;
use futures_util::{Stream, StreamExt, stream};

use crate::azblob::layout::blob_names::Names;
use crate::azblob::renewal::batch::{RenewalBatch, batch_number};
use crate::azblob::renewal::renew::Outcome;
use crate::azblob::renewal::revocations::KnownBatch;
use crate::azblob::service::container::{Stamp, Write};
use crate::azblob::service::failure;
use crate::azblob::session::{MAX_ATTEMPTS, Session};

/// The renewal of one batch in progress.
struct BatchRenewal<'a> {
    group: &'a GroupId,
    names: &'a Names,
    owner: &'a HostId,
    batch_number: u32,
    duration: Duration,
    /// The limit of each request.
    limit: Duration,
    /// The tokens, each with its outcome.
    tokens: Vec<(&'a LeaseToken, Option<Outcome>)>,
}

impl BatchRenewal<'_> {
    fn open(&self) -> impl Iterator<Item = &LeaseToken> {
        self.tokens.iter().filter(|(_, outcome)| outcome.is_none()).map(|(token, _)| *token)
    }

    fn close(&mut self, outcome: impl Fn() -> Outcome) {
        for (_, open) in self.tokens.iter_mut().filter(|(_, outcome)| outcome.is_none()) {
            *open = Some(outcome());
        }
    }

    fn fail(&mut self, error: &StoreError) {
        self.close(|| Err(failure::copy_of(error)));
    }
}

fn too_many_conflicts(owner: &HostId) -> StoreError {
    let message =
        format!("other processes change the renewals of {owner} faster than this host can write them");
    StoreError::Unavailable(message.into())
}

impl Session {
    /// Returns the outcomes of each batch as it ends, each with the index of its token.
    pub(in crate::azblob) fn renew_in_batches(
        &self,
        group: &GroupId,
        names: &Names,
        duration: Duration,
        tokens: &[LeaseToken],
        limit: Duration,
    ) -> impl Stream<Item = Vec<(usize, Outcome)>> {
        let mut batches: BTreeMap<(&HostId, u32), Vec<usize>> = BTreeMap::new();
        for (index, token) in tokens.iter().enumerate() {
            batches.entry((&token.owner, batch_number(token.partition))).or_default().push(index);
        }
        let calls: Vec<_> = batches
            .into_iter()
            .map(|((owner, batch_number), indexes)| async move {
                let tokens = indexes.iter().map(|index| (&tokens[*index], None)).collect();
                let call = BatchRenewal { group, names, owner, batch_number, duration, limit, tokens };
                let outcomes = self.renew_batch(call).await;
                indexes.into_iter().zip(outcomes).collect::<Vec<_>>()
            })
            .collect();
        stream::iter(calls).buffer_unordered(self.options.max_concurrent_requests)
    }

    async fn renew_batch(&self, mut call: BatchRenewal<'_>) -> Vec<Outcome> {
        let name = call.names.batch_named(call.owner, call.batch_number);
        let cell = self.batches.cell(&name);
        let mut known = cell.lock().await;
        for _ in 0..MAX_ATTEMPTS {
            let (batch, is_new) = match known.as_ref() {
                Some(known) => (known.batch.clone(), false),
                None => (RenewalBatch::empty(call.batch_number), true),
            };
            self.read_uncertain_leases(&mut call, &batch).await;
            if call.open().next().is_none() {
                break;
            }
            let next = self.renewed(&call, batch);
            let write = self.write_batch(&name, known.as_ref(), &next);
            match self.in_time(call.limit, "a renewal", write).await {
                Ok(Write::Done(Stamp { etag, modified })) => {
                    *known = Some(KnownBatch { batch: next.dated(modified), etag });
                    if !is_new || !self.forget_stale_leases(&call, modified) {
                        call.close(|| Ok(Renewal::Renewed));
                    }
                }
                Ok(Write::Refused) => {
                    match self
                        .in_time(call.limit, "a renewal", self.read_batch(&name, call.batch_number))
                        .await
                    {
                        Ok((read, _)) => {
                            self.forget_leases_not_in(
                                call.names,
                                call.owner,
                                call.batch_number,
                                read.as_ref(),
                            );
                            // The revocations of a lost batch are unknown: renew by the ownership, where a
                            // takeover conflicts, too.
                            let lost =
                                known.is_some() && read.as_ref().is_none_or(|read| read.batch.is_blank());
                            *known = read;
                            if lost {
                                self.renew_one_by_one(&mut call).await;
                            }
                        }
                        Err(error) => call.fail(&error),
                    }
                }
                // The cached state stays the condition: if this write was carried out, the next one is refused
                // and reads.
                Err(error) => call.fail(&error),
            }
        }
        call.fail(&too_many_conflicts(call.owner));
        call.tokens.into_iter().filter_map(|(_, outcome)| outcome).collect()
    }

    async fn renew_one_by_one(&self, call: &mut BatchRenewal<'_>) {
        let (group, names, duration, limit) = (call.group, call.names, call.duration, call.limit);
        let open: Vec<LeaseToken> = call.open().cloned().collect();
        let calls = open
            .iter()
            .map(|token| self.in_time(limit, "a renewal", self.renew_one(group, names, duration, token)));
        let calls: Vec<_> = calls.collect();
        let done: Vec<Outcome> =
            stream::iter(calls).buffered(self.options.max_concurrent_requests).collect().await;
        let mut done = done.into_iter();
        for (_, outcome) in call.tokens.iter_mut().filter(|(_, outcome)| outcome.is_none()) {
            *outcome = done.next();
        }
    }

    async fn write_batch(
        &self,
        name: &str,
        before: Option<&KnownBatch>,
        next: &RenewalBatch,
    ) -> Result<Write, StoreError> {
        let metadata = next.metadata_by_host();
        match before {
            None => self.container.create(name, &metadata, "").await,
            Some(before) => self.container.update(name, &metadata, &before.etag).await,
        }
    }

    /// The batch with all open leases renewed, and without entries that are known to be over.
    fn renewed(&self, call: &BatchRenewal<'_>, mut batch: RenewalBatch) -> RenewalBatch {
        let leases = call.open().map(|token| (token.partition, token.epoch));
        batch.renew(call.duration, leases, |partition, epoch| {
            let lease = self.leases.get(call.names, partition);
            lease.is_some_and(|lease| lease.supersedes(call.owner, epoch))
        });
        batch
    }

    /// Reads every lease that cannot be renewed from the cache: the revoked ones, and those not cached as ours.
    async fn read_uncertain_leases(&self, call: &mut BatchRenewal<'_>, batch: &RenewalBatch) {
        let (group, names, duration, limit) = (call.group, call.names, call.duration, call.limit);
        let open = call.tokens.iter().enumerate().filter(|(_, (_, outcome))| outcome.is_none());
        let reads: Vec<_> = open
            .filter(|(_, (token, _))| {
                let known = self.leases.get(names, token.partition);
                let ours = known.is_some_and(|lease| lease.is_held_by(token) && lease.batch_renewed);
                !ours || batch.forbids(token.partition, token.epoch)
            })
            .map(|(index, (token, _))| {
                let is_forbidden = batch.forbids(token.partition, token.epoch);
                let token: &LeaseToken = token;
                async move {
                    let read = async {
                        Ok(self.read_lease_again(group, names, duration, token, is_forbidden).await)
                    };
                    let seen = Box::pin(self.in_time(limit, "reading a lease", read)).await;
                    (index, seen.unwrap_or_else(|error| Some(Err(error))))
                }
            })
            .collect();
        let seen: Vec<_> = stream::iter(reads).buffered(self.options.max_concurrent_requests).collect().await;
        for (index, outcome) in seen {
            call.tokens[index].1 = outcome;
        }
    }

    /// Reads a lease. Returns the outcome of its renewal; none if the batch can renew it.
    async fn read_lease_again(
        &self,
        group: &GroupId,
        names: &Names,
        duration: Duration,
        token: &LeaseToken,
        is_forbidden: bool,
    ) -> Option<Outcome> {
        let before = self.leases.version(names, token.partition);
        let (lease, now) = match self.ownership_now(group, names, token.partition).await {
            Ok(Some(found)) => found,
            Ok(None) => return Some(Ok(Renewal::Lost { holder: None })),
            Err(error) => return Some(Err(error)),
        };
        self.leases.put_read(names, token.partition, before, lease.clone());
        if lease.is_held_by(token) && !is_forbidden {
            if lease.batch_renewed {
                return None;
            }
            // It was transferred by a host that renews one by one. This write moves it to batched renewal.
            return Some(self.renew_one(group, names, duration, token).await);
        }
        let now = self.with_batch(names, lease, now).await;
        Some(now.map(|now| Renewal::Lost { holder: Some(now.seen()) }))
    }

    /// Forgets cached leases after a new batch was created. Without a batch there was no revocation, unless it
    /// is so old that the batch was deleted with its host's record. Returns whether a lease must be read again.
    fn forget_stale_leases(&self, call: &BatchRenewal<'_>, now: Timestamp) -> bool {
        let mut some = false;
        for token in call.open() {
            let known = self.leases.get(call.names, token.partition);
            if known.is_some_and(|lease| now.since(lease.record.renewed_at) >= FORGET_HOSTS_AFTER / 2) {
                self.leases.forget(call.names, token.partition);
                some = true;
            }
        }
        some
    }
}
