//! Epochs: the fencing tokens that decide which owner may act on a partition.
//!
//! ```text
//!   0          1 …            2^62             2^63 - 1          2^64 - 1
//!   NONE ── FIRST … ── MAX_FOREIGN ──────────── MAX ───────────────┤
//!             owners, one after the other          never used by owners; only a hub in this process can report it
//! ```
//!
//! A reader outside the fleet chooses its epoch itself. A host claims above it up to
//! [`Epoch::MAX_FOREIGN`] and no further, so that half of all epochs stay the fleet's own,
//! however high a foreign reader goes.

use std::fmt;

/// The fencing token of an owner. Every change of owner takes a new, higher one: the hub, the store
/// and the user's own database refuse an older one.
///
/// There is no `From<u64>`: an epoch comes out of a claim. Backends that must read one back from a
/// record use [`Epoch::from_stored`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch before the first owner. No owner ever has it.
    pub const NONE: Self = Self(0);

    /// The epoch of the first owner.
    pub const FIRST: Self = Self(1);

    /// The highest epoch of an owner: AMQP and SQL carry epochs as signed 64-bit numbers.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The highest epoch of a foreign reader above which a host claims.
    pub const MAX_FOREIGN: Self = Self(1 << 62);

    /// An epoch as a backend stored it.
    pub const fn from_stored(number: u64) -> Self {
        Self(number)
    }

    /// The epoch after this one; there is none after [`Epoch::MAX`].
    pub const fn next(self) -> Option<Self> {
        if self.0 < Self::MAX.0 { Some(Self(self.0 + 1)) } else { None }
    }

    /// The number, to pass to a hub, or to the user's database as a fencing token.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_only_grows() {
        let first = Epoch::FIRST;
        assert!(first > Epoch::NONE);
        assert_eq!(Epoch::NONE.next(), Some(first));
        assert_eq!(first.next(), Some(Epoch::from_stored(2)));
        assert_eq!(format!("{first} {first:?}"), "1 e1");
    }

    #[test]
    fn the_last_epoch_is_the_last_that_amqp_can_say() {
        assert_eq!(Epoch::MAX.get(), i64::MAX as u64);
        assert_eq!(Epoch::from_stored(i64::MAX as u64 - 1).next(), Some(Epoch::MAX));
        for last in [i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
            assert_eq!(Epoch::from_stored(last).next(), None);
        }
        assert!(Epoch::MAX_FOREIGN < Epoch::MAX);
    }
}
