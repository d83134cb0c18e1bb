//! Verifies shared access signatures against the keys of a namespace and its hubs (a key ring).

use std::fmt;

use ephor_core::ids::HubName;
use ephor_core::time::Timestamp;

use super::{Claims, EXPIRY_GRACE, InvalidToken, Key, Scope, Token};
use crate::address::{Address, same_name};

/// A named key: a shared access policy. A name may have two keys, so that one can be rotated.
#[derive(Clone, Debug)]
pub struct SharedKey {
    /// The name by which tokens refer to it.
    pub name: String,
    /// The key.
    pub key: Key,
    /// The operations that the key permits.
    pub claims: Claims,
    /// The only hub that the key is for; none for the whole namespace.
    pub hub: Option<HubName>,
}

/// All keys that are accepted.
#[derive(Clone, Default)]
pub struct KeyRing(Vec<SharedKey>);

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.name)).finish()
    }
}

/// The rights of a verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The permitted operations.
    pub claims: Claims,
    /// The time at which the token expires.
    pub expires_at: Timestamp,
    /// The name of the key that signed the token.
    pub key_name: String,
    /// The audience that the token was put for: the grant covers it and everything below.
    pub audience: Scope,
    /// The only hub that the key is for.
    pub hub: Option<HubName>,
}

impl KeyRing {
    /// Creates a key ring with these keys.
    pub fn new(keys: impl IntoIterator<Item = SharedKey>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// True if there are no keys, so that no token can be verified.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Verifies a token for `audience`, the URI that it was put for, and returns its rights. The token may be
    /// for more, as long as it covers the audience. The host in both is chosen by the client: clients reach
    /// one hub by many names, so it is not compared with a name of ours. A token is therefore valid wherever
    /// its key is known, and hubs that must not accept each other's tokens need different keys.
    pub fn authorize(&self, token: &str, audience: &str, now: Timestamp) -> Result<Grant, InvalidToken> {
        let token = Token::parse(token)?;
        let scope = token.scope().ok_or(InvalidToken::Malformed)?;
        let audience = Scope::parse(audience).ok_or(InvalidToken::Audience)?;
        let named = |key: &&SharedKey| key.name == token.key_name() && is_for(key.hub.as_ref(), &audience);
        if !self.0.iter().any(|key| named(&key)) {
            return Err(InvalidToken::UnknownKey);
        }
        // If several keys have the name, the one that signed is used.
        let signed_by = self.0.iter().filter(named).find(|key| token.is_signed_by(&key.key));
        let key = signed_by.ok_or(InvalidToken::Signature)?;
        if token.expires_at() + EXPIRY_GRACE <= now {
            return Err(InvalidToken::Expired);
        }
        if !scope.covers(&audience) {
            return Err(InvalidToken::Audience);
        }
        Ok(Grant {
            claims: key.claims,
            expires_at: token.expires_at(),
            key_name: key.name.clone(),
            audience,
            hub: key.hub.clone(),
        })
    }
}

/// True if a key of this hub is accepted for the audience. A hub name may contain slashes, so the names are
/// compared as a whole: `a/b` is not below `a`.
fn is_for(hub: Option<&HubName>, audience: &Scope) -> bool {
    let Some(hub) = hub else { return true };
    audience.address().and_then(Address::hub).is_some_and(|asked| same_hub(hub, asked))
}

fn same_hub(one: &HubName, other: &HubName) -> bool {
    same_name(one.as_str(), other.as_str())
}

impl Grant {
    /// True if the grant covers this address. `$cbs` needs no grant, and any grant may attach to
    /// `$management`: the hub is named in the request, see [`Grant::covers_hub`].
    pub fn covers(&self, address: &Address) -> bool {
        match address {
            Address::Cbs | Address::Management { hub: None } => true,
            address => {
                let hub = self.hub.as_ref();
                hub.is_none_or(|hub| address.hub().is_some_and(|asked| same_hub(hub, asked)))
                    && self.audience.covers_address(address)
            }
        }
    }

    /// True if the grant covers any part of this hub: enough to describe it.
    pub fn covers_hub(&self, hub: &HubName) -> bool {
        match (&self.hub, self.audience.address()) {
            (Some(own), _) => same_hub(own, hub),
            (None, None | Some(Address::Management { hub: None })) => true,
            (None, Some(address)) => address.hub().is_some_and(|asked| same_hub(asked, hub)),
        }
    }

    /// The time from which the token is not accepted any more: some time after it expired ([`EXPIRY_GRACE`]).
    pub fn ends_at(&self) -> Timestamp {
        self.expires_at + EXPIRY_GRACE
    }

    /// True if the token is not accepted any more.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.ends_at() <= now
    }
}
