//! The records: how each kind of blob is read and written, and the cache of what this process knows.

pub(super) mod checkpoint;
pub(super) mod history;
pub(super) mod hosts;
pub(super) mod ownership;
pub(super) mod record_cache;
