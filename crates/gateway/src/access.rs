//! Which tokens a connection has put, and what they permit.
//!
//! A connection may have many links and many tokens. Each link remembers which of them covers it, so that
//! looking after the links takes one look at one token each.
//!
//! A token is over when the wall clock says so, or when it has been here for as long as it was good for when it came,
//! by the monotonic clock: setting the wall clock back makes no token last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ephor_amqp::shared_limit::{Permit, SharedLimit};
use ephor_core::ids::{HubName, Namespace};
use ephor_core::time::{Clock, Monotonic, Timestamp};
use ephor_wire::address::Address;
use ephor_wire::cbs::{PutToken, TokenKind};
use ephor_wire::condition::{Condition, Refusal, texts};
use ephor_wire::sas::{Claims, Grant, InvalidToken, Key, KeyRing, Scope, SharedKey, Token, sign};

use crate::refusals::entity;

/// For how long it is known that a token ran out.
const KEPT_WHEN_EXPIRED: Duration = Duration::from_secs(60);

/// Who may do what here.
#[derive(Debug)]
pub(crate) struct Policy {
    keys: Vec<SharedKey>,
    ring: KeyRing,
}

impl Policy {
    pub(crate) fn new(keys: Vec<SharedKey>) -> Self {
        Self { ring: KeyRing::new(keys.iter().cloned()), keys }
    }

    /// Whether everything is permitted.
    pub(crate) fn is_open(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key of this name, if it is this one. Signatures are compared instead of keys, because that takes
    /// the same time whatever is wrong.
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

/// What both clocks say.
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

/// A grant, and until when it counts.
#[derive(Debug)]
struct Held {
    grant: Grant,
    until: Monotonic,
    /// Since when it is known that it is over.
    over_since: Option<Monotonic>,
    /// Its place among the tokens of all connections; a name and a key need none.
    permit: Option<Permit>,
}

impl Held {
    fn new(grant: Grant, at: Moment) -> Self {
        let until = match grant.expires_at.0 {
            i64::MAX => Monotonic::NEVER,
            _ => at.now + grant.expires_at.since(at.wall),
        };
        Self { grant, until, over_since: None, permit: None }
    }

    fn is_over(&self, at: Moment) -> bool {
        self.until <= at.now || self.grant.is_expired(at.wall)
    }

    /// When one of the clocks will say that it is over.
    fn ends(&self, at: Moment) -> Monotonic {
        self.until.min(at.now + self.grant.expires_at.since(at.wall))
    }
}

/// What one connection has shown of itself.
#[derive(Debug)]
pub(crate) struct Access {
    policy: Arc<Policy>,
    /// By the number that links remember. A renewed one keeps its number.
    grants: BTreeMap<u64, Held>,
    next: u64,
    most: usize,
    /// The tokens of all connections.
    total: SharedLimit,
}

/// Which grant covers a link, as far as is known: where to look first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cover(Option<u64>);

impl Access {
    /// Nothing yet, and at most so many tokens, of this connection and of all.
    pub(crate) fn new(policy: Arc<Policy>, most: usize, total: SharedLimit) -> Self {
        Self { policy, grants: BTreeMap::new(), next: 0, most, total }
    }

    /// Whether something that counts has been shown and still does, or nothing has to be.
    pub(crate) fn is_authenticated(&self, at: Moment) -> bool {
        self.policy.is_open() || self.grants.values().any(|held| !held.is_over(at))
    }

    fn add(&mut self, held: Held) {
        self.next += 1;
        self.grants.insert(self.next, held);
    }

    /// A name and a key, as SASL PLAIN has them. They permit what a token made with them would, for as long
    /// as the connection lasts.
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
        self.add(Held { grant, until: Monotonic::NEVER, over_since: None, permit: None });
        true
    }

    /// Takes a token. A newer one for the same replaces the older.
    pub(crate) fn put(&mut self, put: &PutToken<'_>, at: Moment) -> Result<(), Refusal> {
        if self.policy.is_open() {
            return Ok(());
        }
        if put.kind == TokenKind::Jwt {
            let text = "Tokens of Entra ID are not accepted here; use a shared access key.";
            return Err(Refusal::new(Condition::UnauthorizedAccess, text));
        }
        let mut held = Held::new(self.policy.ring.authorize(put.token, put.audience, at.wall)?, at);
        let same = |old: &&mut Held| old.grant.audience == held.grant.audience;
        if let Some(older) = self.grants.values_mut().find(same) {
            held.permit = older.permit.take();
            *older = held;
            return Ok(());
        }
        if self.grants.len() >= self.most {
            // Those of links that are long gone.
            self.grants.retain(|_, old| !old.is_over(at));
        }
        if self.grants.len() >= self.most {
            let text = format!("More than {} tokens on one connection.", self.most);
            return Err(Refusal::new(Condition::ResourceLimitExceeded, text));
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

    /// Forgets tokens that ran out a while ago: whoever comes back until then hears that they did.
    pub(crate) fn forget_expired(&mut self, at: Moment) {
        self.grants.retain(|_, held| {
            let known_since = if held.is_over(at) { *held.over_since.get_or_insert(at.now) } else { at.now };
            at.now < known_since + KEPT_WHEN_EXPIRED
        });
    }

    /// Whether something may be done at an address, and which grant says so. The one that did so before is
    /// asked first.
    pub(crate) fn check(
        &self,
        needed: Claims,
        address: &Address,
        before: Cover,
        namespace: &Namespace,
        at: Moment,
    ) -> Result<Cover, Refusal> {
        if self.policy.is_open() {
            return Ok(before);
        }
        let permits = |grant: &Grant| grant.claims.contains(needed) && grant.covers(address);
        let known = before.0.and_then(|number| self.grants.get(&number));
        if known.is_some_and(|held| permits(&held.grant) && !held.is_over(at)) {
            return Ok(before);
        }
        let mut expired = false;
        for (number, held) in self.grants.iter().filter(|(_, held)| permits(&held.grant)) {
            if !held.is_over(at) {
                return Ok(Cover(Some(*number)));
            }
            expired = true;
        }
        Err(match expired {
            true => InvalidToken::Expired.into(),
            false => texts::missing_claim(needed, &entity(namespace, address)),
        })
    }

    /// Whether a hub may be described: by a token that was put, or by the one in the request.
    pub(crate) fn check_description(
        &self,
        hub: &HubName,
        token: Option<&str>,
        namespace: &Namespace,
        at: Moment,
    ) -> Result<(), Refusal> {
        let permits = |grant: &Grant| grant.claims.may_describe() && grant.covers_hub(hub);
        let shown = self.grants.values().any(|held| permits(&held.grant) && !held.is_over(at));
        if self.policy.is_open() || shown {
            return Ok(());
        }
        let address = Address::Hub { hub: hub.clone() };
        // Scopes without a host are for any host.
        let of_request =
            token.and_then(|token| self.policy.ring.authorize(token, &address.to_string(), at.wall).ok());
        match of_request {
            Some(grant) if permits(&grant) => Ok(()),
            // Whoever hears that brings a new one.
            _ if self.grants.values().any(|held| permits(&held.grant)) => Err(InvalidToken::Expired.into()),
            _ => Err(texts::missing_claim(Claims::LISTEN, &entity(namespace, &address))),
        }
    }

    /// When the next token runs out.
    pub(crate) fn next_expiry(&self, at: Moment) -> Option<Monotonic> {
        let running = self.grants.values().filter(|held| !held.is_over(at));
        running.map(|held| held.ends(at)).filter(|ends| *ends < Monotonic::NEVER).min()
    }
}

#[cfg(test)]
mod tests;
