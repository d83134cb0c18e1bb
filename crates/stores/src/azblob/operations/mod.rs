//! The operations on partitions: changes of ownership and saves, which decide by `ephor_core::record` and
//! write with conditions (ETags); fences; and views of a group. Renewals are in `renewal/`, host records and
//! the history in `records/`.

pub(super) mod fence_repairs;
pub(super) mod fencing;
pub(super) mod ownership_changes;
pub(super) mod partition_state;
pub(super) mod saves;
pub(super) mod views;
