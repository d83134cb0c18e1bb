//! For Ephor and for its users.
//!
//! | to | use |
//! |---|---|
//! | test your processor on virtual time: kill hosts, catch up, rebalance | [`TestFleet`] |
//! | prove that a store or a source keeps the rules | [`conformance`] |

pub mod conformance;
mod fleet;
mod virtual_time;

pub use fleet::{FleetError, GaveUp, TestFleet};
pub use virtual_time::VirtualEnvironment;
