//! Claims: the operations that a key permits.

use std::fmt;
use std::ops::BitOr;

/// A set of the claims Send, Listen and Manage.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Claims(u8);

const NAMES: [(Claims, &str); 3] =
    [(Claims::SEND, "Send"), (Claims::LISTEN, "Listen"), (Claims(4), "Manage")];

impl Claims {
    /// No claim.
    pub const NONE: Self = Self(0);
    /// Sending events.
    pub const SEND: Self = Self(1);
    /// Receiving events.
    pub const LISTEN: Self = Self(2);
    /// All claims: Manage includes Send and Listen.
    pub const MANAGE: Self = Self(7);

    /// True if all of `needed` are in the set.
    pub const fn contains(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// True if these claims permit describing a hub: Send or Listen is enough.
    pub const fn may_describe(self) -> bool {
        self.contains(Self::SEND) || self.contains(Self::LISTEN)
    }

    /// The claim of this name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        match () {
            () if name.eq_ignore_ascii_case("send") => Some(Self::SEND),
            () if name.eq_ignore_ascii_case("listen") => Some(Self::LISTEN),
            () if name.eq_ignore_ascii_case("manage") => Some(Self::MANAGE),
            () => None,
        }
    }
}

impl BitOr for Claims {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Claims {
    /// `Send, Listen`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (_, name) in NAMES.iter().filter(|(claim, _)| self.contains(*claim)) {
            write!(f, "{separator}{name}")?;
            separator = ", ";
        }
        Ok(())
    }
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claims({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manage_implies_the_others() {
        assert!(Claims::MANAGE.contains(Claims::SEND | Claims::LISTEN));
        assert!(!(Claims::SEND | Claims::LISTEN).contains(Claims::MANAGE));
        assert!(Claims::SEND.may_describe() && Claims::LISTEN.may_describe() && !Claims::NONE.may_describe());
        assert!(!Claims::SEND.contains(Claims::LISTEN));
        assert_eq!(Claims::named("LISTEN"), Some(Claims::LISTEN));
        assert_eq!(Claims::named("send"), Some(Claims::SEND));
        assert_eq!(Claims::named("Manage"), Some(Claims::MANAGE));
        assert_eq!(Claims::named("Admin"), None);
        assert_eq!(format!("{} {:?}", Claims::MANAGE, Claims::SEND), "Send, Listen, Manage Claims(Send)");
    }
}
