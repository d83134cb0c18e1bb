//! Names that Event Hubs adds to AMQP: properties and capabilities of links, the numbering of an idempotent
//! producer, and types of entities.
//!
//! Error conditions have their own table in [`crate::condition`], annotations theirs in
//! [`crate::annotations`].

/// The property of a receiver with its epoch.
pub const EPOCH: &str = "com.microsoft:epoch";
/// The property of a receiver with its name, which other receivers see in errors.
pub const RECEIVER_NAME: &str = "com.microsoft:receiver-name";
/// The same in the spelling of the official Rust SDK.
pub const RECEIVER_NAME_OF_RUST_SDK: &str = "com.microsoft.com:receiver-name";
/// The capability of a receiver that wants the end of the partition with every event.
pub const RUNTIME_METRICS: &str = "com.microsoft:enable-receiver-runtime-metric";
/// The capability of a receiver that knows the epochs of sequence numbers, which grow with a failover to another
/// region.
pub const GEOREPLICATION: &str = "com.microsoft:georeplication";
/// The property of an attached link with the id under which the hub logs it.
pub const TRACKING_ID: &str = "com.microsoft:tracking-id";

/// The capability of a sender that numbers its events, so that a batch that is sent twice is stored once.
pub const IDEMPOTENT_PRODUCER: &str = "com.microsoft:idempotent-producer";
/// The property of such a sender with the id of its producer.
pub const PRODUCER_ID: &str = "com.microsoft:producer-id";
/// The property with the epoch of its producer.
pub const PRODUCER_EPOCH: &str = "com.microsoft:producer-epoch";
/// The property with the number of the producer's last event, and the annotation of each event with its own
/// number.
pub const PRODUCER_SEQUENCE_NUMBER: &str = "com.microsoft:producer-sequence-number";

/// The type of a hub in `$management`.
pub const HUB_TYPE: &str = "com.microsoft:eventhub";
/// The type of a partition in `$management`.
pub const PARTITION_TYPE: &str = "com.microsoft:partition";
