//! Test helpers that several files share: a recorder of all actions, and a faulty store.

pub mod faulty_store;
pub mod ledger;
