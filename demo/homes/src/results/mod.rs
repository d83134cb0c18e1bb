//! Stores the results of the demo: for each kind and partition a log of objects that are created once and
//! never changed.
//!
//! ```text
//! homes/03/updates/000000000121     what changed, who wrote it, and which events it covers: one object
//! homes/03/updates/000000000122
//! homes/03/snapshots/000000000060   the whole state as of update 60
//! homes/03/snapshots/000000000120   and as of update 120, after which everything up to 60 was deleted
//! ```
//!
//! A writer that has read the updates 1 to n appends n + 1 by creating it: the storage lets only one writer succeed. So all
//! owners of a partition, also a stale one, write one history, and nothing is overwritten. A writer that loses the race reads
//! the other's update. If that has a higher epoch, there is a newer owner: the writer is fenced and stops. Otherwise it applies
//! the update, and folds its own events again.
//!
//! *Deleting* old objects would let a stale owner create one of them again. So every writer and reader of an update checks the
//! snapshots afterwards: nothing after the snapshot before the newest was ever deleted.
//!
//! | file | what it owns |
//! |---|---|
//! | `result_store.rs`, `account.rs`, `container.rs` | a folder, or a container of Azure Blob Storage |
//! | `entry.rs`, `object_encoding.rs` | an update as an object; its bytes |
//! | `log.rs`, `load.rs` | the objects of one log; the newest state |
//! | `result_writer.rs` | the writer |
//! | `follower.rs` | the reader |

mod account;
mod container;
mod entry;
mod follower;
mod load;
mod log;
mod object_encoding;
mod result_store;
mod result_writer;
#[cfg(test)]
pub(crate) mod tests;

pub use entry::{Entry, SAMPLES};
pub use follower::{Follower, News};
pub use log::{Log, LogError};
pub use result_store::{ResultStore, ResultStoreError};
pub use result_writer::{Flushed, ResultWriter, ResultWriterError, SNAPSHOT_EVERY};
