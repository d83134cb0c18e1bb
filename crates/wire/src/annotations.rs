//! Message and delivery annotations that the hub adds to each event that it delivers, and that the client
//! reads.
//!
//! | annotation | section | type |
//! |---|---|---|
//! | `x-opt-sequence-number-epoch` | message | int, for every receiver (REC) |
//! | `x-opt-sequence-number` | message | long |
//! | `x-opt-offset` | message | string |
//! | `x-opt-enqueued-time` | message | timestamp |
//! | `x-opt-partition-key` | message | string, only where there is one |
//! | `last_enqueued_sequence_number_epoch` | delivery | int, for receivers that asked for it |
//! | `last_enqueued_sequence_number` | delivery | long |
//! | `last_enqueued_offset` | delivery | string |
//! | `last_enqueued_time_utc` | delivery | timestamp |
//! | `runtime_info_retrieval_time_utc` | delivery | timestamp |
//!
//! The types are exact: with a wrong one some SDKs ignore the annotation and others throw. The hub's delivery
//! annotations are either all present or all absent.
//!
//! Beside these the sender's annotations are delivered, of both sections. Its header is not (REC).

mod deliver;
mod receive;

pub use deliver::{MAX_ADDED_BYTES, Stamp, deliver, with_partition_key};
pub(crate) use deliver::{signed, write_offset};
pub use receive::{Delivered, received};

use ephor_core::source::LastEnqueued;
use ephor_core::time::Timestamp;

/// The annotation with the event's sequence number.
pub const SEQUENCE_NUMBER: &str = "x-opt-sequence-number";
/// The annotation with the event's offset: its place in the log.
pub const OFFSET: &str = "x-opt-offset";
/// The annotation with the time at which the event was stored.
pub const ENQUEUED_TIME: &str = "x-opt-enqueued-time";
/// The annotation with the partition key that the event was sent with.
pub const PARTITION_KEY: &str = "x-opt-partition-key";

/// The annotation with the epoch of the event's sequence number.
const SEQUENCE_NUMBER_EPOCH: &str = "x-opt-sequence-number-epoch";
const LAST_SEQUENCE_NUMBER_EPOCH: &str = "last_enqueued_sequence_number_epoch";

/// The epoch of all sequence numbers here: the service's value for a hub without a failover to another region.
const NUMBER_EPOCH: i32 = -1;

const LAST_SEQUENCE_NUMBER: &str = "last_enqueued_sequence_number";
const LAST_OFFSET: &str = "last_enqueued_offset";
const LAST_TIME: &str = "last_enqueued_time_utc";
const RETRIEVAL_TIME: &str = "runtime_info_retrieval_time_utc";

/// The end of the partition's log, sent along with an event to receivers that asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeMetrics {
    /// The newest event of the partition.
    pub last: LastEnqueued,
    /// The time at which the hub read it.
    pub retrieved_at: Timestamp,
}

/// True if the hub writes this annotation itself. It overwrites whatever a sender put there.
pub(crate) fn belongs_to_the_hub(annotation: &str) -> bool {
    // The first comparison rejects nearly all annotations of senders.
    annotation.starts_with("x-opt-")
        && matches!(
            annotation,
            PARTITION_KEY | SEQUENCE_NUMBER | SEQUENCE_NUMBER_EPOCH | OFFSET | ENQUEUED_TIME
        )
}

/// True for a delivery annotation that only the hub may write: nobody else can report the end of the log.
fn reports_the_end(annotation: &str) -> bool {
    annotation.starts_with("last_enqueued_") || annotation == RETRIEVAL_TIME
}

#[cfg(test)]
mod tests;
