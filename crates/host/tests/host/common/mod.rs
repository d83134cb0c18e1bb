//! Test helpers that several files share: a recorder of all actions, and a faulty store.

pub mod ledger;
pub mod troubled_store;
