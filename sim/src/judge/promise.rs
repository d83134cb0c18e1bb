//! The guarantees (promises) of the host, and violations of them.

use std::fmt;

use ephor::PartitionId;

/// A promise of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// One owner at a time.
    OneOwner,
    /// Every event at least once, in order.
    AtLeastOnceInOrder,
    /// A checkpoint never moves back.
    CheckpointsNeverMoveBack,
    /// Stop means stopped, and held means held.
    StopMeansStopped,
    /// Balanced, and then still.
    BalancedAndStill,
    /// The loop never dies.
    LoopNeverDies,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneOwner => "one owner",
            Self::AtLeastOnceInOrder => "at least once, in order",
            Self::CheckpointsNeverMoveBack => "checkpoints never move back",
            Self::StopMeansStopped => "stop means stopped",
            Self::BalancedAndStill => "balanced and then still",
            Self::LoopNeverDies => "the loop never dies",
        })
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The broken promise.
    pub promise: Promise,
    /// The partition, if it is about one.
    pub partition: Option<PartitionId>,
    /// A description of what went wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.what)?;
        self.partition.map_or(Ok(()), |partition| write!(f, " on {partition:?}"))
    }
}
