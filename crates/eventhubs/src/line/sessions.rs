//! Which link lives in which session.
//!
//! Links of one kind share sessions: a large event on its way out holds up no request, and a hub that ends a
//! session ends few links with it. The service takes at most 256 links in one.

use std::collections::BTreeMap;

use ephor_amqp::Connection;
use ephor_amqp::connection::SessionId;

/// So many links share a session.
const LINKS: usize = 64;

/// What links of a session are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Requests,
    Receivers,
    Senders,
}

/// The sessions of a connection, and how many links each has.
#[derive(Default)]
pub(super) struct Sessions(BTreeMap<SessionId, (Kind, usize)>);

impl Sessions {
    /// A session for so many links of a kind; none if the hub allows no more.
    pub(super) fn place(
        &mut self,
        connection: &mut Connection,
        kind: Kind,
        links: usize,
    ) -> Option<SessionId> {
        let free = self.0.iter().find(|(_, (of, used))| *of == kind && used + links <= LINKS);
        let session = match free {
            Some((session, _)) => *session,
            None => connection.begin()?,
        };
        self.0.entry(session).or_insert((kind, 0)).1 += links;
        Some(session)
    }

    /// A link of this session is gone.
    pub(super) fn left(&mut self, session: SessionId) {
        if let Some((_, used)) = self.0.get_mut(&session) {
            *used = used.saturating_sub(1);
        }
    }

    pub(super) fn ended(&mut self, session: SessionId) {
        self.0.remove(&session);
    }
}
