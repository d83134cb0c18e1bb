//! Tests of the page and of the results, on real sockets. One program, so that it is built once.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test waits as it likes, and fails by a panic"
)]

mod azurite;
#[path = "../../examples/page/fake.rs"]
mod fake;
mod page;
