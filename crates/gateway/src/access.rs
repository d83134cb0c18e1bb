//! Which tokens a connection has put, and what they permit.
//!
//! A connection may have many links and many tokens. Each link remembers which of them covers it, so that
//! looking after the links takes one look at one token each.
//!
//! A token is over when the wall clock says so, or when it has been here for as long as it was good for when it came,
//! by the monotonic clock: setting the wall clock back makes no token last.

use std::collections::BTreeMap;
use std::sync::Arc;

use ephor_core::ids::{HubName, Namespace};
use ephor_core::time::{Clock, Monotonic, Timestamp};
use ephor_wire::address::Address;
use ephor_wire::cbs::{PutToken, TokenKind};
use ephor_wire::condition::{Condition, Refusal, texts};
use ephor_wire::sas::{Claims, Grant, InvalidToken, Key, KeyRing, Scope, SharedKey, Token, sign};

use crate::refusals::entity;

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
}

impl Held {
    fn new(grant: Grant, at: Moment) -> Self {
        let until = match grant.expires_at.0 {
            i64::MAX => Monotonic::NEVER,
            _ => at.now + grant.expires_at.since(at.wall),
        };
        Self { grant, until }
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
}

/// Which grant covers a link, as far as is known: where to look first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cover(Option<u64>);

impl Access {
    /// Nothing yet, and at most so many tokens.
    pub(crate) fn new(policy: Arc<Policy>, most: usize) -> Self {
        Self { policy, grants: BTreeMap::new(), next: 0, most }
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
        self.add(Held { grant, until: Monotonic::NEVER });
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
        let held = Held::new(self.policy.ring.authorize(put.token, put.audience, at.wall)?, at);
        let same = |old: &&mut Held| old.grant.audience == held.grant.audience;
        if let Some(older) = self.grants.values_mut().find(same) {
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
        self.add(held);
        Ok(())
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
mod tests {
    use super::*;

    const MINUTE: Monotonic = Monotonic(60_000_000_000);
    const NOW: Moment = Moment { wall: Timestamp(1_700_000_000_000), now: Monotonic(0) };
    const LATER: Moment = Moment { wall: Timestamp(1_700_000_060_000), now: MINUTE };

    fn access() -> Access {
        let key = |name: &str, key, claims, hub: Option<&str>| SharedKey {
            name: name.into(),
            key: Key::new(key),
            claims,
            hub: hub.map(|hub| hub.parse().unwrap()),
        };
        let policy = Policy::new(vec![
            key("send", "one", Claims::SEND, None),
            key("listen", "two", Claims::LISTEN, Some("homes")),
        ]);
        Access::new(Arc::new(policy), 2)
    }

    fn namespace() -> Namespace {
        "localhost".parse().unwrap()
    }

    fn put(access: &mut Access, name: &str, key: &str, audience: &str) -> Result<(), Refusal> {
        let token = sign("sb://localhost/", name, &Key::new(key), LATER.wall);
        let token = PutToken { audience, kind: TokenKind::Sas, token: &token, expires_at: None };
        access.put(&token, NOW)
    }

    #[test]
    fn a_token_permits_what_its_key_does_until_it_runs_out() {
        let mut access = access();
        let hub = Address::parse("homes").unwrap();
        let check =
            |access: &Access, claims, now| access.check(claims, &hub, Cover::default(), &namespace(), now);
        assert!(!access.is_authenticated(NOW));
        assert!(check(&access, Claims::SEND, NOW).is_err());
        put(&mut access, "send", "one", "sb://localhost/homes").unwrap();
        assert!(access.is_authenticated(NOW) && !access.is_authenticated(LATER));
        assert_eq!(check(&access, Claims::SEND, NOW), Ok(Cover(Some(1))));
        let refusal = check(&access, Claims::LISTEN, NOW).unwrap_err();
        assert!(refusal.text.starts_with("Unauthorized access. 'Listen' claim(s) are required"), "{refusal}");
        assert_eq!(access.next_expiry(NOW), Some(MINUTE));
        assert!(check(&access, Claims::SEND, LATER).unwrap_err().text.starts_with("ExpiredToken"));
        assert_eq!(access.next_expiry(LATER), None);
    }

    #[test]
    fn a_token_lasts_as_long_as_it_was_good_for_however_the_wall_clock_is_set() {
        const YEARS: i64 = 10 * 365 * 86_400_000;
        let mut access = access();
        put(&mut access, "send", "one", "sb://localhost/homes").unwrap();
        let at = |off, seconds: u64| Moment {
            wall: Timestamp(NOW.wall.0 + seconds as i64 * 1_000 + off),
            now: Monotonic(seconds * 1_000_000_000),
        };
        assert!(access.is_authenticated(at(-YEARS, 59)));
        assert_eq!(access.next_expiry(at(-YEARS, 59)), Some(MINUTE));
        assert!(!access.is_authenticated(at(-YEARS, 60)), "set back, it lasts no longer");
        assert_eq!(access.next_expiry(at(-YEARS, 60)), None);
        assert!(!access.is_authenticated(at(YEARS, 1)), "set ahead, it is over");
        assert!(access.is_authenticated(at(0, 2)), "set right, it counts again");
        // What is put while the clock is behind is judged by that clock, and by the right one afterwards.
        access.grants.clear();
        let token = sign("sb://localhost/", "send", &Key::new("one"), LATER.wall);
        let audience = "sb://localhost/homes";
        let token = PutToken { audience, kind: TokenKind::Sas, token: &token, expires_at: None };
        access.put(&token, at(-YEARS, 3_600)).unwrap();
        assert!(access.is_authenticated(at(-YEARS, 3_601)) && !access.is_authenticated(at(0, 3_602)));
    }

    #[test]
    fn tokens_are_bounded_and_a_newer_one_replaces_the_older() {
        let mut access = access();
        for _ in 0..3 {
            put(&mut access, "send", "one", "sb://localhost/a").unwrap();
            put(&mut access, "send", "one", "sb://localhost/b").unwrap();
        }
        let refusal = put(&mut access, "send", "one", "sb://localhost/c").unwrap_err();
        assert_eq!(refusal.condition, Condition::ResourceLimitExceeded);
    }

    #[test]
    fn a_link_asks_the_grant_that_covered_it_before_and_then_the_others() {
        let mut access = access();
        let hub = Address::parse("homes").unwrap();
        put(&mut access, "send", "one", "sb://localhost/").unwrap();
        put(&mut access, "send", "one", "sb://localhost/homes").unwrap();
        let check = |access: &Access, before| {
            access.check(Claims::SEND, &hub, before, &namespace(), NOW).map_err(|refusal| refusal.condition)
        };
        let (first, second) = (Cover(Some(1)), Cover(Some(2)));
        assert_eq!(check(&access, Cover::default()), Ok(first));
        assert_eq!(check(&access, second), Ok(second));
        // Renewed, it keeps its number.
        put(&mut access, "send", "one", "sb://localhost/homes").unwrap();
        assert_eq!(check(&access, second), Ok(second));
        access.grants.get_mut(&2).unwrap().until = NOW.now;
        assert_eq!(check(&access, second), Ok(first));
        // One that permits less now does not count for what it permitted before.
        access.grants.get_mut(&1).unwrap().grant.claims = Claims::LISTEN;
        assert_eq!(check(&access, first), Err(Condition::UnauthorizedAccess));
        access.grants.remove(&2);
        assert_eq!(check(&access, second), Err(Condition::UnauthorizedAccess));
    }

    #[test]
    fn plain_takes_the_name_and_the_key_and_nothing_else() {
        for (response, welcome) in [
            (&b"\0send\0one"[..], true),
            (b"somebody\0send\0one", true),
            (b"\0send\0two", false),
            (b"\0nobody\0one", false),
            (b"\0send\0one\0", false),
            (b"send", false),
            (b"", false),
            (b"\0\xff\0one", false),
        ] {
            let mut access = access();
            assert_eq!(access.plain(response), welcome);
            assert_eq!(access.is_authenticated(NOW), welcome);
        }
        let mut access = access();
        assert!(access.plain(b"\0listen\0two"));
        let at = |path| Address::parse(path).unwrap();
        let check = |path| access.check(Claims::LISTEN, &at(path), Cover::default(), &namespace(), NOW);
        assert!(check("homes/ConsumerGroups/$Default/Partitions/0").is_ok());
        assert!(check("others/ConsumerGroups/$Default/Partitions/0").is_err());
    }

    #[test]
    fn a_hub_is_described_to_whoever_may_use_it_by_a_token_put_or_given() {
        let access = access();
        let hub: HubName = "homes".parse().unwrap();
        let token = sign("sb://localhost/homes", "listen", &Key::new("two"), LATER.wall);
        let describe = |token| access.check_description(&hub, token, &namespace(), NOW);
        assert!(describe(Some(&*token)).is_ok());
        assert!(describe(None).is_err());
        assert!(describe(Some("nonsense")).is_err());
        let open = Access::new(Arc::new(Policy::new(Vec::new())), 1);
        assert!(open.check_description(&hub, None, &namespace(), NOW).is_ok());
    }
}
