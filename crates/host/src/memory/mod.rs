//! A store and a hub in memory, with the rules of the real ones, for tests, examples and the simulation.
//! Their data is lost when the process ends.

mod hub;
mod store;

pub use hub::{MemoryHub, MemoryProducer};
pub use store::{MemoryStore, StoreCopy, StoreEvent};
