//! Assigns the links of a connection to AMQP sessions, at most 64 links to each.
//!
//! Links of one kind share sessions: a large event that is being sent does not delay a request, and a hub
//! that ends a session ends few links with it. The service allows at most 256 links in a session.

use std::collections::BTreeMap;

use ephor_amqp::Connection;
use ephor_amqp::connection::SessionId;

/// The maximum number of links in a session.
const MAX_LINKS: usize = 64;

/// The purpose of a session's links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Requests,
    Receivers,
    Senders,
}

/// The sessions of a connection, and the number of links in each.
#[derive(Default)]
pub(super) struct Sessions(BTreeMap<SessionId, (Kind, usize)>);

impl Sessions {
    /// Returns a session with room for `links` more links of a kind; none if the hub allows no more sessions.
    pub(super) fn assign(
        &mut self,
        connection: &mut Connection,
        kind: Kind,
        links: usize,
    ) -> Option<SessionId> {
        let free = self.0.iter().find(|(_, (of, used))| *of == kind && used + links <= MAX_LINKS);
        let session = match free {
            Some((session, _)) => *session,
            None => connection.begin()?,
        };
        self.0.entry(session).or_insert((kind, 0)).1 += links;
        Some(session)
    }

    /// A link of this session has ended.
    pub(super) fn link_ended(&mut self, session: SessionId) {
        if let Some((_, used)) = self.0.get_mut(&session) {
            *used = used.saturating_sub(1);
        }
    }

    pub(super) fn ended(&mut self, session: SessionId) {
        self.0.remove(&session);
    }
}
