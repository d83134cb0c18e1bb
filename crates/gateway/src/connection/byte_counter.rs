//! Outbound (hub → peer): counts the bytes of events that are read and not yet sent. Each [`Charge`] adds
//! to a shared sum until it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The sum.
#[derive(Debug, Default)]
pub(super) struct Tally(Arc<AtomicUsize>);

/// The contribution of one item to the sum. Dropping it subtracts the contribution.
#[derive(Debug)]
pub(super) struct Charge {
    tally: Arc<AtomicUsize>,
    amount: usize,
}

impl Tally {
    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// A contribution of nothing yet.
    pub(super) fn charge(&self) -> Charge {
        Charge { tally: self.0.clone(), amount: 0 }
    }
}

impl Charge {
    pub(super) fn get(&self) -> usize {
        self.amount
    }

    pub(super) fn set(&mut self, amount: usize) {
        self.tally.fetch_add(amount, Ordering::Relaxed);
        self.tally.fetch_sub(std::mem::replace(&mut self.amount, amount), Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_does_not_count() {
        let tally = Tally::default();
        let (mut one, mut other) = (tally.charge(), tally.charge());
        one.set(5);
        other.set(7);
        one.set(6);
        assert_eq!((tally.get(), one.get()), (13, 6));
        drop(other);
        assert_eq!(tally.get(), 6);
    }
}
