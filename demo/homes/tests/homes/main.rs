//! Tests of the demo's page and of its results, on real sockets. One test binary, to save build time.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test waits as it likes, and fails by a panic"
)]

mod azurite;
#[path = "../../examples/page/fake_source.rs"]
mod fake_source;
mod live_updates;
mod page;
