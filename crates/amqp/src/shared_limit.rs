//! Limits the number of things that many connections have together.
//!
//! ```text
//! connection ─ take() ─► SharedLimit ─ there is room ─► Permit, held as long as the thing lives
//!                                    └─ full ─────────► None: this one is refused, the others keep theirs
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A number of things that all who share it may have together. Clones are the same limit.
#[derive(Clone, Debug)]
pub struct SharedLimit(Arc<Count>);

#[derive(Debug)]
struct Count {
    max: usize,
    used: AtomicUsize,
    refused: AtomicU64,
}

/// One of the things. Dropping it makes room for another.
#[derive(Debug)]
pub struct Permit(SharedLimit);

impl SharedLimit {
    /// At most so many.
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Count { max, used: AtomicUsize::new(0), refused: AtomicU64::new(0) }))
    }

    /// How many there may be.
    pub fn max(&self) -> usize {
        self.0.max
    }

    /// How many there are.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// One more; none if there are as many as there may be.
    pub fn take(&self) -> Option<Permit> {
        let more = |used: usize| (used < self.0.max).then_some(used + 1);
        match self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Some(Permit(self.clone())),
            Err(_) => {
                self.0.refused.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// How many were refused since this was asked last.
    pub fn take_refused(&self) -> u64 {
        match self.0.refused.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.0.refused.swap(0, Ordering::Relaxed),
        }
    }
}

impl Default for SharedLimit {
    /// As many as there is memory for.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

/// The same limit, and not one that is as high.
impl PartialEq for SharedLimit {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedLimit {}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.0.used.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_refused_takes_nothing_and_what_is_dropped_makes_room() {
        let limit = SharedLimit::new(2);
        let slots = [limit.take(), limit.clone().take()];
        assert!(slots.iter().all(Option::is_some) && limit.take().is_none() && limit.take().is_none());
        assert_eq!((limit.used(), limit.take_refused(), limit.take_refused()), (2, 2, 0));
        drop(slots);
        assert!(limit.take().is_some());
        assert_eq!(limit.used(), 0);
    }
}
