//! Conformance suites: a backend proves that it keeps the promises of its seam.

pub mod store;
