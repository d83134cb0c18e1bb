//! Helpers that several test files share.

pub mod ledger;
pub mod troubled_store;
