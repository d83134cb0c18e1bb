//! One end of a conversation: a connection, its application, and the model that watches both.
//!
//! The application has a queue of messages for each link. It tries to send when a message is added; once it was
//! refused, it tries again only when an event has told it so. A message that stays in the queue although it
//! could be sent is how a missing event shows.

use std::collections::{BTreeMap, VecDeque};

use ephor_amqp::Connection;
use ephor_amqp::connection::{Blocked, Config, Event, LinkId, Sent, SessionId};
use ephor_amqp::performative::{Attach, Error, Outcome, Role};

use crate::decoded_frames::{Body, Frame, read_all};
use crate::model::{Message, Model, Phase};
use crate::settings::Habits;

/// A link that the peer asks for, and that the application has not answered.
pub(crate) struct Request {
    pub(crate) link: LinkId,
    pub(crate) attach: Box<Attach>,
}

pub(crate) struct Endpoint {
    pub(crate) connection: Connection,
    pub(crate) model: Model,
    pub(crate) habits: Habits,
    /// Frames of the peer that the connection has not decoded, and the number of the byte after each.
    inbox: VecDeque<(u64, Frame)>,
    /// Bytes of the peer that have been written: the number of the byte after the last frame of `inbox`.
    announced: u64,
    /// Bytes of the peer that are in the connection's input or beyond.
    received: u64,
    /// Bytes on the way to this end.
    pub(crate) flight: VecDeque<u8>,
    /// Frames that the model has seen, and the other end has not been told of.
    pub(crate) written: Vec<Frame>,
    /// The part of the waiting output that the model has seen.
    seen: usize,
    pub(crate) paused: bool,
    pub(crate) queues: BTreeMap<LinkId, VecDeque<Message>>,
    /// Links on which the application was refused, and has not been told to try again.
    pub(crate) refused: BTreeMap<LinkId, Blocked>,
    /// Links on which the application may try again.
    pub(crate) woken: Vec<LinkId>,
    pub(crate) requests: Vec<Request>,
    /// Deliveries that the application has to settle.
    pub(crate) held: BTreeMap<LinkId, VecDeque<u32>>,
    pub(crate) told_closed: bool,
}

impl Endpoint {
    /// `peer` is the configuration of the other end.
    pub(crate) fn new(connection: Connection, peer: &Config, habits: Habits) -> Self {
        let model = Model::new(connection.config(), peer.limits.frame, peer.limits.channel_max);
        Self {
            connection,
            model,
            habits,
            inbox: VecDeque::new(),
            announced: 0,
            received: 0,
            flight: VecDeque::new(),
            written: Vec::new(),
            seen: 0,
            paused: false,
            queues: BTreeMap::new(),
            refused: BTreeMap::new(),
            woken: Vec::new(),
            requests: Vec::new(),
            held: BTreeMap::new(),
            told_closed: false,
        }
    }

    /// Shows the model all output that it has not seen.
    pub(crate) fn look_at_output(&mut self) {
        let output = self.connection.output();
        let frames = read_all(&output[self.seen..]);
        self.seen = output.len();
        frames.iter().for_each(|frame| self.model.wrote(frame));
        self.model.wrote_all();
        self.written.extend(frames);
    }

    /// The peer has written this frame; its bytes come later.
    pub(crate) fn announce(&mut self, frame: Frame) {
        self.announced += frame.size as u64;
        self.inbox.push_back((self.announced, frame));
    }

    /// The transport takes this many bytes of output, all of which the model has seen.
    pub(crate) fn write(&mut self, count: usize) -> Vec<u8> {
        let output = self.connection.output();
        let count = count.min(output.len());
        assert!(count <= self.seen, "the model has seen what is written");
        let bytes = output[..count].to_vec();
        self.seen -= count;
        self.connection.wrote(count);
        bytes
    }

    /// Bytes come from the transport, if the connection wants them. Returns how many.
    pub(crate) fn read(&mut self, count: usize) -> usize {
        if !self.connection.wants_input() {
            return 0;
        }
        let bytes: Vec<u8> = self.flight.drain(..count.min(self.flight.len())).collect();
        self.received += bytes.len() as u64;
        self.connection.input().extend_from_slice(&bytes);
        bytes.len()
    }

    /// True if frames wait to be decoded after which the model needs to know all output before.
    pub(crate) fn must_look_before_poll(&self) -> bool {
        let whole = self.inbox.iter().take_while(|(end, _)| *end <= self.received);
        !self.model.wanted.is_empty()
            || whole.into_iter().any(|(_, frame)| !matches!(frame.body, Body::Transfer(_)))
    }

    /// Takes one event; the application reacts. False if there is none.
    pub(crate) fn poll(&mut self) -> bool {
        let event = self.connection.next_event();
        let decoded = self.received - self.connection.input().len() as u64;
        while self.inbox.front().is_some_and(|(end, _)| *end <= decoded) {
            let (_, frame) = self.inbox.pop_front().expect("a frame");
            self.model.read(&frame);
        }
        let Some(event) = event else {
            let whole = self.inbox.front().is_some_and(|(end, _)| *end <= self.received);
            assert!(!whole || self.paused || self.model.phase == Phase::Over, "a whole frame is not decoded");
            self.look_at_output();
            let missing: Vec<_> = self.model.expected.drain(..).collect();
            assert!(missing.is_empty(), "no event for {missing:?}");
            self.check_told();
            return false;
        };
        assert!(!self.told_closed, "an event after the end: {event:?}");
        match &event {
            Event::Window { session } => {
                let links = self.refused_links(|of, blocked| {
                    of == *session && matches!(blocked, Blocked::Window | Blocked::Unsettled)
                });
                self.wake(links);
            }
            Event::Room => {
                let links = self.refused_links(|_, blocked| blocked == Blocked::Room);
                self.wake(links);
            }
            Event::Unended => {
                let step = self.connection.config().limits.incomplete_notice;
                assert!(step < usize::MAX, "a notice that nobody asked for");
                self.connection.buffered();
            }
            event => {
                self.model.event(event);
                self.react(event);
            }
        }
        true
    }

    fn refused_links(&self, of: impl Fn(SessionId, Blocked) -> bool) -> Vec<LinkId> {
        let links = self.refused.iter().filter(|(link, blocked)| {
            self.model.links.get(link).is_some_and(|found| of(found.session, **blocked))
        });
        links.map(|(link, _)| *link).collect()
    }

    fn wake(&mut self, links: Vec<LinkId>) {
        for link in links {
            self.refused.remove(&link);
            if self.habits.sends_late {
                self.woken.push(link);
            } else {
                self.send_queued(link);
            }
        }
    }

    /// Nobody who may send waits untold.
    pub(crate) fn check_told(&mut self) {
        let output = self.connection.output_length();
        for (link, blocked) in &self.refused {
            let Some(message) = self.queues.get(link).and_then(VecDeque::front) else { continue };
            assert!(
                !self.model.must_be_possible(*link, message, output),
                "refused with {blocked:?}, may send again, and was not told"
            );
        }
    }

    fn react(&mut self, event: &Event) {
        match event {
            Event::AttachRequested { link, attach, .. } => {
                let request = Request { link: *link, attach: attach.clone() };
                match self.habits.answers_late {
                    true => self.requests.push(request),
                    false => self.answer(&request, true),
                }
            }
            Event::Attached { link, .. } => self.attached(*link),
            Event::Credit { link, drain } => {
                if self.refused.get(link) == Some(&Blocked::Credit) {
                    self.wake(vec![*link]);
                }
                if *drain && !self.habits.drains_late {
                    self.drained(*link);
                }
            }
            Event::Delivery(delivery) => {
                if !delivery.settled {
                    self.held.entry(delivery.link).or_default().push_back(delivery.id);
                }
                let link = delivery.link;
                if !self.habits.settles_late {
                    self.settle(link, 0, usize::MAX, &Outcome::Accepted);
                }
                if self.habits.renews && self.connection.credit(link) == 0 {
                    self.grant(link, self.habits.credit);
                }
            }
            Event::Oversized { link, delivery, size, limit } => {
                let outcome = Outcome::rejected(Error::too_large(*delivery, *size, *limit));
                self.connection.settle(*link, *delivery, *delivery, &outcome);
                self.model.settle(*link, *delivery, *delivery, &outcome);
            }
            Event::Detached { link, .. } => self.forget(*link),
            Event::Closed(_) => {
                self.told_closed = true;
                self.forget_all();
            }
            _ => {}
        }
    }

    fn forget(&mut self, link: LinkId) {
        self.queues.remove(&link);
        self.refused.remove(&link);
        self.woken.retain(|woken| *woken != link);
        self.held.remove(&link);
        self.requests.retain(|request| request.link != link);
    }

    pub(crate) fn forget_all(&mut self) {
        self.queues.clear();
        self.refused.clear();
        self.woken.clear();
        self.held.clear();
        self.requests.clear();
    }

    /// A link can be used now.
    fn attached(&mut self, link: LinkId) {
        self.send_queued(link);
        if self.model.is_attached(link, Role::Receiver) && self.habits.credit > 0 {
            self.grant(link, self.habits.credit);
        }
    }

    pub(crate) fn answer(&mut self, request: &Request, accept: bool) {
        if !accept {
            let error = Error::new("amqp:not-found", "no such node");
            self.connection.refuse(request.link, error);
            self.model.refuse(request.link, "amqp:not-found");
            return;
        }
        let mut answer = request.attach.answer();
        if answer.role == Role::Sender {
            answer.initial_delivery_count = Some(self.habits.first_count);
        } else {
            answer.max_message_size = self.habits.largest_message;
        }
        self.connection.accept(request.link, answer.clone());
        self.model.accept(request.link, &answer);
        self.attached(request.link);
    }

    pub(crate) fn begin(&mut self) {
        let session = self.connection.begin();
        self.model.begin(session);
    }

    pub(crate) fn attach(&mut self, session: SessionId, mut attach: Attach) {
        if attach.role == Role::Sender {
            attach.initial_delivery_count = Some(self.habits.first_count);
        } else {
            attach.max_message_size = self.habits.largest_message;
        }
        let link = self.connection.attach(session, attach.clone());
        self.model.attach(session, &attach, link);
    }

    pub(crate) fn grant(&mut self, link: LinkId, credit: u32) {
        self.connection.grant(link, credit);
        self.model.grant(link, credit);
    }

    pub(crate) fn drain(&mut self, link: LinkId) {
        // The answer to a drain that was taken back would be the answer to this one.
        if self.model.links.get(&link).is_some_and(|link| link.drain_taken_back) {
            return;
        }
        self.connection.drain(link);
        self.model.drain(link);
    }

    pub(crate) fn drained(&mut self, link: LinkId) {
        self.connection.drained(link);
        self.model.drained(link);
    }

    pub(crate) fn detach(&mut self, link: LinkId, error: Option<Error>) {
        self.model.detach(link, error.as_ref().map(|error| &*error.condition));
        self.connection.detach(link, error);
        self.forget(link);
    }

    pub(crate) fn end(&mut self, session: SessionId, error: Option<Error>) {
        self.look_at_output();
        for link in self.model.links_of(session) {
            self.forget(link);
        }
        self.model.end(session, error.as_ref().map(|error| &*error.condition));
        self.connection.end(session, error);
    }

    pub(crate) fn close(&mut self, error: Option<Error>) {
        self.look_at_output();
        self.forget_all();
        self.model.close(error.as_ref().map(|error| &*error.condition));
        self.connection.close(error);
    }

    /// Adds a message to the queue of a link, and sends what can be sent unless the application waits to be told.
    pub(crate) fn enqueue(&mut self, link: LinkId, message: Message) {
        self.queues.entry(link).or_default().push_back(message);
        if !self.refused.contains_key(&link) {
            self.send_queued(link);
        }
    }

    pub(crate) fn send_woken(&mut self) {
        for link in std::mem::take(&mut self.woken) {
            if !self.refused.contains_key(&link) {
                self.send_queued(link);
            }
        }
    }

    pub(crate) fn send_queued(&mut self, link: LinkId) {
        while let Some(message) = self.queues.get(&link).and_then(|queue| queue.front().cloned()) {
            // A delivery before it may have been written to its end.
            self.look_at_output();
            let before = self.connection.output_length();
            let (one, two) = message.payload.split_at(message.payload.len() / 3);
            let result = self.connection.send(link, message.format, message.settled, &[one, two]);
            self.model.send(link, &message, result, before);
            match result {
                Sent::Sent(_) => drop(self.queues.get_mut(&link).and_then(VecDeque::pop_front)),
                Sent::Blocked(blocked) => {
                    self.refused.insert(link, blocked);
                    return;
                }
                Sent::Gone => return,
            }
        }
    }

    /// Settles up to `most` consecutive deliveries that the application has, without the first `skip`.
    pub(crate) fn settle(&mut self, link: LinkId, skip: usize, most: usize, outcome: &Outcome) {
        let Some(held) = self.held.get_mut(&link).filter(|held| !held.is_empty()) else { return };
        let at = skip % held.len();
        let first = held.remove(at).expect("a delivery");
        let mut last = first;
        for _ in 1..most {
            if held.get(at) != Some(&last.wrapping_add(1)) {
                break;
            }
            last = held.remove(at).expect("a delivery");
        }
        self.connection.settle(link, first, last, outcome);
        self.model.settle(link, first, last, outcome);
    }
}
