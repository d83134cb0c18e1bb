//! Test helpers that several files share: a recorder of all actions, and a faulty store.

pub mod action_recorder;
pub mod faulty_store;
