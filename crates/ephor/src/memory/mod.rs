//! A store and a hub in memory, which keep every rule: for tests, examples and
//! the simulation. Nothing survives the process.

mod hub;
mod store;

pub use hub::MemoryHub;
pub use store::{MemoryStore, StoreCopy, StoreEvent};
