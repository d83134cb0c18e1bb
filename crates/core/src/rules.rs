//! Rules that can be switched off, to prove that the tests notice.
//!
//! Each of them guards a promise. A build in the field keeps them all; the
//! simulation takes one away at a time and must then report a violation.

/// The rules in force. [`Rules::default`] is all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A checkpoint is refused unless it carries the epoch it is sealed with.
    pub checkpoints_are_fenced: bool,
    /// Whoever takes a partition from an owner that did not give it takes it in a new epoch.
    pub takeover_raises_the_epoch: bool,
    /// The final checkpoint is written before the lease is given away.
    pub final_checkpoint_comes_first: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            checkpoints_are_fenced: true,
            takeover_raises_the_epoch: true,
            final_checkpoint_comes_first: true,
        }
    }
}
