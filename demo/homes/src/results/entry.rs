//! The updates and snapshots of results, as they are stored in a log.

use serde::{Deserialize, Serialize};

/// One update, and all that must be known of it: a reader sees both or neither.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<U> {
    /// Its place in the log, from 1.
    pub number: u64,
    /// The epoch of the owner that wrote it.
    pub epoch: u64,
    /// The host that wrote it.
    pub owner: String,
    /// Tells this write from all others: how a writer that got no answer recognises its own.
    pub token: u64,
    /// The first event that it covers.
    pub first: u64,
    /// The last event that it covers.
    pub last: u64,
    /// When some of its readings were pushed, in milliseconds since 1970: at most [`SAMPLES`].
    pub pushed: Vec<u64>,
    /// The change.
    pub update: U,
}

impl<U> Entry<U> {
    /// Splits it into its description and the update.
    pub(super) fn apart(self) -> (Entry<()>, U) {
        let Self { number, epoch, owner, token, first, last, pushed, update } = self;
        (Entry { number, epoch, owner, token, first, last, pushed, update: () }, update)
    }
}

/// The most samples of [`Entry::pushed`].
pub const SAMPLES: usize = 16;

/// The whole state as of an update.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Snapshot<S> {
    /// That update.
    pub(super) number: u64,
    /// The epoch of the owner that wrote it.
    pub(super) epoch: u64,
    /// The host that wrote it.
    pub(super) owner: String,
    /// The state.
    pub(super) state: S,
}

/// At most [`SAMPLES`] of these, spread evenly.
pub(super) fn samples(all: &[u64]) -> Vec<u64> {
    all.iter().step_by(all.len().div_ceil(SAMPLES).max(1)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_few_and_spread() {
        let all: Vec<u64> = (0..1_600).collect();
        assert!(samples(&[]).is_empty());
        assert_eq!(samples(&all[..3]), [0, 1, 2]);
        assert_eq!(samples(&all[..16]).len(), 16);
        assert_eq!(samples(&all[..17]), [0, 2, 4, 6, 8, 10, 12, 14, 16]);
        assert_eq!(samples(&all).len(), 16);
    }
}
