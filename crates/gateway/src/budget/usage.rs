//! The memory that a connection uses, and the part of it that only its peer can end.

use std::time::Duration;

use ephor_core::time::Monotonic;

/// Output of which the peer has not read a tenth for this long counts as kept by the peer; so does the
/// delivery of a modest connection that has not ended for this long.
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
    /// The bytes that only the peer can end, and the time since which it has not. Each kind counts if it has
    /// been kept since the given time or for longer, or in any case without a time.
    pub(super) fn kept_by_peer(
        &self,
        unended_stale: Option<Monotonic>,
        output_stale: Option<Monotonic>,
    ) -> (usize, Option<Monotonic>) {
        let counts = |since: &Option<Monotonic>, stale: Option<Monotonic>| match (since, stale) {
            (Some(since), Some(stale)) => *since <= stale,
            (since, _) => since.is_some(),
        };
        let unended = Some((self.unended, self.since)).filter(|(_, since)| counts(since, unended_stale));
        let output = Some((self.output, self.output_since)).filter(|(_, since)| counts(since, output_stale));
        let kept = [unended, output].into_iter().flatten();
        kept.fold((0, None), |(bytes, oldest), (more, since)| {
            (bytes + more, oldest.into_iter().chain(since).min())
        })
    }
}
