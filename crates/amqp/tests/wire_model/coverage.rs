//! Counts how often each kind of frame met each state of a session and of a link, and lists combinations that
//! can be reached and were not.

use std::collections::BTreeMap;
use std::fmt;

use crate::decoded_frames::Kind;

/// The state of a session when a frame came on its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SessionCover {
    /// The channel has never had a session.
    Unused,
    BeginSent,
    Open,
    /// The window of the peer is used up.
    NoWindow,
    Ending,
    /// The session of the channel has ended.
    Ended,
}

/// The state of a link when a frame came for its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LinkCover {
    /// The handle has never had a link.
    Unused,
    Requested,
    Refused,
    /// We send on it.
    Sender,
    /// We send on it, and a delivery has begun and not ended.
    SenderInDelivery,
    /// We send on it, and the peer drains its credit.
    SenderDraining,
    /// We receive on it.
    Receiver,
    /// We receive on it, and have granted no credit.
    ReceiverNoCredit,
    /// We receive on it, and a delivery has begun and not ended.
    ReceiverInDelivery,
    ReceiverDraining,
    /// Our `attach` is out, without an answer; then our `detach` as well.
    DetachingUnanswered,
    Detaching,
    /// The link of the handle was detached.
    Detached,
}

/// The counts by kind of frame and state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    sessions: BTreeMap<(Kind, SessionCover), u64>,
    links: BTreeMap<(Kind, LinkCover), u64>,
}

const SESSION_KINDS: [Kind; 10] = [
    Kind::Begin,
    Kind::Attach,
    Kind::SessionFlow,
    Kind::LinkFlow,
    Kind::Transfer,
    Kind::Part,
    Kind::Aborted,
    Kind::Disposition,
    Kind::Detach,
    Kind::End,
];

const SESSION_STATES: [SessionCover; 6] = [
    SessionCover::Unused,
    SessionCover::BeginSent,
    SessionCover::Open,
    SessionCover::NoWindow,
    SessionCover::Ending,
    SessionCover::Ended,
];

const LINK_KINDS: [Kind; 6] =
    [Kind::Attach, Kind::LinkFlow, Kind::Transfer, Kind::Part, Kind::Aborted, Kind::Detach];

const LINK_STATES: [LinkCover; 13] = [
    LinkCover::Unused,
    LinkCover::Requested,
    LinkCover::Refused,
    LinkCover::Sender,
    LinkCover::SenderInDelivery,
    LinkCover::SenderDraining,
    LinkCover::Receiver,
    LinkCover::ReceiverNoCredit,
    LinkCover::ReceiverInDelivery,
    LinkCover::ReceiverDraining,
    LinkCover::DetachingUnanswered,
    LinkCover::Detaching,
    LinkCover::Detached,
];

/// True if the frame can come in this state, from a peer that may violate the protocol.
fn session_reachable(kind: Kind, state: SessionCover) -> bool {
    match state {
        // A session whose begin was not answered has no channel of the peer: only its answer can come.
        SessionCover::BeginSent => kind == Kind::Begin,
        _ => true,
    }
}

fn link_reachable(kind: Kind, state: LinkCover) -> bool {
    match state {
        // Without an answer the link has no handle of the peer: only its answer can come.
        LinkCover::DetachingUnanswered => kind == Kind::Attach,
        _ => true,
    }
}

impl Coverage {
    pub(crate) fn session(&mut self, kind: Kind, state: SessionCover) {
        *self.sessions.entry((kind, state)).or_default() += 1;
    }

    pub(crate) fn link(&mut self, kind: Kind, state: LinkCover) {
        *self.links.entry((kind, state)).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        other.sessions.iter().for_each(|(key, count)| *self.sessions.entry(*key).or_default() += count);
        other.links.iter().for_each(|(key, count)| *self.links.entry(*key).or_default() += count);
    }

    /// The combinations that can be reached and never were.
    pub(crate) fn missing(&self) -> Vec<String> {
        let sessions = SESSION_KINDS.iter().flat_map(|kind| SESSION_STATES.map(|state| (*kind, state)));
        let sessions = sessions
            .filter(|(kind, state)| session_reachable(*kind, *state))
            .filter(|key| !self.sessions.contains_key(key))
            .map(|(kind, state)| format!("{kind:?} in session {state:?}"));
        let links = LINK_KINDS.iter().flat_map(|kind| LINK_STATES.map(|state| (*kind, state)));
        let links = links
            .filter(|(kind, state)| link_reachable(*kind, *state))
            .filter(|key| !self.links.contains_key(key))
            .map(|(kind, state)| format!("{kind:?} on link {state:?}"));
        sessions.chain(links).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |count: Option<&u64>, reachable: bool| match count {
            Some(count) => count.to_string(),
            None if reachable => "NONE".to_owned(),
            None => "-".to_owned(),
        };
        write!(formatter, "{:<20}", "session")?;
        SESSION_KINDS.iter().try_for_each(|kind| write!(formatter, "{:>12}", format!("{kind:?}")))?;
        for state in SESSION_STATES {
            write!(formatter, "\n{:<20}", format!("{state:?}"))?;
            for kind in SESSION_KINDS {
                let cell = count(self.sessions.get(&(kind, state)), session_reachable(kind, state));
                write!(formatter, "{cell:>12}")?;
            }
        }
        write!(formatter, "\n{:<20}", "link")?;
        LINK_KINDS.iter().try_for_each(|kind| write!(formatter, "{:>12}", format!("{kind:?}")))?;
        for state in LINK_STATES {
            write!(formatter, "\n{:<20}", format!("{state:?}"))?;
            for kind in LINK_KINDS {
                let cell = count(self.links.get(&(kind, state)), link_reachable(kind, state));
                write!(formatter, "{cell:>12}")?;
            }
        }
        Ok(())
    }
}
