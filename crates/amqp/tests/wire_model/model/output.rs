//! Frames that are written: each one is allowed by what the peer has said, and those that are due are written.

use ephor_amqp::connection::{LinkId, SessionId};
use ephor_amqp::performative::{Attach, Begin, Detach, Disposition, Flow, Outcome, Role};

use super::expected_events::condition;
use super::{Model, Session};
use crate::decoded_frames::{Body, Frame, Part};

/// A frame that has to be written, in this order.
#[derive(Debug)]
pub(crate) enum Wanted {
    Begin {
        session: SessionId,
        remote: Option<u16>,
    },
    /// The shared limits are reached: a `begin` that answers, and an `end`.
    RefusedBegin {
        peer_channel: u16,
    },
    RefusedBeginEnd {
        channel: u16,
    },
    /// With or without a source and a target.
    Attach {
        link: LinkId,
        terminus: bool,
    },
    /// The shared limits are reached: an `attach` that answers, and a `detach`.
    RefusedAttach {
        name: String,
        role: Role,
    },
    RefusedAttachDetach {
        channel: u16,
        handle: u32,
    },
    LinkFlow {
        link: LinkId,
        handle: Option<u32>,
        delivery_count: u32,
        credit: u32,
        drain: bool,
    },
    SessionFlow {
        channel: Option<u16>,
    },
    Detach {
        link: LinkId,
        handle: Option<u32>,
        condition: Option<String>,
        closed: bool,
    },
    End {
        session: SessionId,
        condition: Option<String>,
    },
    Close {
        condition: Option<String>,
    },
}

impl Model {
    pub(super) fn want_link_flow(&mut self, id: LinkId) {
        let link = self.link(id);
        let (delivery_count, credit, drain) = (link.delivery_count, link.credit, link.draining);
        let handle = link.handle;
        self.wanted.push_back(Wanted::LinkFlow { link: id, handle, delivery_count, credit, drain });
    }

    /// Checks a frame that was written.
    pub(crate) fn wrote(&mut self, frame: &Frame) {
        assert!(frame.size <= self.peer_frame as usize, "a frame of {} bytes", frame.size);
        let channel = frame.channel;
        match &frame.body {
            Body::Heartbeat => {}
            Body::Begin(begin) => self.wrote_begin(channel, begin),
            Body::Attach(attach) => self.wrote_attach(channel, attach),
            Body::Flow(flow) => self.wrote_flow(channel, flow),
            Body::Transfer(part) => self.wrote_transfer(channel, part, frame.size),
            Body::Disposition(disposition) => self.wrote_disposition(channel, disposition),
            Body::Detach(detach) => self.wrote_detach(channel, detach),
            Body::End(error) => self.wrote_end(channel, condition(error.as_ref())),
            Body::Close(error) => match self.wanted.pop_front() {
                Some(Wanted::Close { condition: why }) => assert_eq!(why, condition(error.as_ref()), "close"),
                other => panic!("a close was written, and {other:?} was due"),
            },
        }
    }

    /// All output so far has been seen: nothing that was due is missing.
    pub(crate) fn wrote_all(&mut self) {
        assert!(self.wanted.is_empty(), "not written: {:?}", self.wanted);
        for session in self.sessions.values_mut() {
            session.seen_incoming_id = session.next_incoming_id;
            session.earlier_window = 0;
            assert!(session.settled_in.is_empty(), "no disposition: {:?}", session.settled_in);
            assert!(session.settle_second.is_empty(), "no settlement: {:?}", session.settle_second);
            let begun = session.outgoing.iter().all(|outgoing| outgoing.written.is_some());
            assert!(begun, "deliveries of which nothing was written");
            session.outgoing.retain(|outgoing| !outgoing.dropped);
            assert!(session.outgoing.len() <= 1, "more than one delivery is unfinished");
        }
        self.spare_flows = 0;
        for session in std::mem::take(&mut self.gone) {
            assert!(session.settled_in.is_empty(), "no disposition: {:?}", session.settled_in);
        }
    }

    /// The session of one of our channels. It may be over by now.
    fn on_channel(&mut self, channel: u16, what: &str) -> &mut Session {
        let mut all = self.sessions.values_mut().chain(self.gone.iter_mut());
        let found = all.find(|session| session.channel == Some(channel));
        let session = found.unwrap_or_else(|| panic!("{what} on channel {channel}, which has no session"));
        assert!(!session.end_written, "{what} after our end");
        session
    }

    fn channel_is_free(&self, channel: u16) -> bool {
        self.sessions.values().all(|session| session.channel != Some(channel))
    }

    fn wrote_begin(&mut self, channel: u16, begin: &Begin) {
        assert!(channel <= self.peer_channel_max, "begin on channel {channel}");
        assert!(self.channel_is_free(channel), "begin on channel {channel}, which is in use");
        assert_eq!(begin.incoming_window, self.limits.window, "the window of a begin");
        match self.wanted.pop_front() {
            Some(Wanted::Begin { session, remote }) if remote == begin.remote_channel => {
                assert_eq!(begin.next_outgoing_id, self.first_transfer, "the first number");
                assert_eq!(begin.handle_max, Some(self.limits.handle_max), "the highest handle");
                // It may have ended in the meantime.
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.channel = Some(channel);
                }
            }
            Some(Wanted::RefusedBegin { peer_channel }) if begin.remote_channel == Some(peer_channel) => {
                self.wanted.push_front(Wanted::RefusedBeginEnd { channel });
            }
            other => panic!("{begin:?} was written, and {other:?} was due"),
        }
    }

    fn wrote_attach(&mut self, channel: u16, attach: &Attach) {
        match self.wanted.pop_front() {
            Some(Wanted::Attach { link: id, terminus }) => {
                let limit = self.limits.handle_max;
                let session = self.on_channel(channel, "attach");
                let most = session.peer_handle_max.min(limit);
                assert!(attach.handle <= most, "handle {} beyond {most}", attach.handle);
                let taken = session.handles_out.insert(attach.handle, id);
                assert_eq!(taken, None, "handle {} is in use", attach.handle);
                // It may be gone already.
                if let Some(link) = self.links.get_mut(&id) {
                    assert_eq!((&link.name, link.role), (&attach.name, attach.role), "attach");
                    link.handle = Some(attach.handle);
                } else {
                    self.on_channel(channel, "attach").handles_out.remove(&attach.handle);
                }
                let has = attach.source.is_some() || attach.target.is_some();
                assert_eq!(has, terminus, "the terminus of an attach");
            }
            Some(Wanted::RefusedAttach { name, role }) => {
                assert_eq!((&name, role), (&attach.name, attach.role));
                assert!(attach.source.is_none() && attach.target.is_none(), "a refusal without a terminus");
                let used = self.on_channel(channel, "attach").handles_out.contains_key(&attach.handle);
                assert!(!used, "handle {} is in use", attach.handle);
                self.wanted.push_front(Wanted::RefusedAttachDetach { channel, handle: attach.handle });
            }
            other => panic!("{attach:?} was written, and {other:?} was due"),
        }
    }

    fn wrote_flow(&mut self, channel: u16, flow: &Flow) {
        let window = self.limits.window;
        let session = self.on_channel(channel, "flow");
        let next = session.peer_channel.map(|_| session.next_incoming_id);
        // It may have been written before the transfers that were decoded last.
        let seen = session.peer_channel.map(|_| session.seen_incoming_id);
        let between = match (seen, flow.next_incoming_id, next) {
            (Some(seen), Some(told), Some(next)) => in_between(seen, told, next),
            (_, told, next) => told == next,
        };
        assert!(between, "next-incoming-id is {:?} and not {next:?}", flow.next_incoming_id);
        assert_eq!(flow.incoming_window, window, "incoming-window");
        assert_eq!(flow.next_outgoing_id, session.next_outgoing_id, "next-outgoing-id");
        let news = session.told_incoming_id != flow.next_incoming_id;
        session.told_incoming_id = flow.next_incoming_id;
        let Some(handle) = flow.handle else {
            match self.wanted.front() {
                Some(Wanted::SessionFlow { channel: of }) if *of == Some(channel) => {
                    self.wanted.pop_front();
                    // One that renews the window may have come just before the one that was asked for.
                    self.spare_flows += usize::from(news);
                }
                _ if news => {}
                _ => {
                    let spare = self.spare_flows.checked_sub(1);
                    self.spare_flows = spare.expect("a flow that says nothing new");
                }
            }
            return;
        };
        match self.wanted.pop_front() {
            Some(Wanted::LinkFlow { link, handle: of, delivery_count, credit, drain }) => {
                let of = of.or_else(|| self.links.get(&link).and_then(|link| link.handle));
                assert!(of.is_none_or(|of| of == handle), "the handle of a flow");
                let told = (flow.delivery_count, flow.link_credit, flow.drain == Some(true));
                assert_eq!(
                    told,
                    (Some(delivery_count), Some(credit), drain),
                    "delivery-count, credit, drain"
                );
            }
            other => panic!("{flow:?} was written, and {other:?} was due"),
        }
    }

    fn wrote_transfer(&mut self, channel: u16, part: &Part, size: usize) {
        assert!(size <= self.limits.frame_out as usize, "a transfer of {size} bytes");
        let session = self.on_channel(channel, "transfer");
        assert!(session.window.max(session.earlier_window) > 0, "a transfer beyond the window of the peer");
        session.window = session.window.saturating_sub(1);
        session.earlier_window = session.earlier_window.saturating_sub(1);
        session.next_outgoing_id = session.next_outgoing_id.wrapping_add(1);
        let Some(outgoing) = session.outgoing.front_mut() else { panic!("a transfer of nothing") };
        let of = session.handles_out.get(&part.handle).copied();
        assert!(of == Some(outgoing.link) || outgoing.dropped, "the link of a transfer");
        assert_eq!(*outgoing.handle.get_or_insert(part.handle), part.handle, "the handle of a transfer");
        let at = match outgoing.written {
            None => {
                assert_eq!(part.delivery_id, Some(outgoing.id), "the number of a delivery");
                assert_eq!(part.format.unwrap_or(0), outgoing.format, "the format of a delivery");
                0
            }
            Some(at) => {
                assert!(part.delivery_id.is_none_or(|id| id == outgoing.id), "another delivery in between");
                at
            }
        };
        assert_eq!(part.settled, outgoing.settled, "settled");
        let end = at + part.payload.len();
        assert!(outgoing.payload.get(at..end) == Some(&part.payload[..]), "the bytes of a delivery");
        assert_eq!(part.more, end < outgoing.payload.len(), "more");
        assert!(!part.aborted, "nothing is aborted");
        outgoing.written = Some(end);
        if !part.more {
            session.outgoing.pop_front();
        }
    }

    fn wrote_disposition(&mut self, channel: u16, disposition: &Disposition) {
        let session = self.on_channel(channel, "disposition");
        let Disposition { role, first, last, settled, outcome } = disposition;
        assert!(settled, "a disposition that does not settle");
        for distance in 0..=last.unwrap_or(*first).wrapping_sub(*first) {
            let number = first.wrapping_add(distance);
            match role {
                Role::Receiver => {
                    let due = session.settled_in.remove(&number);
                    assert!(
                        same(due.as_ref(), outcome.as_ref()),
                        "{outcome:?} for {number}, {due:?} was due"
                    );
                }
                Role::Sender => {
                    let due = session.settle_second.remove(&number);
                    let due = due.unwrap_or_else(|| panic!("a settlement of {number}, which was not due"));
                    assert!(
                        same(due.as_ref(), outcome.as_ref()),
                        "{outcome:?} for {number}, {due:?} was due"
                    );
                }
            }
        }
    }

    fn wrote_detach(&mut self, channel: u16, detach: &Detach) {
        let why = condition(detach.error.as_ref());
        match self.wanted.pop_front() {
            Some(Wanted::Detach { link, handle, condition, closed }) => {
                // A link that was asked for and never answered has got its handle just before.
                let handle = handle.or_else(|| self.links.get(&link).and_then(|link| link.handle));
                assert!(handle.is_none_or(|handle| handle == detach.handle), "the handle of a detach");
                assert_eq!((why, detach.closed), (condition, closed), "detach");
            }
            Some(Wanted::RefusedAttachDetach { channel: of, handle }) => {
                assert_eq!((channel, detach.handle), (of, handle), "the detach of a refused link");
                assert_eq!(why.as_deref(), Some("amqp:resource-limit-exceeded"));
            }
            other => panic!("{detach:?} was written, and {other:?} was due"),
        }
    }

    fn wrote_end(&mut self, channel: u16, why: Option<String>) {
        match self.wanted.pop_front() {
            Some(Wanted::End { session, condition }) => {
                let found = self.sessions.get(&session).and_then(|session| session.channel);
                assert!(found.is_none_or(|found| found == channel), "the channel of an end");
                assert_eq!(why, condition, "end");
                self.on_channel(channel, "end").end_written = true;
            }
            Some(Wanted::RefusedBeginEnd { channel: of }) => {
                assert_eq!(channel, of, "the end of a refused session");
                assert_eq!(why.as_deref(), Some("amqp:resource-limit-exceeded"));
            }
            other => panic!("an end was written, and {other:?} was due"),
        }
    }
}

fn in_between(earlier: u32, number: u32, later: u32) -> bool {
    number.wrapping_sub(earlier) <= later.wrapping_sub(earlier)
}

/// Descriptions may be shortened.
fn same(one: Option<&Outcome>, other: Option<&Outcome>) -> bool {
    match (one, other) {
        (Some(Outcome::Rejected(one)), Some(Outcome::Rejected(other))) => {
            condition(one.as_ref()) == condition(other.as_ref())
        }
        (one, other) => one == other,
    }
}
