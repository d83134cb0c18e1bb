//! The SQLite store.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail right there")]

mod conformance;
