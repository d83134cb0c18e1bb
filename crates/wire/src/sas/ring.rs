//! The keys of a namespace and its hubs, and what a token made with one of them permits.

use std::fmt;

use ephor_core::ids::HubName;
use ephor_core::time::Timestamp;

use super::{Claims, InvalidToken, Key, Scope, Token};
use crate::address::{Address, same_name};

/// A key with a name: a shared access policy. One name may have two keys, so that one can be replaced.
#[derive(Clone, Debug)]
pub struct SharedKey {
    /// What tokens call it.
    pub name: String,
    /// The key.
    pub key: Key,
    /// The operations that the key permits.
    pub claims: Claims,
    /// The one hub that it is for; none for the whole namespace.
    pub hub: Option<HubName>,
}

/// All keys that count here.
#[derive(Clone, Default)]
pub struct KeyRing(Vec<SharedKey>);

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.name)).finish()
    }
}

/// What a verified token permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What may be done.
    pub claims: Claims,
    /// Until when.
    pub expires_at: Timestamp,
    /// The key that it was made with.
    pub key_name: String,
    /// What it was put for: there and below.
    pub audience: Scope,
    /// The one hub that the key is for.
    pub hub: Option<HubName>,
}

impl KeyRing {
    /// These keys.
    pub fn new(keys: impl IntoIterator<Item = SharedKey>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// Whether there are none: then no token can be verified.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a token permits at `audience`, the name that it was put under. The token may be for more: what
    /// counts is that it covers the audience. The host in both is the client's word: clients reach one hub by many
    /// names, and it is compared with no name of ours. So a token counts wherever its key is known, and hubs that shall
    /// not take each other's tokens need keys of their own.
    pub fn authorize(&self, token: &str, audience: &str, now: Timestamp) -> Result<Grant, InvalidToken> {
        let token = Token::parse(token)?;
        let scope = token.scope().ok_or(InvalidToken::Malformed)?;
        let audience = Scope::parse(audience).ok_or(InvalidToken::Audience)?;
        // Of several keys of one name the one that signed is found, whichever it is.
        let signed_by = self
            .0
            .iter()
            .filter(|key| key.name == token.key_name())
            .filter(|key| is_for(key.hub.as_ref(), &audience))
            .find(|key| token.is_signed_by(&key.key));
        let key = match signed_by {
            Some(key) => key,
            None => {
                // Takes as long as a key that exists: names cannot be found out by the clock.
                let _ = token.is_signed_by(&Key::new("nobody"));
                return Err(InvalidToken::Signature);
            }
        };
        if token.expires_at() <= now {
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

/// Whether a key of this hub counts for the audience. A hub's name may contain slashes, so the hubs are
/// compared as a whole: `a/b` does not lie below `a`.
fn is_for(hub: Option<&HubName>, audience: &Scope) -> bool {
    let Some(hub) = hub else { return true };
    audience.address().and_then(Address::hub).is_some_and(|asked| same_hub(hub, asked))
}

fn same_hub(one: &HubName, other: &HubName) -> bool {
    same_name(one.as_str(), other.as_str())
}

impl Grant {
    /// Whether it is for this address. Tokens are put at `$cbs` without one, and `$management` may be
    /// attached to with any: the hub is named in the request, see [`Grant::covers_hub`].
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

    /// Whether it is for anything of this hub: enough to describe it.
    pub fn covers_hub(&self, hub: &HubName) -> bool {
        match (&self.hub, self.audience.address()) {
            (Some(own), _) => same_hub(own, hub),
            (None, None | Some(Address::Management { hub: None })) => true,
            (None, Some(address)) => address.hub().is_some_and(|asked| same_hub(asked, hub)),
        }
    }

    /// Whether its time is over.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at <= now
    }
}
