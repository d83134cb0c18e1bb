//! A store and a hub in memory, which keep every rule: for tests, examples and
//! the simulation. Nothing survives the process.
//! See ARCHITECTURE.md.

mod store;

pub use store::{MemoryStore, StoreEvent};
