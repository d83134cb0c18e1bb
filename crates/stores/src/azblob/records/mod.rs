//! The records of a group: reads and writes each kind of blob, and caches records.

pub(super) mod checkpoint;
pub(super) mod history;
pub(super) mod hosts;
pub(super) mod ownership;
pub(super) mod record_cache;
