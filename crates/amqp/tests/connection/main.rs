//! Tests of connections: a client and a server in memory, or one end and a peer that encodes its frames by
//! hand; on virtual time.

mod byte_splits;
mod client_and_server;
mod driver;
mod duplex;
mod flow;
mod fuzz_findings;
mod handshake;
mod heartbeats_and_timeouts;
mod limits;
mod links;
mod messages;
mod raw_peer;
