//! The renewal of leases, in batches or one by one. The documentation of `azblob` compares both ways.

pub(super) mod batch;
pub(super) mod batched;
pub(super) mod renew;
pub(super) mod revocations;
