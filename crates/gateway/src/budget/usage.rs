//! The memory that a connection uses, and the part of it that is freed only if its peer acts.

use std::time::Duration;

use ephor_core::time::Monotonic;

/// Output of which the peer has not read a tenth for this long counts like a delivery that has not ended.
pub(super) const STALE_AFTER: Duration = Duration::from_secs(5);

/// The memory that a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// All bytes.
    pub(crate) bytes: usize,
    /// The part of `bytes` that only the peer can end: unended deliveries, and answers that it does not take.
    pub(crate) unended: usize,
    /// The time since which the oldest of `unended` has been kept.
    pub(crate) since: Option<Monotonic>,
    /// The part of `bytes` that is output which waits for the peer to read it.
    pub(crate) output: usize,
    /// The time since which the peer has not read a tenth of `output`.
    pub(crate) output_since: Option<Monotonic>,
}

impl Usage {
    /// The bytes that only the peer can end, and the time since which it has not. Output counts if it has
    /// waited since `stale` or for longer; if `stale` is `None`, output of any age counts.
    pub(super) fn kept_by_peer(&self, stale: Option<Monotonic>) -> (usize, Option<Monotonic>) {
        match self.output_since {
            Some(since) if stale.is_none_or(|stale| since <= stale) => {
                let oldest = self.since.map_or(since, |other| other.min(since));
                (self.unended + self.output, Some(oldest))
            }
            _ => (self.unended, self.since),
        }
    }
}
