//! The records of a group in blobs.
//!
//! | file | does |
//! |---|---|
//! | `ownership.rs`, `checkpoint.rs` | converts a lease or a checkpoint to the metadata of its blob and back, without I/O |
//! | `hosts.rs`, `history.rs` | reads and writes the blobs of hosts and of the history |
//! | `record_cache.rs` | caches the records that one store has read or written |

pub(super) mod checkpoint;
pub(super) mod history;
pub(super) mod hosts;
pub(super) mod ownership;
pub(super) mod record_cache;
