//! The store's operations: each reads the state of a partition, decides by `ephor_core::record`, and writes
//! with conditions (ETags).

pub(super) mod fence_repairs;
pub(super) mod fencing;
pub(super) mod ownership_changes;
pub(super) mod partition_state;
pub(super) mod saves;
pub(super) mod views;
