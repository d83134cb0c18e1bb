//! Tests of the encoding of values, performatives and messages. One test binary, to save build time.
#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod arbitrary_bytes;
mod nonconforming_messages;
mod performatives;
mod sections;
mod validation;
mod values;
