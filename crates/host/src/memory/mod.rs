//! A store and a hub in memory, with all rules of the real ones: for tests, examples and the
//! simulation. Nothing survives the process.

mod hub;
mod store;

pub use hub::{MemoryHub, MemoryProducer};
pub use store::{MemoryStore, StoreCopy, StoreEvent};
