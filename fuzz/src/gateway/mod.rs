//! Whole conversations with a gateway that has a hub behind it: what a peer says, from its first byte.
//!
//! Seeds show the development key, as a token and by SASL, so that mutations get behind the door. A gateway serves
//! many conversations, one after the other, and beside each of them a client that was there before; after a
//! round of them that one and a newcomer are asked whether they are served as ever ([`answers`]).

mod client;
mod server;

use std::cell::RefCell;

use server::Server;

/// A hub in memory keeps what it is sent: after so many conversations there is a new one.
const CONVERSATIONS: usize = 2_000;
/// After so many, whoever plays inputs and nothing else learns whether the gateway still answers.
const ROUND: usize = 50;

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

/// Plays one input.
pub fn run(data: &[u8]) {
    with_server(|server| {
        server.hear(data);
        if server.conversations.is_multiple_of(ROUND) {
            server.answers();
        }
    });
}

/// What the gateway of this thread says to that.
pub fn answer_to(data: &[u8]) -> Vec<u8> {
    with_server(|server| server.hear(data))
}

/// Asks the gateway of this thread whether it serves a client that was there before, and a new one.
pub fn answers() {
    with_server(Server::answers);
}

/// A server that a panic went through is not used again.
fn with_server<T>(play: impl FnOnce(&mut Server) -> T) -> T {
    SERVER.with(|place| {
        let used = place.borrow_mut().take().filter(|server| server.conversations < CONVERSATIONS);
        let mut server = used.unwrap_or_else(Server::start);
        let played = play(&mut server);
        *place.borrow_mut() = Some(server);
        played
    })
}
