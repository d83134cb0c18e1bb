//! Checks that a connection reports exactly the expected events to its application, in order.

use std::collections::BTreeMap;

use ephor_amqp::connection::{Closed, Event, LinkId, SessionId};
use ephor_amqp::performative::{Attach, Begin, Error, Outcome, Role};

use super::{LinkState, Model, SessionState, Wanted};

/// An event that has to come.
#[derive(Debug)]
pub(crate) enum Expected {
    /// The peer began a session; its id comes with the event.
    BegunByPeer {
        peer_channel: u16,
        begin: Box<Begin>,
    },
    Begun {
        session: SessionId,
    },
    /// The peer wants a link; its id comes with the event.
    AttachRequested {
        session: SessionId,
        attach: Box<Attach>,
    },
    Attached {
        link: LinkId,
    },
    Credit {
        link: LinkId,
        drain: bool,
    },
    Drained {
        link: LinkId,
    },
    Delivery {
        link: LinkId,
        id: u32,
        format: u32,
        settled: bool,
        payload: Vec<u8>,
    },
    Oversized {
        link: LinkId,
        id: u32,
        size: u64,
        limit: u64,
    },
    /// Each of these once, in any grouping, in this order.
    Settled {
        deliveries: Vec<(LinkId, u32)>,
        outcome: Option<Outcome>,
    },
    /// Each of these once, in any order.
    Detached {
        links: BTreeMap<LinkId, Option<String>>,
    },
    Ended {
        session: SessionId,
        condition: Option<String>,
    },
    ClosedByPeer {
        condition: Option<String>,
    },
    ClosedByUs,
    Failed {
        condition: String,
    },
}

pub(crate) fn condition(error: Option<&Error>) -> Option<String> {
    error.map(|error| error.condition.to_string())
}

impl Model {
    /// Checks an event that is not only a hint to try again.
    pub(crate) fn event(&mut self, event: &Event) {
        let Some(expected) = self.expected.pop_front() else {
            panic!("an event that was not due: {event:?}")
        };
        match (expected, event) {
            (Expected::BegunByPeer { peer_channel, begin }, Event::Begun { session, by_peer: true }) => {
                self.peer_has_begun(*session, peer_channel, &begin);
            }
            (Expected::Begun { session: due }, Event::Begun { session, by_peer: false })
                if due == *session => {}
            (
                Expected::AttachRequested { session: due, attach: asked },
                Event::AttachRequested { session, link, attach },
            ) if due == *session && asked == *attach => {
                self.peer_asks_for(*session, *link, attach);
            }
            (Expected::Attached { link: due }, Event::Attached { link, .. }) if due == *link => {}
            (Expected::Credit { link: due, drain: drains }, Event::Credit { link, drain })
                if due == *link && drains == *drain => {}
            (Expected::Drained { link: due }, Event::Drained { link }) if due == *link => {}
            (Expected::Delivery { link, id, format, settled, payload }, Event::Delivery(delivery))
                if (link, id, format, settled)
                    == (delivery.link, delivery.id, delivery.format, delivery.settled)
                    && payload == delivery.payload =>
            {
                self.delivered += 1;
            }
            (
                Expected::Oversized { link: due, id, size: bytes, limit: most },
                Event::Oversized { link, delivery, size, limit },
            ) if (due, id, bytes, most) == (*link, *delivery, *size, *limit) => {}
            (
                Expected::Settled { mut deliveries, outcome: due },
                Event::Settled { link, first, last, outcome },
            ) if same_outcome(due.as_ref(), outcome.as_ref()) => {
                for distance in 0..=last.wrapping_sub(*first) {
                    let told = (*link, first.wrapping_add(distance));
                    let next = (!deliveries.is_empty()).then(|| deliveries.remove(0));
                    assert_eq!(next, Some(told), "deliveries that were reported as settled");
                    self.settled += 1;
                }
                if !deliveries.is_empty() {
                    self.expected.push_front(Expected::Settled { deliveries, outcome: due });
                }
            }
            (Expected::Detached { mut links }, Event::Detached { link, error }) => {
                let due = links.remove(link);
                assert_eq!(due, Some(condition(error.as_ref())), "the end of {link:?}");
                if !links.is_empty() {
                    self.expected.push_front(Expected::Detached { links });
                }
            }
            (Expected::Ended { session: due, condition: why }, Event::Ended { session, error })
                if due == *session && why == condition(error.as_ref()) => {}
            (Expected::ClosedByPeer { condition: why }, Event::Closed(Closed::ByPeer(error)))
                if why == condition(error.as_ref()) => {}
            (Expected::ClosedByUs, Event::Closed(Closed::ByUs)) => {}
            (Expected::Failed { condition: why }, Event::Closed(Closed::Failed(error)))
                if why == error.condition => {}
            (expected, event) => panic!("due was {}, and reported was {event:?}", short(&expected)),
        }
    }

    fn peer_has_begun(&mut self, id: SessionId, peer_channel: u16, begin: &Begin) {
        let mut session = self.new_session(SessionState::Open);
        session.peer_channel = Some(peer_channel);
        session.peer_handle_max = begin.handle_max.unwrap_or(u32::MAX);
        session.next_incoming_id = begin.next_outgoing_id;
        session.seen_incoming_id = begin.next_outgoing_id;
        session.window = begin.incoming_window;
        assert!(self.sessions.insert(id, session).is_none(), "the id of a session was used before");
        self.channels_in.insert(peer_channel, Some(id));
        self.wanted.push_back(Wanted::Begin { session: id, remote: Some(peer_channel) });
    }

    fn peer_asks_for(&mut self, session: SessionId, id: LinkId, attach: &Attach) {
        self.add_link(id, session, attach, attach.role.other(), LinkState::Requested);
        let link = self.link_mut(id);
        link.peer_handle = Some(attach.handle);
        if link.role == Role::Receiver {
            link.delivery_count = attach.initial_delivery_count.unwrap_or(0);
        }
        self.session_mut(session).handles_in.insert(attach.handle, Some(id));
    }
}

/// Descriptions may be shortened.
fn same_outcome(one: Option<&Outcome>, other: Option<&Outcome>) -> bool {
    match (one, other) {
        (Some(Outcome::Rejected(one)), Some(Outcome::Rejected(other))) => {
            condition(one.as_ref()) == condition(other.as_ref())
        }
        (one, other) => one == other,
    }
}

fn short(expected: &Expected) -> String {
    match expected {
        Expected::Delivery { link, id, format, settled, payload } => {
            format!("Delivery {id} on {link:?}, format {format}, settled {settled}, {} bytes", payload.len())
        }
        other => format!("{other:?}"),
    }
}
