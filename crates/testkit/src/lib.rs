//! Test tools for Ephor and for its users.
//!
//! | to | use |
//! |---|---|
//! | test your processor on virtual time: kill hosts, catch up, rebalance | [`TestFleet`] |
//! | prove that a store, a source or a producer keeps the rules | [`conformance`] |
//! | count the calls of a host to its store | [`CountingStore`] |
//! | read what your code logged | [`CapturedLog`] |
//! | search for faults that your processor or store does not survive (cargo feature `simulation`) | `simulation` |
//! | start an emulator of Azure Blob Storage for a test (cargo feature `azurite-server`) | `azurite_server` |
//! | start a PostgreSQL server for a test (cargo feature `postgres-server`) | `postgres_server` |

#[cfg(feature = "azurite-server")]
pub mod azurite_server;
mod captured_log;
pub mod conformance;
mod counting_store;
#[cfg(any(feature = "azurite-server", feature = "postgres-server"))]
mod faketime;
mod fleet;
#[cfg(feature = "postgres-server")]
pub mod postgres_server;
mod virtual_time;

pub use captured_log::CapturedLog;
pub use counting_store::CountingStore;
#[cfg(feature = "simulation")]
pub use ephor_sim::testing as simulation;
pub use fleet::{FleetError, GaveUp, TestFleet};
pub use virtual_time::VirtualEnvironment;
