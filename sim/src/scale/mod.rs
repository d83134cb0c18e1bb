//! How a fleet grows: hosts and partitions, and what they cost.
pub mod change;
mod store;
pub mod whole;
