//! What every backend of a seam must keep, as suites that it runs in one line.

pub mod source;
pub mod store;
