//! Fuzzes whole conversations with a gateway and its hub: arbitrary input of a peer, from its first byte.
//!
//! Seeds authenticate with the development key, as a token and by SASL, so that mutations reach the code
//! after authentication. A gateway serves many conversations, one after the other, each beside a client that
//! was connected before; after a round of them, that client and a new one check that they are still served
//! ([`answers`]).

mod client;
mod server;

use std::cell::RefCell;

use server::Server;

/// The number of conversations after which a new server is started: a hub in memory keeps what it is sent.
const CONVERSATIONS: usize = 2_000;
/// The number of conversations after which [`run`] checks that the gateway still answers.
const ROUND: usize = 50;

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

/// Runs one input.
pub fn run(data: &[u8]) {
    with_server(|server| {
        server.hear(data);
        if server.conversations.is_multiple_of(ROUND) {
            server.answers();
        }
    });
}

/// The answer of this thread's gateway to an input.
pub fn answer_to(data: &[u8]) -> Vec<u8> {
    with_server(|server| server.hear(data))
}

/// Checks that this thread's gateway still serves a client that was connected before, and a new one.
pub fn answers() {
    with_server(Server::answers);
}

/// A server through which a panic unwound is not used again.
fn with_server<T>(play: impl FnOnce(&mut Server) -> T) -> T {
    SERVER.with(|place| {
        let used = place.borrow_mut().take().filter(|server| server.conversations < CONVERSATIONS);
        let mut server = used.unwrap_or_else(Server::start);
        let played = play(&mut server);
        *place.borrow_mut() = Some(server);
        played
    })
}
