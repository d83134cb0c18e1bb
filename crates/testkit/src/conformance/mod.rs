//! Conformance suites: the promises that every store and every source must keep, run in one line.

pub mod source;
pub mod store;
