//! The number that decides who may act on a partition.

use std::fmt;

/// Taken anew with every change of owner, and it only grows: the hub, the
/// store and the user's own database refuse whoever comes with an older one.
///
/// There is no `From<u64>`: an epoch comes out of a claim. Backends that must
/// read one back from a record use [`Epoch::from_stored`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(u64);

impl Epoch {
    /// Before the first owner. No owner ever has it.
    pub const NONE: Self = Self(0);

    /// An epoch as a backend stored it.
    pub const fn from_stored(number: u64) -> Self {
        Self(number)
    }

    /// The epoch after this one.
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("an epoch does not reach 2^64 in the life of a hub"))
    }

    /// The number, to hand to a hub or to the user's database as a fencing token.
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
        let first = Epoch::NONE.next();
        assert!(first > Epoch::NONE);
        assert_eq!(first.next().get(), 2);
        assert_eq!(Epoch::from_stored(2), first.next());
        assert_eq!(format!("{first} {first:?}"), "1 e1");
    }
}
