//! Test helper: a client and a server, connected in memory.

use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, Config, Event, LinkId, ServerSasl, SessionId};
use ephor_amqp::performative::{Attach, Role};

pub(crate) struct Pair {
    pub(crate) client: Connection,
    pub(crate) server: Connection,
}

/// The events of each side.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) client: Vec<Event>,
    pub(crate) server: Vec<Event>,
}

/// A pair with one link, and its id on each side.
pub(crate) struct Linked {
    pub(crate) pair: Pair,
    pub(crate) session: SessionId,
    pub(crate) client_link: LinkId,
    pub(crate) server_session: SessionId,
    pub(crate) server_link: LinkId,
}

pub(crate) fn config(name: &str) -> Config {
    Config::new(name)
}

impl Pair {
    pub(crate) fn new(client: Config, server: Config) -> Self {
        Self {
            client: Connection::client(client, ClientSasl::Anonymous, Duration::ZERO),
            server: Connection::server(server, ServerSasl::default(), Duration::ZERO),
        }
    }

    pub(crate) fn open(client: Config, server: Config) -> Self {
        let mut pair = Self::new(client, server);
        let events = pair.pump();
        assert!(matches!(events.client[..], [Event::Opened(_)]), "{events:?}");
        assert!(matches!(events.server[..], [Event::Opened(_)]), "{events:?}");
        pair
    }

    /// Moves bytes and collects events until nothing happens on either side.
    pub(crate) fn pump(&mut self) -> Events {
        let mut events = Events::default();
        loop {
            let moved = carry(&mut self.client, &mut self.server) + carry(&mut self.server, &mut self.client);
            let before = events.client.len() + events.server.len();
            events.client.extend(std::iter::from_fn(|| self.client.next_event()));
            events.server.extend(std::iter::from_fn(|| self.server.next_event()));
            if moved == 0 && before == events.client.len() + events.server.len() {
                return events;
            }
        }
    }
}

/// Moves all output of one side to the other, and returns the number of bytes.
pub(crate) fn carry(from: &mut Connection, to: &mut Connection) -> usize {
    let bytes = from.output().to_vec();
    to.input().extend_from_slice(&bytes);
    from.wrote(bytes.len());
    bytes.len()
}

/// A pair with a link on which the client has this role.
pub(crate) fn linked(role: Role, client: Config, server: Config) -> Linked {
    let mut pair = Pair::open(client, server);
    let session = pair.client.begin().expect("a session");
    let attach = match role {
        Role::Sender => Attach::sender("link", "there"),
        Role::Receiver => Attach::receiver("link", "there"),
    };
    let client_link = pair.client.attach(session, attach).expect("a link");
    let events = pair.pump();
    let Some(Event::AttachRequested { session: server_session, link: server_link, attach }) =
        events.server.last().cloned()
    else {
        panic!("{events:?}")
    };
    pair.server.accept(server_link, attach.answer());
    let events = pair.pump();
    assert!(matches!(events.client[..], [Event::Attached { link, .. }] if link == client_link), "{events:?}");
    Linked { pair, session, client_link, server_session, server_link }
}
