//! Where everything that goes wrong is said: the log, the metrics, the user's handler.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ephor_core::ids::{GroupId, HostId};

use crate::error::HostError;
use crate::metric_names as names;
use crate::options::ErrorHandler;

#[derive(Clone)]
pub(crate) struct Reporter {
    group: GroupId,
    host: HostId,
    handler: Option<ErrorHandler>,
}

impl Reporter {
    pub(crate) fn new(group: GroupId, host: HostId, handler: Option<ErrorHandler>) -> Self {
        Self { group, host, handler }
    }

    pub(crate) fn report(&self, error: &HostError) {
        let (group, host) = (&self.group, &self.host);
        if needs_a_person(error) {
            tracing::error!(%group, %host, %error, "needs attention");
        } else {
            tracing::warn!(%group, %host, %error, "went wrong");
        }
        metrics::counter!(names::HOST_ERRORS, "kind" => kind(error)).increment(1);
        if let Some(handler) = &self.handler {
            // The user's code must not end the task that reports.
            let called = catch_unwind(AssertUnwindSafe(|| (handler.0)(error)));
            if called.is_err() {
                tracing::error!(%group, %host, "the error handler panicked");
            }
        }
    }
}

/// What does not heal by itself, or lost something.
fn needs_a_person(error: &HostError) -> bool {
    use crate::error::PartitionError;
    matches!(
        error,
        HostError::NameInUse { .. }
            | HostError::Halted { .. }
            | HostError::Stuck { .. }
            | HostError::Unplaced { .. }
            | HostError::Partition {
                error: PartitionError::Skipped { .. } | PartitionError::LostGround(_),
                ..
            }
    )
}

/// A word for each kind, for metrics.
fn kind(error: &HostError) -> &'static str {
    match error {
        HostError::Store { .. } => "store",
        HostError::Hub { .. } => "hub",
        HostError::NameInUse { .. } => "name_in_use",
        HostError::ClockSkew => "clock_skew",
        HostError::OpenFailed { .. } => "open_failed",
        HostError::CloseFailed { .. } => "close_failed",
        HostError::Partition { .. } => "partition",
        HostError::Halted { .. } => "halted",
        HostError::ForeignReader { .. } => "foreign_reader",
        HostError::SelfFenced { .. } => "self_fenced",
        HostError::Stuck { .. } => "stuck",
        HostError::Unsettled { .. } => "unsettled",
        HostError::Unplaced { .. } => "unplaced",
    }
}
