//! The report of a graceful shutdown.

use std::fmt;

use ephor_core::ids::PartitionId;

/// The result of a stop, for each partition that the host owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct StopReport {
    /// Finished, closed, saved and released.
    pub drained: Vec<PartitionId>,
    /// Closed, saved and released, but a batch was not finished: it kept failing, or its call did
    /// not end in time and was given up. It will be delivered again.
    pub given_up: Vec<PartitionId>,
    /// Released, but some finished events are not saved: `close` failed, the store failed, or the
    /// policy leaves checkpoints to the processor. They will be delivered again.
    pub unsaved: Vec<PartitionId>,
    /// Lost to another owner before it could be released.
    pub lost: Vec<PartitionId>,
    /// Not released: a call did not return and could not be given up, or the store did not answer.
    /// The lease expires by itself.
    pub abandoned: Vec<PartitionId>,
}

impl StopReport {
    /// True if everything was drained.
    pub fn is_clean(&self) -> bool {
        self.given_up.is_empty()
            && self.unsaved.is_empty()
            && self.lost.is_empty()
            && self.abandoned.is_empty()
    }
}

impl fmt::Display for StopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let drained = self.drained.len();
        write!(f, "{drained} {} drained", if drained == 1 { "partition" } else { "partitions" })?;
        for (list, what) in [
            (&self.given_up, "with an unfinished batch"),
            (&self.unsaved, "released with work to repeat"),
            (&self.lost, "lost on the way"),
            (&self.abandoned, "abandoned"),
        ] {
            if !list.is_empty() {
                write!(f, ", {} {what} {list:?}", list.len())?;
            }
        }
        Ok(())
    }
}
