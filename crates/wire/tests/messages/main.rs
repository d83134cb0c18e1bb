//! Tests of the encoding of Event Hubs messages. One test binary, to save build time.

mod common;
mod golden;
mod hostile;
mod round_trip;
