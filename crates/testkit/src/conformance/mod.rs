//! Conformance suites: the promises that every store, every source and every producer must keep, run in one line.

pub mod producer;
pub mod source;
pub mod store;
