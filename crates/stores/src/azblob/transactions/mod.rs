//! The transactions: read the state of a partition, decide by `ephor_core::record`, and write with conditions.

pub(super) mod fence_repairs;
pub(super) mod fencing;
pub(super) mod ownership_changes;
pub(super) mod partition_state;
pub(super) mod saves;
pub(super) mod views;
