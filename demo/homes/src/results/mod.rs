//! Where the results are kept: a log of create-only objects for each kind and partition.
//!
//! ```text
//! homes/03/updates/000000000121     what changed, who wrote it, and which events it covers: one object
//! homes/03/updates/000000000122
//! homes/03/snapshots/000000000060   the whole state as of update 60
//! homes/03/snapshots/000000000120   and as of update 120, after which everything up to 60 was deleted
//! ```
//!
//! Whoever has seen the updates 1 to n may append n + 1, by creating it: storage lets one writer do so. All owners
//! of a partition, also one that does not know yet that it is none, write one history, and nobody writes over
//! anything. Who finds that somebody else was faster reads what that was. A higher epoch means: there is a newer
//! owner, stop. Anything else is taken over, and one's own events are folded again on top of it.
//!
//! *Deleting* makes room in which somebody who slept for long could create an object anew. So whoever creates or
//! reads an update looks at the snapshots afterwards: nothing above the one before the newest was ever deleted.
//!
//! | file | what it owns |
//! |---|---|
//! | [`place`](Place), `account.rs`, `container.rs` | a folder, or a container of Azure Blob Storage |
//! | `entry.rs`, `coding.rs` | an update as an object; its bytes |
//! | `log.rs`, `load.rs` | the objects of one log; the newest state |
//! | `book.rs` | the writer's side |
//! | `follower.rs` | the reader's side |

mod account;
mod book;
mod coding;
mod container;
mod entry;
mod follower;
mod load;
mod log;
mod place;
#[cfg(test)]
pub(crate) mod tests;

pub use book::{Book, BookError, Flushed, SNAPSHOT_EVERY};
pub use entry::{Entry, SAMPLES};
pub use follower::{Follower, News};
pub use log::{Log, LogError};
pub use place::{Place, PlaceError};
