//! Tests of the two ends of a connection, in memory and on virtual time.

mod driver;
mod duplex;
mod flow;
mod handshake;
mod hostile;
mod limits;
mod links;
mod messages;
mod pair;
mod raw;
mod splits;
mod time;
