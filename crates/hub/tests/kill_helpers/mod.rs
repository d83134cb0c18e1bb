//! Test helpers for the tests that kill processes.
//!
//! | file | owns |
//! |---|---|
//! | `hash_chain.rs` | events in a hash chain |
//! | `child_process.rs` | starts this binary again, as another process |
//! | `protocol.rs` | the messages between parent and child |
//! | `sender.rs` | the child process that is killed |
//! | `acknowledged_events.rs` | the events that must be there, and their check |
//!
//! The tests of the full disk use `small_disk.rs` only.

pub(crate) mod acknowledged_events;
pub(crate) mod child_process;
pub(crate) mod hash_chain;
pub(crate) mod protocol;
pub(crate) mod sender;
