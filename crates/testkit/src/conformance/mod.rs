//! Conformance suites: the properties that every store, every source and every producer must have. One
//! macro call runs a suite.

pub mod producer;
pub mod source;
pub mod store;
