//! See ARCHITECTURE.md.

pub mod environment;
pub mod memory;
