//! The options of a host in a configuration file: reads, checks and writes them with serde.
//!
//! Missing fields take their default, and unknown ones are refused. Closures are left out.

use std::time::Duration;

use ephor_core::checkpoint::CheckpointPolicy;
use ephor_core::duration_setting;
use ephor_core::failure_policy::FailurePolicy;
use ephor_core::position::StartPosition;
use ephor_core::resume::OnInvalidPosition;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{ErrorHandler, EventProcessorOptions, Initial, InitialPosition, PartitionManagerOptions};

/// [`EventProcessorOptions`] in a file: the same fields, which the compiler compares.
#[derive(Serialize, Deserialize)]
#[serde(rename = "EventProcessorOptions", remote = "EventProcessorOptions")]
#[serde(default = "EventProcessorOptions::default", deny_unknown_fields)]
struct ProcessorFields {
    max_batch_size: usize,
    prefetch_count: usize,
    prefetch_bytes: usize,
    #[serde(with = "duration_setting")]
    receive_timeout: Duration,
    invoke_after_receive_timeout: bool,
    #[serde(with = "same_position", skip_serializing_if = "is_function")]
    initial_position: InitialPosition,
    on_invalid_position: OnInvalidPosition,
    #[serde(with = "duration_setting::option")]
    process_timeout: Option<Duration>,
    checkpoint: CheckpointPolicy,
    failure: FailurePolicy,
    #[serde(with = "duration_setting")]
    hub_unavailable_timeout: Duration,
    #[serde(with = "duration_setting::option")]
    start_timeout: Option<Duration>,
    #[serde(skip)]
    on_error: Option<ErrorHandler>,
}

fn is_function(position: &InitialPosition) -> bool {
    matches!(position.0, Initial::ByPartition(_))
}

/// An initial position that is the same for all partitions.
mod same_position {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        position: &InitialPosition,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match &position.0 {
            Initial::Same(position) => position.serialize(serializer),
            Initial::ByPartition(_) => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<InitialPosition, D::Error> {
        StartPosition::deserialize(deserializer).map(InitialPosition::from)
    }
}

impl Serialize for EventProcessorOptions {
    /// Leaves out `on_error`, and an `initial_position` that is a function.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ProcessorFields::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for EventProcessorOptions {
    /// Checks the values, as [`validate`](Self::validate) does.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let options = ProcessorFields::deserialize(deserializer)?;
        options.validate().map_err(D::Error::custom)?;
        Ok(options)
    }
}

/// [`PartitionManagerOptions`] in a file: the same fields.
#[derive(Serialize, Deserialize)]
#[serde(rename = "PartitionManagerOptions", remote = "PartitionManagerOptions")]
#[serde(default = "PartitionManagerOptions::default", deny_unknown_fields)]
struct ManagerFields {
    #[serde(with = "duration_setting")]
    lease_duration: Duration,
    #[serde(with = "duration_setting")]
    renew_interval: Duration,
    #[serde(with = "duration_setting")]
    slow_scan: Duration,
    #[serde(with = "duration_setting")]
    fast_scan: Duration,
    #[serde(with = "duration_setting")]
    handover_timeout: Duration,
    #[serde(with = "duration_setting")]
    fence_margin: Duration,
    #[serde(with = "duration_setting")]
    store_timeout: Duration,
    #[serde(with = "duration_setting")]
    other_sdk_lease_duration: Duration,
    max_partitions: Option<u32>,
}

impl Serialize for PartitionManagerOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ManagerFields::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for PartitionManagerOptions {
    /// Checks the values, as [`validate`](Self::validate) does.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let options = ManagerFields::deserialize(deserializer)?;
        options.validate().map_err(D::Error::custom)?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests;
