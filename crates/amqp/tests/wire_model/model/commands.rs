//! The application's commands: what they must return, and what they must write.

use ephor_amqp::connection::{Blocked, LinkId, Sent, SessionId};
use ephor_amqp::performative::{Attach, Outcome, Role};

use super::{Expected, Link, LinkState, Model, Outgoing, Phase, SessionState, Wanted};

/// A message that the application wants to send.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) settled: bool,
    pub(crate) format: u32,
    pub(crate) payload: Vec<u8>,
}

impl Model {
    pub(crate) fn begin(&mut self, result: Option<SessionId>) {
        let possible = self.phase == Phase::Open
            && self.sessions.len() < self.limits.sessions
            && self.sessions.len() <= usize::from(self.peer_channel_max)
            && self.shared_session_free();
        assert_eq!(result.is_some(), possible, "begin: the limits allow it: {possible}");
        let Some(id) = result else { return };
        self.sessions.insert(id, self.new_session(SessionState::BeginSent));
        self.wanted.push_back(Wanted::Begin { session: id, remote: None });
    }

    pub(crate) fn attach(&mut self, session: SessionId, attach: &Attach, result: Option<LinkId>) {
        let possible = self.sessions.get(&session).is_some_and(|session| !session.is_ending())
            && self.links.len() < self.limits.links
            && self.has_free_handle(session)
            && self.shared_link_free();
        assert_eq!(result.is_some(), possible, "attach: the limits allow it: {possible}");
        let Some(id) = result else { return };
        self.add_link(id, session, attach, attach.role, LinkState::AttachSent);
        self.set_our_side(id, attach);
        let terminus = attach.source.is_some() || attach.target.is_some();
        self.wanted.push_back(Wanted::Attach { link: id, terminus });
    }

    pub(super) fn add_link(
        &mut self,
        id: LinkId,
        session: SessionId,
        attach: &Attach,
        role: Role,
        state: LinkState,
    ) {
        self.ages += 1;
        let link = Link {
            age: self.ages,
            session,
            name: attach.name.clone(),
            role,
            state,
            handle: None,
            peer_handle: None,
            delivery_count: 0,
            credit: 0,
            draining: false,
            drain_taken_back: false,
            message_limit: self.limits.message,
            incoming: None,
        };
        assert!(self.links.insert(id, link).is_none(), "the id of a link was used before");
    }

    /// Our side of the link: its first delivery as sender, its largest message as receiver.
    fn set_our_side(&mut self, id: LinkId, attach: &Attach) {
        let most = self.limits.message;
        let link = self.link_mut(id);
        match link.role {
            Role::Sender => link.delivery_count = attach.initial_delivery_count.unwrap_or(0),
            Role::Receiver => {
                let announced = attach.max_message_size.filter(|&size| size > 0);
                link.message_limit = announced.unwrap_or(most).min(most);
            }
        }
    }

    pub(crate) fn accept(&mut self, id: LinkId, answer: &Attach) {
        if self.links.get(&id).is_none_or(|link| link.state != LinkState::Requested) {
            return;
        }
        let link = self.link_mut(id);
        link.state = LinkState::Attached;
        let (credit, drain) = (link.credit, link.draining);
        if link.role == Role::Sender && credit > 0 {
            self.expected.push_back(Expected::Credit { link: id, drain });
        }
        self.set_our_side(id, answer);
        let terminus = answer.source.is_some() || answer.target.is_some();
        self.wanted.push_back(Wanted::Attach { link: id, terminus });
    }

    pub(crate) fn refuse(&mut self, id: LinkId, condition: &str) {
        if self.links.get(&id).is_none_or(|link| link.state != LinkState::Requested) {
            return;
        }
        self.link_mut(id).state = LinkState::Detaching { reported: true };
        self.wanted.push_back(Wanted::Attach { link: id, terminus: false });
        self.want_detach(id, Some(condition.to_owned()), true);
    }

    pub(crate) fn detach(&mut self, id: LinkId, condition: Option<&str>) {
        self.start_detach(id, condition.map(str::to_owned), false);
    }

    pub(super) fn start_detach(&mut self, id: LinkId, condition: Option<String>, reported: bool) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let before = std::mem::replace(&mut link.state, LinkState::Detaching { reported });
        match before {
            LinkState::Detaching { .. } => {
                link.state = before;
                return;
            }
            LinkState::Requested => {
                self.wanted.push_back(Wanted::Attach { link: id, terminus: false });
            }
            LinkState::AttachSent | LinkState::Refused | LinkState::Attached => {}
        }
        self.forget_deliveries(id);
        self.want_detach(id, condition, true);
    }

    pub(super) fn want_detach(&mut self, id: LinkId, condition: Option<String>, closed: bool) {
        let handle = self.link(id).handle;
        self.wanted.push_back(Wanted::Detach { link: id, handle, condition, closed });
    }

    pub(crate) fn end(&mut self, id: SessionId, condition: Option<&str>) {
        self.start_end(id, condition.map(str::to_owned), false);
    }

    pub(super) fn start_end(&mut self, id: SessionId, condition: Option<String>, reported: bool) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.is_ending() {
            return;
        }
        session.state = SessionState::Ending { reported };
        for link in self.links_of(id) {
            self.remove_link(link);
        }
        self.wanted.push_back(Wanted::End { session: id, condition });
    }

    pub(crate) fn close(&mut self, condition: Option<&str>) {
        if self.phase == Phase::Open {
            self.wanted.push_back(Wanted::Close { condition: condition.map(str::to_owned) });
            self.forget_everything();
            self.phase = Phase::Closing;
        }
    }

    pub(crate) fn grant(&mut self, id: LinkId, credit: u32) {
        if self.is_attached(id, Role::Receiver) {
            let link = self.link_mut(id);
            link.credit = credit;
            link.drain_taken_back |= std::mem::take(&mut link.draining);
            self.want_link_flow(id);
        }
    }

    pub(crate) fn drain(&mut self, id: LinkId) {
        if self.is_attached(id, Role::Receiver) {
            self.link_mut(id).draining = true;
            self.want_link_flow(id);
        }
    }

    pub(crate) fn drained(&mut self, id: LinkId) {
        if self.is_attached(id, Role::Sender) && self.link(id).draining {
            let link = self.link_mut(id);
            link.delivery_count = link.delivery_count.wrapping_add(link.credit);
            link.credit = 0;
            self.want_link_flow(id);
            self.link_mut(id).draining = false;
        }
    }

    /// Everything that allows a message, by what the peer has granted and our limits say.
    fn may_send(&self, id: LinkId, settled: bool, output: usize) -> Result<(), Blocked> {
        let link = self.link(id);
        let session = self.session(link.session);
        if link.credit == 0 {
            return Err(Blocked::Credit);
        }
        if session.window == 0 || session.outgoing.iter().any(|outgoing| !outgoing.dropped) {
            return Err(Blocked::Window);
        }
        if !settled && session.unsettled_out.len() >= self.limits.unsettled {
            return Err(Blocked::Unsettled);
        }
        if output >= self.limits.output {
            return Err(Blocked::Room);
        }
        Ok(())
    }

    /// True if nothing may keep the application from sending this message: neither the peer, nor our limits, nor
    /// output that has not been read down to half of its limit, nor rests of other messages.
    pub(crate) fn must_be_possible(&self, id: LinkId, message: &Message, output: usize) -> bool {
        let rests: usize = self.unfinished().map(|outgoing| outgoing.payload.len()).sum();
        self.is_attached(id, Role::Sender)
            && self.may_send(id, message.settled, output).is_ok()
            && output <= self.limits.output / 2
            && (rests == 0 || rests + message.payload.len() <= self.limits.incomplete)
    }

    /// Checks the result of `send`; `output` is the number of bytes that waited before.
    pub(crate) fn send(&mut self, id: LinkId, message: &Message, result: Sent, output: usize) {
        if !self.is_attached(id, Role::Sender) {
            assert_eq!(result, Sent::Gone, "send on a link that is not attached");
            return;
        }
        match result {
            Sent::Gone => panic!("send: an attached link is gone"),
            Sent::Blocked(blocked) => {
                assert!(
                    !self.must_be_possible(id, message, output),
                    "send was refused with {blocked:?}, although credit, window and memory allow it"
                );
                let credit = self.link(id).credit;
                assert_eq!(blocked == Blocked::Credit, credit == 0, "{blocked:?} with a credit of {credit}");
            }
            Sent::Sent(number) => {
                if let Err(blocked) = self.may_send(id, message.settled, output) {
                    panic!("send was not refused with {blocked:?}");
                }
                let link = self.link_mut(id);
                link.credit -= 1;
                link.delivery_count = link.delivery_count.wrapping_add(1);
                let session = link.session;
                let session = self.session_mut(session);
                assert_eq!(number, session.next_delivery_id, "the number of a delivery");
                session.next_delivery_id = number.wrapping_add(1);
                if !message.settled {
                    session.unsettled_out.insert(number, id);
                }
                session.outgoing.push_back(Outgoing {
                    link: id,
                    id: number,
                    format: message.format,
                    settled: message.settled,
                    payload: message.payload.clone(),
                    written: None,
                    handle: None,
                    dropped: false,
                });
            }
        }
    }

    /// The application settles deliveries that it has; none in between is left out.
    pub(crate) fn settle(&mut self, id: LinkId, first: u32, last: u32, outcome: &Outcome) {
        let Some(link) = self.links.get(&id) else { return };
        let detaching = matches!(link.state, LinkState::Detaching { .. });
        let session = link.session;
        let session = self.session_mut(session);
        for distance in 0..=last.wrapping_sub(first) {
            let number = first.wrapping_add(distance);
            let held = session.unsettled_in.remove(&number);
            if !detaching {
                assert_eq!(held, Some(id), "the driver settles what it has");
                session.settled_in.insert(number, outcome.clone());
            }
        }
    }
}
