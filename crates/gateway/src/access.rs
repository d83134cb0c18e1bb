//! The credentials of one connection (tokens that it has put on `$cbs` or sent with a request, or a key
//! given by SASL PLAIN), the operations that they permit, and their expiry.
//!
//! A connection may have many links and many tokens. Each link remembers the grant that covers it, so that
//! checking all links takes one lookup of one token for each.
//!
//! A token expires when the wall clock reaches its expiry, or when its remaining lifetime at arrival has
//! passed by the monotonic clock. So setting the wall clock back does not extend any token. Both count from
//! the end of the grace period ([`ephor_wire::sas::EXPIRY_GRACE`]).
//!
//! Some SDKs put no token for `$management`, and send one with each request instead. Such a token
//! authenticates the connection, so that it is not taken for one that is not going to, and permits nothing
//! but its own request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ephor_amqp::shared_limit::{Permit, SharedLimit};
use ephor_core::ids::{HubName, Namespace};
use ephor_core::time::{Clock, Monotonic, Timestamp};
use ephor_wire::address::Address;
use ephor_wire::cbs::{PutToken, TokenKind};
use ephor_wire::condition::{Condition, Refusal, error_texts as texts};
use ephor_wire::sas::{Claims, Grant, InvalidToken, Key, KeyRing, Scope, SharedKey, Token, sign};

use crate::error_mapping::entity;

/// The time for which an expired token is remembered, so that the peer is told that it expired.
const KEPT_WHEN_EXPIRED: Duration = Duration::from_secs(60);

/// The keys, and what each permits.
#[derive(Debug)]
pub(crate) struct Policy {
    keys: Vec<SharedKey>,
    ring: KeyRing,
}

impl Policy {
    pub(crate) fn new(keys: Vec<SharedKey>) -> Self {
        Self { ring: KeyRing::new(keys.iter().cloned()), keys }
    }

    /// True if everything is permitted, because there are no keys.
    pub(crate) fn is_open(&self) -> bool {
        self.keys.is_empty()
    }

    /// The shared key with this name and value. Signatures are compared instead of keys, because that takes
    /// the same time whether the name or the key is wrong.
    fn key(&self, name: &str, key: &Key) -> Option<&SharedKey> {
        let proof = sign("", name, key, Timestamp(0));
        let proof = Token::parse(&proof).ok()?;
        let found = self.keys.iter().find(|shared| shared.name == name && proof.is_signed_by(&shared.key));
        if found.is_none() {
            let _ = proof.is_signed_by(&Key::new("nobody"));
        }
        found
    }
}

/// The time of both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    wall: Timestamp,
    now: Monotonic,
}

impl Moment {
    pub(crate) fn of(clock: &(impl Clock + ?Sized)) -> Self {
        Self { wall: clock.wall(), now: clock.now() }
    }
}

/// A grant, and until when it is valid.
#[derive(Debug)]
struct HeldGrant {
    grant: Grant,
    until: Monotonic,
    /// The time at which it was first seen to be expired.
    expired_since: Option<Monotonic>,
    /// Its permit in the limit on the tokens of all connections; SASL PLAIN needs none.
    permit: Option<Permit>,
}

impl HeldGrant {
    fn new(grant: Grant, at: Moment) -> Self {
        let until = match grant.expires_at.0 {
            i64::MAX => Monotonic::NEVER,
            _ => at.now + grant.ends_at().since(at.wall),
        };
        Self { grant, until, expired_since: None, permit: None }
    }

    fn is_expired(&self, at: Moment) -> bool {
        self.until <= at.now || self.grant.is_expired(at.wall)
    }

    /// The time at which one of the two clocks will have it expired.
    fn expires(&self, at: Moment) -> Monotonic {
        self.until.min(at.now + self.grant.ends_at().since(at.wall))
    }
}

/// The reason why a token was not taken.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// The token itself is invalid.
    Invalid(InvalidToken),
    /// Its hub does not exist, or a limit is reached.
    Refused(Refusal),
}

impl NotTaken {
    /// True if the answer names the request, as the service does with most of them.
    pub(crate) fn names_the_request(&self) -> bool {
        match self {
            Self::Invalid(invalid) => invalid.names_the_request(),
            Self::Refused(_) => true,
        }
    }
}

impl From<InvalidToken> for NotTaken {
    fn from(invalid: InvalidToken) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<Refusal> for NotTaken {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<NotTaken> for Refusal {
    fn from(reason: NotTaken) -> Self {
        match reason {
            NotTaken::Invalid(invalid) => invalid.into(),
            NotTaken::Refused(refusal) => refusal,
        }
    }
}

/// The grants of one connection.
#[derive(Debug)]
pub(crate) struct Access {
    policy: Arc<Policy>,
    /// By the number that links remember. A renewed grant keeps its number.
    grants: BTreeMap<u64, HeldGrant>,
    next: u64,
    /// The last valid token that came with a request.
    shown: Option<HeldGrant>,
    max_tokens: usize,
    /// The limit on the tokens of all connections together.
    total: SharedLimit,
}

/// The grant that covers a link, as of the last check: a hint where to look first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GrantRef(Option<u64>);

impl Access {
    /// No grants yet, and at most `max_tokens` tokens of this connection and `total` of all.
    pub(crate) fn new(policy: Arc<Policy>, max_tokens: usize, total: SharedLimit) -> Self {
        Self { policy, grants: BTreeMap::new(), next: 0, shown: None, max_tokens, total }
    }

    /// True if the connection has a valid grant, or if none is needed.
    pub(crate) fn is_authenticated(&self, at: Moment) -> bool {
        self.policy.is_open() || self.held().any(|held| !held.is_expired(at))
    }

    /// All tokens: those that were put, and the one of a request.
    fn held(&self) -> impl Iterator<Item = &HeldGrant> {
        self.grants.values().chain(&self.shown)
    }

    fn add(&mut self, held: HeldGrant) {
        self.next += 1;
        self.grants.insert(self.next, held);
    }

    /// Takes the name and key of SASL PLAIN. They permit what a token signed with them would, for as long as
    /// the connection lasts.
    pub(crate) fn plain(&mut self, response: &[u8]) -> bool {
        let mut parts = response.split(|byte| *byte == 0).skip(1).map(std::str::from_utf8);
        let (Some(Ok(name)), Some(Ok(key)), None) = (parts.next(), parts.next(), parts.next()) else {
            return self.policy.is_open();
        };
        let Some(found) = self.policy.key(name, &Key::new(key)) else { return self.policy.is_open() };
        let Some(everywhere) = Scope::parse("") else { return false };
        let grant = Grant {
            claims: found.claims,
            expires_at: Timestamp(i64::MAX),
            key_name: found.name.clone(),
            audience: everywhere,
            hub: found.hub.clone(),
        };
        self.add(HeldGrant { grant, until: Monotonic::NEVER, expired_since: None, permit: None });
        true
    }

    /// Takes a token. A newer token for the same audience replaces the older one. `exists` says whether there
    /// is the hub that the token is for; only a peer with a valid token learns that.
    pub(crate) fn put(
        &mut self,
        put: &PutToken<'_>,
        at: Moment,
        exists: impl FnOnce(&HubName) -> Result<(), Refusal>,
    ) -> Result<(), NotTaken> {
        if self.policy.is_open() {
            if let Some(hub) =
                Scope::parse(put.audience).as_ref().and_then(Scope::address).and_then(Address::hub)
            {
                exists(hub)?;
            }
            return Ok(());
        }
        if put.kind == TokenKind::Jwt {
            let text = "Tokens of Entra ID are not accepted here; use a shared access key.";
            return Err(Refusal::new(Condition::UnauthorizedAccess, text).into());
        }
        let grant = self.policy.ring.authorize(put.token, put.audience, at.wall)?;
        if let Some(hub) = grant.audience.address().and_then(Address::hub) {
            exists(hub)?;
        }
        let mut held = HeldGrant::new(grant, at);
        let same = |old: &&mut HeldGrant| old.grant.audience == held.grant.audience;
        if let Some(older) = self.grants.values_mut().find(same) {
            held.permit = older.permit.take();
            *older = held;
            return Ok(());
        }
        if self.grants.len() >= self.max_tokens {
            // Expired tokens, of links that are long gone.
            self.grants.retain(|_, old| !old.is_expired(at));
        }
        if self.grants.len() >= self.max_tokens {
            let text = format!("More than {} tokens on one connection.", self.max_tokens);
            return Err(Refusal::new(Condition::ResourceLimitExceeded, text).into());
        }
        held.permit = Some(self.total.take().ok_or_else(|| {
            let text = format!(
                "All connections together have put the {} tokens that the server allows; close some, or try again later.",
                self.total.max()
            );
            Refusal::new(Condition::ResourceLimitExceeded, text)
        })?);
        self.add(held);
        Ok(())
    }

    /// Forgets tokens that expired a while ago. A peer that uses one before that is told that it expired.
    pub(crate) fn forget_expired(&mut self, at: Moment) {
        self.grants.retain(|_, held| {
            let known_since =
                if held.is_expired(at) { *held.expired_since.get_or_insert(at.now) } else { at.now };
            at.now < known_since + KEPT_WHEN_EXPIRED
        });
        self.shown.take_if(|shown| shown.is_expired(at));
    }

    /// Checks that an operation is permitted at an address, and returns the grant that permits it. The grant
    /// of the last check is tried first.
    pub(crate) fn check(
        &self,
        needed: Claims,
        address: &Address,
        before: GrantRef,
        namespace: &Namespace,
        at: Moment,
    ) -> Result<GrantRef, Refusal> {
        if self.policy.is_open() {
            return Ok(before);
        }
        let permits = |grant: &Grant| grant.claims.contains(needed) && grant.covers(address);
        let known = before.0.and_then(|number| self.grants.get(&number));
        if known.is_some_and(|held| permits(&held.grant) && !held.is_expired(at)) {
            return Ok(before);
        }
        let mut expired = false;
        for (number, held) in self.grants.iter().filter(|(_, held)| permits(&held.grant)) {
            if !held.is_expired(at) {
                return Ok(GrantRef(Some(*number)));
            }
            expired = true;
        }
        Err(match expired {
            true => InvalidToken::Expired.into(),
            false => texts::missing_claim(needed, &entity(namespace, address)),
        })
    }

    /// Checks that a hub may be described, with a token that was put or with the one in the request. A valid
    /// one in the request authenticates the connection.
    pub(crate) fn check_description(
        &mut self,
        hub: &HubName,
        token: Option<&str>,
        namespace: &Namespace,
        at: Moment,
    ) -> Result<(), Refusal> {
        let permits = |grant: &Grant| grant.claims.may_describe() && grant.covers_hub(hub);
        if self.policy.is_open() {
            return Ok(());
        }
        let put = self.grants.values().any(|held| permits(&held.grant) && !held.is_expired(at));
        let address = Address::Hub { hub: hub.clone() };
        // Scopes without a host are valid for any host.
        let of_request = token.map(|token| self.policy.ring.authorize(token, &address.to_string(), at.wall));
        match of_request {
            // A client that sends an invalid token is told so, also if it has put a valid one before: it may have got
            // a new key (LIVE, of the JavaScript SDK). A valid token for something else takes nothing away.
            Some(Err(invalid)) if !(put && invalid == InvalidToken::Audience) => Err(invalid.into()),
            _ if put => Ok(()),
            Some(Ok(grant)) if permits(&grant) => {
                self.shown = Some(HeldGrant::new(grant, at));
                Ok(())
            }
            // A peer that is told so puts a new token.
            _ if self.grants.values().any(|held| permits(&held.grant)) => Err(InvalidToken::Expired.into()),
            _ => Err(texts::missing_claim(Claims::LISTEN, &entity(namespace, &address))),
        }
    }

    /// Checks that the peer has a token for any part of a hub, so that it may learn what the hub has not.
    pub(crate) fn check_any_part(
        &self,
        needed: Claims,
        address: &Address,
        namespace: &Namespace,
        at: Moment,
    ) -> Result<(), Refusal> {
        let covers = |grant: &Grant| address.hub().is_some_and(|hub| grant.covers_hub(hub));
        let permits = |held: &HeldGrant| {
            held.grant.claims.contains(needed) && covers(&held.grant) && !held.is_expired(at)
        };
        match self.policy.is_open() || self.grants.values().any(permits) {
            true => Ok(()),
            false => Err(texts::missing_claim(needed, &entity(namespace, address))),
        }
    }

    /// The time at which the next token expires.
    pub(crate) fn next_expiry(&self, at: Moment) -> Option<Monotonic> {
        let running = self.held().filter(|held| !held.is_expired(at));
        running.map(|held| held.expires(at)).filter(|expires| *expires < Monotonic::NEVER).min()
    }
}

#[cfg(test)]
mod tests;
