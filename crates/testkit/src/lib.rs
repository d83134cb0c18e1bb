//! See ARCHITECTURE.md.

pub mod conformance;
