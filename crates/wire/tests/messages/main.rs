//! Tests of messages of Event Hubs as bytes. One program, so that it is built once.

mod common;
mod golden;
mod hostile;
mod round_trip;
