//! Reports errors to the log, the metrics and the user's handler; catches and reports the panics of tasks.

use std::future::Future;

use ephor_core::ids::{GroupId, HostId};
use ephor_core::panics::{self, Panicked};

use crate::error::{HostError, PartitionError};
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

    /// Runs a part of a task that must not end: a panic is reported, and the task goes on. `None`
    /// if it panicked.
    pub(crate) async fn catch_panics<T>(
        &self,
        task: &'static str,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let result = panics::caught_async(work).await;
        let report = |Panicked { message }| {
            // Log and metrics recorders are the user's code, too. If they panic, there is nobody
            // left to tell.
            let _ = panics::caught(|| self.report(&HostError::TaskPanicked { task, message }));
        };
        result.map_err(report).ok()
    }

    pub(crate) fn report(&self, error: &HostError) {
        let (group, host) = (&self.group, &self.host);
        let kind = kind(error);
        if needs_operator(error) {
            tracing::error!(%group, %host, kind, "{error}");
        } else {
            tracing::warn!(%group, %host, kind, "{error}");
        }
        self.count_and_notify(error);
    }

    /// Reports one of many errors with the same cause, which is in the log already.
    pub(crate) fn report_one_of_many(&self, error: &HostError) {
        let (group, host) = (&self.group, &self.host);
        tracing::debug!(%group, %host, kind = kind(error), "{error}");
        self.count_and_notify(error);
    }

    fn count_and_notify(&self, error: &HostError) {
        let (group, host) = (&self.group, &self.host);
        let kind = kind(error);
        metrics::counter!(names::HOST_ERRORS, "kind" => kind).increment(1);
        if let Some(handler) = &self.handler {
            // The user's code must not end the task that reports.
            if let Err(panicked) = panics::caught(|| (handler.0)(error)) {
                tracing::error!(%group, %host, %panicked, "the error handler panicked");
            }
        }
    }
}

/// The number of failures of a batch after which a retry alone will hardly help.
const ERROR_AFTER_ATTEMPTS: u32 = 5;

/// True for errors that do not recover by themselves, or that lost something.
fn needs_operator(error: &HostError) -> bool {
    match error {
        HostError::Partition { error, .. } => match error {
            PartitionError::Processing { attempt, .. } => *attempt >= ERROR_AFTER_ATTEMPTS,
            PartitionError::Skipped { .. }
            | PartitionError::PositionGone { .. }
            | PartitionError::Gaps { .. } => true,
            PartitionError::Source { .. } | PartitionError::Checkpoint { .. } => false,
        },
        HostError::NameInUse { .. }
        | HostError::AnotherHub { .. }
        | HostError::Halted { .. }
        | HostError::ForeignReaderBeyondReach { .. }
        | HostError::Stuck { .. }
        | HostError::PartitionsWithoutOwner { .. }
        | HostError::TaskPanicked { .. }
        | HostError::TaskEnded { .. }
        | HostError::Damaged { .. } => true,
        HostError::Store { .. }
        | HostError::Hub { .. }
        | HostError::ClockSkew
        | HostError::OpenFailed { .. }
        | HostError::CloseFailed { .. }
        | HostError::ForeignReader { .. }
        | HostError::Displaced { .. }
        | HostError::SelfFenced { .. }
        | HostError::FinalCheckpointMissing { .. } => false,
    }
}

/// A label for each kind of error, for metrics.
fn kind(error: &HostError) -> &'static str {
    match error {
        HostError::Store { .. } => "store",
        HostError::Hub { .. } => "hub",
        HostError::NameInUse { .. } => "name_in_use",
        HostError::AnotherHub { .. } => "another_hub",
        HostError::ClockSkew => "clock_skew",
        HostError::OpenFailed { .. } => "open_failed",
        HostError::CloseFailed { .. } => "close_failed",
        HostError::Partition { .. } => "partition",
        HostError::Halted { .. } => "halted",
        HostError::ForeignReader { .. } => "foreign_reader",
        HostError::ForeignReaderBeyondReach { .. } => "foreign_reader_beyond_reach",
        HostError::Displaced { .. } => "displaced",
        HostError::SelfFenced { .. } => "self_fenced",
        HostError::Stuck { .. } => "stuck",
        HostError::FinalCheckpointMissing { .. } => "final_checkpoint_missing",
        HostError::PartitionsWithoutOwner { .. } => "partitions_without_owner",
        HostError::TaskPanicked { .. } => "task_panicked",
        HostError::TaskEnded { .. } => "task_ended",
        HostError::Damaged { .. } => "damaged",
    }
}
