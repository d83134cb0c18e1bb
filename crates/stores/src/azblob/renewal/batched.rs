//! Renews leases in batches: one write for all leases of a host in a range of 256 partitions.
//!
//! A lease is renewed if the cache shows it as ours and the batch that is overwritten does not revoke it.
//! The cache is filled by our own writes and by reads, and no process takes a lease without a revocation.
//! If another process has changed the batch, it is read, and leases without an entry in it are read again:
//! they may have been revoked and the entry dropped since.
//!
//! Leases that need no read are renewed first, and others as soon as they have been read: a read that hangs
//! delays only its own lease. Each outcome is stored as soon as it is known.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::ids::{GroupId, HostId};
use ephor_core::lease::LeaseToken;
use ephor_core::store::{FORGET_HOSTS_AFTER, RenewalOutcome, StoreError};
use ephor_core::time::Timestamp;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};

use crate::azblob::layout::blob_names::Names;
use crate::azblob::renewal::batch::{RenewalBatch, batch_number};
use crate::azblob::renewal::renew::{Outcome, Outcomes};
use crate::azblob::renewal::revocations::KnownBatch;
use crate::azblob::service::container::{Stamp, Write};
use crate::azblob::service::error_mapping;
use crate::azblob::session::{MAX_ATTEMPTS, Session, within};

/// The renewal of one batch in progress.
struct BatchRenewal<'a> {
    group: &'a GroupId,
    names: &'a Names,
    owner: &'a HostId,
    batch_number: u32,
    duration: Duration,
    /// The limit of each request.
    limit: Duration,
    outcomes: &'a Outcomes,
    /// The tokens without an outcome.
    open: Vec<OpenToken<'a>>,
}

struct OpenToken<'a> {
    /// Its place in the outcomes.
    index: usize,
    token: &'a LeaseToken,
    /// A read has shown that the batch can renew it.
    confirmed: bool,
}

/// Reads of leases in progress. Each returns the index of the token, and the outcome of its renewal; none
/// if the batch can renew it.
type Reads<'a> = BoxStream<'a, (usize, Option<Outcome>)>;

impl BatchRenewal<'_> {
    /// Stores the outcome of all open tokens that match.
    fn close(&mut self, is_done: impl Fn(&LeaseToken) -> bool, outcome: impl Fn() -> Outcome) {
        let outcomes = self.outcomes;
        for open in self.open.extract_if(.., |open| is_done(open.token)) {
            outcomes.put(open.index, outcome());
        }
    }

    fn fail(&mut self, error: &StoreError) {
        self.close(|_| true, || Err(error_mapping::copy_of(error)));
    }

    fn take_read(&mut self, index: usize, outcome: Option<Outcome>) {
        let Some(place) = self.open.iter().position(|open| open.index == index) else { return };
        match outcome {
            None => self.open[place].confirmed = true,
            Some(outcome) => {
                self.open.remove(place);
                self.outcomes.put(index, outcome);
            }
        }
    }

    /// The time for which leases that have been read wait for those that are being read.
    fn patience(&self) -> Duration {
        self.limit / 3
    }
}

fn too_many_conflicts(owner: &HostId) -> StoreError {
    let message =
        format!("other processes change the renewals of {owner} faster than this host can write them");
    StoreError::Unavailable(message.into())
}

impl Session {
    pub(in crate::azblob) async fn renew_in_batches(
        &self,
        group: &GroupId,
        names: &Names,
        duration: Duration,
        tokens: &[LeaseToken],
        limit: Duration,
        outcomes: &Outcomes,
    ) {
        let mut batches: BTreeMap<(&HostId, u32), Vec<OpenToken<'_>>> = BTreeMap::new();
        for (index, token) in tokens.iter().enumerate() {
            let key = (&token.owner, batch_number(token.partition));
            batches.entry(key).or_default().push(OpenToken { index, token, confirmed: false });
        }
        let calls: Vec<_> = batches
            .into_iter()
            .map(|((owner, batch_number), open)| {
                let call =
                    BatchRenewal { group, names, owner, batch_number, duration, limit, outcomes, open };
                self.renew_batch(call)
            })
            .collect();
        stream::iter(calls).buffer_unordered(self.options.max_concurrent_requests).collect().await
    }

    async fn renew_batch<'a>(&'a self, mut call: BatchRenewal<'a>) {
        let name = call.names.batch_named(call.owner, call.batch_number);
        let cell = self.batches.cell(&name);
        let mut known = cell.lock().await;
        let mut reads: Option<Reads<'a>> = None;
        for _ in 0..MAX_ATTEMPTS {
            if !self.renew_certain_leases(&mut call, &name, &mut known).await {
                // What was read counts only with the batch that was known then.
                reads = None;
                call.open.iter_mut().for_each(|open| open.confirmed = false);
                continue;
            }
            if call.open.is_empty() {
                return;
            }
            let stream = reads.get_or_insert_with(|| self.reads(&call, known.as_ref()));
            let patience = call.patience();
            let read_all = async {
                while let Some((index, outcome)) = stream.next().await {
                    call.take_read(index, outcome);
                }
            };
            if within(patience, read_all).await.is_some() {
                reads = None;
            }
        }
        call.fail(&too_many_conflicts(call.owner));
    }

    /// Renews the leases that need no read, in one write. False if another process has changed the batch, or
    /// leases must be read again.
    async fn renew_certain_leases(
        &self,
        call: &mut BatchRenewal<'_>,
        name: &str,
        known: &mut Option<KnownBatch>,
    ) -> bool {
        let (batch, is_new) = match known.as_ref() {
            Some(known) => (known.batch.clone(), false),
            None => (RenewalBatch::empty(call.batch_number), true),
        };
        let certain: Vec<&LeaseToken> = call
            .open
            .iter()
            .filter(|open| self.is_certain(call, &batch, open))
            .map(|open| open.token)
            .collect();
        if certain.is_empty() {
            return true;
        }
        let next = self.renewed(call, batch, &certain);
        let write = self.write_batch(name, known.as_ref(), &next);
        match self.in_time(call.limit, "a renewal", write).await {
            Ok(Write::Done(Stamp { etag, modified })) => {
                *known = Some(KnownBatch { batch: next.dated(modified), etag });
                if is_new && self.forget_stale_leases(call, modified) {
                    return false;
                }
                call.close(|token| certain.contains(&token), || Ok(RenewalOutcome::Renewed));
                true
            }
            Ok(Write::Refused) => {
                let read = self.read_batch(name, call.batch_number);
                match self.in_time(call.limit, "a renewal", read).await {
                    Ok((read, _)) => {
                        self.forget_leases_not_in(call.names, call.owner, call.batch_number, read.as_ref());
                        // The revocations of a lost batch are unknown: renew by the ownership, where a
                        // takeover conflicts, too.
                        let lost = known.is_some() && read.as_ref().is_none_or(|read| read.batch.is_blank());
                        *known = read;
                        if lost {
                            self.renew_one_by_one(call).await;
                        }
                    }
                    Err(error) => call.fail(&error),
                }
                false
            }
            // The cached state stays the condition: if this write was carried out, the next one is refused
            // and reads.
            Err(error) => {
                call.fail(&error);
                true
            }
        }
    }

    /// Whether the batch can renew a lease without a read: it is not revoked, and is cached as ours or was read.
    fn is_certain(&self, call: &BatchRenewal<'_>, batch: &RenewalBatch, open: &OpenToken<'_>) -> bool {
        let token = open.token;
        let is_ours = || {
            let known = self.leases.get(call.names, token.partition);
            known.is_some_and(|lease| lease.is_held_by(token) && lease.batch_renewed)
        };
        !batch.forbids(token.partition, token.epoch) && (open.confirmed || is_ours())
    }

    async fn renew_one_by_one(&self, call: &mut BatchRenewal<'_>) {
        let (group, names, duration, limit) = (call.group, call.names, call.duration, call.limit);
        let (outcomes, open) = (call.outcomes, std::mem::take(&mut call.open));
        let calls: Vec<_> = open
            .into_iter()
            .map(|open| async move {
                let renewal = self.renew_one(group, names, duration, open.token);
                outcomes.put(open.index, self.in_time(limit, "a renewal", renewal).await);
            })
            .collect();
        stream::iter(calls).buffer_unordered(self.options.max_concurrent_requests).collect().await
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

    /// The batch with these leases renewed, and without entries that are known to be over.
    fn renewed(
        &self,
        call: &BatchRenewal<'_>,
        mut batch: RenewalBatch,
        tokens: &[&LeaseToken],
    ) -> RenewalBatch {
        let leases = tokens.iter().map(|token| (token.partition, token.epoch));
        batch.renew(call.duration, leases, |partition, epoch| {
            let lease = self.leases.get(call.names, partition);
            lease.is_some_and(|lease| lease.supersedes(call.owner, epoch))
        });
        batch
    }

    /// Reads all open leases: none of them can be renewed without.
    fn reads<'a>(&'a self, call: &BatchRenewal<'a>, known: Option<&KnownBatch>) -> Reads<'a> {
        let (group, names, duration, limit) = (call.group, call.names, call.duration, call.limit);
        let reads: Vec<BoxFuture<'a, (usize, Option<Outcome>)>> = call
            .open
            .iter()
            .map(|open| {
                let (index, token) = (open.index, open.token);
                let is_forbidden =
                    known.is_some_and(|known| known.batch.forbids(token.partition, token.epoch));
                async move {
                    let read = async {
                        Ok(self.read_lease_again(group, names, duration, token, is_forbidden).await)
                    };
                    let seen = Box::pin(self.in_time(limit, "reading a lease", read)).await;
                    (index, seen.unwrap_or_else(|error| Some(Err(error))))
                }
                .boxed()
            })
            .collect();
        stream::iter(reads).buffer_unordered(self.options.max_concurrent_requests).boxed()
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
            Ok(None) => return Some(Ok(RenewalOutcome::Lost { holder: None })),
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
        Some(now.map(|now| RenewalOutcome::Lost { holder: Some(now.seen()) }))
    }

    /// Forgets cached leases after a new batch was created. Without a batch there was no revocation, unless it
    /// is so old that the batch was deleted. Returns whether a lease must be read again.
    fn forget_stale_leases(&self, call: &BatchRenewal<'_>, now: Timestamp) -> bool {
        let mut some = false;
        for token in call.open.iter().map(|open| open.token) {
            let known = self.leases.get(call.names, token.partition);
            if known.is_some_and(|lease| now.since(lease.record.renewed_at) >= FORGET_HOSTS_AFTER / 2) {
                self.leases.forget(call.names, token.partition);
                some = true;
            }
        }
        some
    }
}
