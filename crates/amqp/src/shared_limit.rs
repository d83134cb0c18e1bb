//! Counts sessions, links or other resources of many connections against one shared limit.
//!
//! ```text
//! connection ─ take() ─► SharedLimit ─ there is room ─► Permit, held as long as the thing lives
//!                                    └─ full ─────────► None: this one is refused, the others keep theirs
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A limit that several connections share. Clones are the same limit.
#[derive(Clone, Debug)]
pub struct SharedLimit(Arc<Count>);

#[derive(Debug)]
struct Count {
    max: usize,
    used: AtomicUsize,
    refused: AtomicU64,
}

/// Permission for one thing. Dropping it makes room for another.
#[derive(Debug)]
pub struct Permit(SharedLimit);

impl SharedLimit {
    /// Allows at most `max`.
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Count { max, used: AtomicUsize::new(0), refused: AtomicU64::new(0) }))
    }

    /// The limit.
    pub fn max(&self) -> usize {
        self.0.max
    }

    /// The number of permits that are held.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Takes a permit; `None` if the limit is reached.
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

    /// The number of refusals since the last call.
    pub fn take_refused(&self) -> u64 {
        match self.0.refused.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.0.refused.swap(0, Ordering::Relaxed),
        }
    }
}

impl Default for SharedLimit {
    /// No limit.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

/// True for clones of the same limit, not for another one of the same size.
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
    fn a_refused_permit_takes_nothing_and_a_dropped_one_makes_room() {
        let limit = SharedLimit::new(2);
        let slots = [limit.take(), limit.clone().take()];
        assert!(slots.iter().all(Option::is_some) && limit.take().is_none() && limit.take().is_none());
        assert_eq!((limit.used(), limit.take_refused(), limit.take_refused()), (2, 2, 0));
        drop(slots);
        assert!(limit.take().is_some());
        assert_eq!(limit.used(), 0);
    }
}
