//! The runtime environment of every Ephor process: clocks, tasks and randomness, and calls to the operating
//! system.
//!
//! | to read about | open |
//! |---|---|
//! | what a host, a hub or a client takes from outside, and a simulation replaces | [`environment`] |
//! | calls to the operating system that several crates make | [`os`] |
//! | reads and writes past the page cache | [`direct_io`] |
//!
//! [`os`] is the one file of this crate that a port to another system changes.

pub mod direct_io;
pub mod environment;
pub mod os;
