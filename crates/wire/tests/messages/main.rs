//! Tests of the encoding of Event Hubs messages. One program, so that it is built once.

mod common;
mod golden;
mod hostile;
mod round_trip;
