//! Renewals on a roll: one write for all leases of a host among 256 partitions.
//!
//! A lease is written down if it is known to be ours and is not struck on the roll that is written over. It is known
//! from our own write or from a look, and nobody takes it away without a strike. A roll that was changed by somebody
//! else is read, and what does not stand on it is looked at again: it may have been struck and gone since.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor_core::ids::{GroupId, HostId};
use ephor_core::lease::LeaseToken;
use ephor_core::store::{FORGET_HOSTS_AFTER, Renewal, StoreError};
use ephor_core::time::Timestamp;
use futures_util::{Stream, StreamExt, stream};

use super::container::{Stamp, Write};
use super::failure;
use super::names::Names;
use super::renewals::Outcome;
use super::roll::{Roll, bucket};
use super::session::{MOST_ATTEMPTS, Session};
use super::strikes::KnownRoll;

/// The renewal of what is on one roll, under way.
struct RollCall<'a> {
    group: &'a GroupId,
    names: &'a Names,
    owner: &'a HostId,
    bucket: u32,
    duration: Duration,
    /// For each request.
    limit: Duration,
    /// The tokens, and what became of each.
    tokens: Vec<(&'a LeaseToken, Option<Outcome>)>,
}

impl RollCall<'_> {
    fn open(&self) -> impl Iterator<Item = &LeaseToken> {
        self.tokens.iter().filter(|(_, outcome)| outcome.is_none()).map(|(token, _)| *token)
    }

    fn close(&mut self, outcome: impl Fn() -> Outcome) {
        for (_, open) in self.tokens.iter_mut().filter(|(_, outcome)| outcome.is_none()) {
            *open = Some(outcome());
        }
    }

    fn fail(&mut self, error: &StoreError) {
        self.close(|| Err(failure::also(error)));
    }
}

fn endless(owner: &HostId) -> StoreError {
    let message = format!("the renewals of {owner} change faster than they can be written");
    StoreError::Unavailable(message.into())
}

impl Session {
    /// The outcomes of one roll after the other, each with the place of its token.
    pub(super) fn renew_by_roll(
        &self,
        group: &GroupId,
        names: &Names,
        duration: Duration,
        tokens: &[LeaseToken],
        limit: Duration,
    ) -> impl Stream<Item = Vec<(usize, Outcome)>> {
        let mut rolls: BTreeMap<(&HostId, u32), Vec<usize>> = BTreeMap::new();
        for (place, token) in tokens.iter().enumerate() {
            rolls.entry((&token.owner, bucket(token.partition))).or_default().push(place);
        }
        let calls: Vec<_> = rolls
            .into_iter()
            .map(|((owner, bucket), places)| async move {
                let tokens = places.iter().map(|place| (&tokens[*place], None)).collect();
                let call = RollCall { group, names, owner, bucket, duration, limit, tokens };
                let outcomes = self.call_the_roll(call).await;
                places.into_iter().zip(outcomes).collect::<Vec<_>>()
            })
            .collect();
        stream::iter(calls).buffer_unordered(self.options.at_once)
    }

    async fn call_the_roll(&self, mut call: RollCall<'_>) -> Vec<Outcome> {
        let name = call.names.roll_named(call.owner, call.bucket);
        let cell = self.rolls.cell(&name);
        let mut known = cell.lock().await;
        for _ in 0..MOST_ATTEMPTS {
            let (roll, is_new) = match known.as_ref() {
                Some(known) => (known.roll.clone(), false),
                None => (Roll::empty(call.bucket), true),
            };
            self.look_at_doubtful(&mut call, &roll).await;
            if call.open().next().is_none() {
                break;
            }
            let next = self.renewed(&call, roll);
            let write = self.write_roll(&name, known.as_ref(), &next);
            match self.in_time(call.limit, "a renewal", write).await {
                Ok(Write::Done(Stamp { etag, modified })) => {
                    *known = Some(KnownRoll { roll: next.dated(modified), etag });
                    if !is_new || !self.forget_the_old(&call, modified) {
                        call.close(|| Ok(Renewal::Renewed));
                    }
                }
                Ok(Write::Refused) => {
                    match self.in_time(call.limit, "a renewal", self.read_roll(&name, call.bucket)).await {
                        Ok((read, _)) => {
                            self.forget_what_is_not_on(call.names, call.owner, call.bucket, read.as_ref());
                            // What was struck on a roll that is lost is not known: whoever struck is met at the ownership.
                            let lost =
                                known.is_some() && read.as_ref().is_none_or(|read| read.roll.is_blank());
                            *known = read;
                            if lost {
                                self.renew_one_by_one(&mut call).await;
                            }
                        }
                        Err(error) => call.fail(&error),
                    }
                }
                // What is known stays a condition: if it was carried out, the next one is refused, and reads.
                Err(error) => call.fail(&error),
            }
        }
        call.fail(&endless(call.owner));
        call.tokens.into_iter().filter_map(|(_, outcome)| outcome).collect()
    }

    async fn renew_one_by_one(&self, call: &mut RollCall<'_>) {
        let (group, names, duration, limit) = (call.group, call.names, call.duration, call.limit);
        let open: Vec<LeaseToken> = call.open().cloned().collect();
        let calls = open
            .iter()
            .map(|token| self.in_time(limit, "a renewal", self.renew_one(group, names, duration, token)));
        let calls: Vec<_> = calls.collect();
        let done: Vec<Outcome> = stream::iter(calls).buffered(self.options.at_once).collect().await;
        let mut done = done.into_iter();
        for (_, outcome) in call.tokens.iter_mut().filter(|(_, outcome)| outcome.is_none()) {
            *outcome = done.next();
        }
    }

    async fn write_roll(
        &self,
        name: &str,
        before: Option<&KnownRoll>,
        next: &Roll,
    ) -> Result<Write, StoreError> {
        let metadata = next.written_by_its_host();
        match before {
            None => self.container.create(name, &metadata, "").await,
            Some(before) => self.container.update(name, &metadata, &before.etag).await,
        }
    }

    /// The roll with everything renewed that is still open, and without what is known to be over.
    fn renewed(&self, call: &RollCall<'_>, mut roll: Roll) -> Roll {
        let leases = call.open().map(|token| (token.partition, token.epoch));
        roll.renew(call.duration, leases, |partition, epoch| {
            let lease = self.leases.get(call.names, partition);
            lease.is_some_and(|lease| lease.is_behind(call.owner, epoch))
        });
        roll
    }

    /// Looks at every lease that cannot be written down as it is: those that are struck, and those not known to be ours.
    async fn look_at_doubtful(&self, call: &mut RollCall<'_>, roll: &Roll) {
        let (group, names, duration, limit) = (call.group, call.names, call.duration, call.limit);
        let open = call.tokens.iter().enumerate().filter(|(_, (_, outcome))| outcome.is_none());
        let looks: Vec<_> = open
            .filter(|(_, (token, _))| {
                let known = self.leases.get(names, token.partition);
                let ours = known.is_some_and(|lease| lease.is_held_by(token) && lease.on_roll);
                !ours || roll.is_over(token.partition, token.epoch)
            })
            .map(|(place, (token, _))| {
                let over = roll.is_over(token.partition, token.epoch);
                let token: &LeaseToken = token;
                async move {
                    let look = async { Ok(self.look_at(group, names, duration, token, over).await) };
                    let seen = Box::pin(self.in_time(limit, "a look at a lease", look)).await;
                    (place, seen.unwrap_or_else(|error| Some(Err(error))))
                }
            })
            .collect();
        let seen: Vec<_> = stream::iter(looks).buffered(self.options.at_once).collect().await;
        for (place, outcome) in seen {
            call.tokens[place].1 = outcome;
        }
    }

    /// How the renewal of a lease ends; none if it is ours, and can be written down.
    async fn look_at(
        &self,
        group: &GroupId,
        names: &Names,
        duration: Duration,
        token: &LeaseToken,
        is_over: bool,
    ) -> Option<Outcome> {
        let before = self.leases.moment(names, token.partition);
        let (lease, now) = match self.ownership_now(group, names, token.partition).await {
            Ok(Some(found)) => found,
            Ok(None) => return Some(Ok(Renewal::Lost { holder: None })),
            Err(error) => return Some(Err(error)),
        };
        self.leases.put_read(names, token.partition, before, lease.clone());
        if lease.is_held_by(token) && !is_over {
            if lease.on_roll {
                return None;
            }
            // It came from a host with neighbours. With this renewal it is on the roll.
            return Some(self.renew_one(group, names, duration, token).await);
        }
        let now = self.with_roll(names, lease, now).await;
        Some(now.map(|now| Renewal::Lost { holder: Some(now.seen()) }))
    }

    /// Where there was no roll, nobody has struck, unless that is so long ago that the roll was forgotten with its host. True
    /// if something is to be looked at again.
    fn forget_the_old(&self, call: &RollCall<'_>, now: Timestamp) -> bool {
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
