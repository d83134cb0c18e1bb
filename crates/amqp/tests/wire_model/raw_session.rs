//! The sessions and links of a peer that writes its frames by hand: what it knows of them, and their frames.

use std::collections::{BTreeMap, VecDeque};

use ephor_amqp::performative::{Attach, Detach, Disposition, Error, Flow, Outcome, Role, Source, Target};

use crate::decoded_frames::{Body, Part};
use crate::hand_written_frames::{frame, transfer};
use crate::raw_steps::PeerFrame;

/// The most links of a session that are answered after they were detached.
const MAX_ANSWERS: u32 = 30;

#[derive(Debug)]
pub(crate) struct PeerLink {
    pub(crate) name: String,
    pub(crate) sends: bool,
    /// The handle of the other end.
    theirs: Option<u32>,
    delivery_count: u32,
    /// The delivery that has begun and not ended.
    delivery: Option<u32>,
    detach_sent: bool,
}

#[derive(Debug)]
pub(crate) struct PeerSession {
    /// The channel of the other end.
    pub(crate) theirs: Option<u16>,
    next_outgoing_id: u32,
    next_incoming_id: u32,
    next_delivery_id: u32,
    /// The number after the last delivery that has come.
    after_last: u32,
    pub(crate) links: BTreeMap<u32, PeerLink>,
    /// An `attach` of the other end without an answer.
    asked: VecDeque<Box<Attach>>,
    pub(crate) end_sent: bool,
    /// The links that were answered after they had been detached.
    answers: u32,
}

pub(crate) fn error(fails: bool) -> Option<Error> {
    fails.then(|| Error::new("amqp:internal-error", "because"))
}

fn outcome(number: u8) -> Option<Outcome> {
    Some(match number {
        0 => return None,
        1 => Outcome::rejected(Error::new("amqp:not-allowed", "no")),
        2 => Outcome::Released,
        _ => Outcome::Accepted,
    })
}

impl PeerSession {
    pub(crate) fn new(
        theirs: Option<u16>,
        next_outgoing_id: u32,
        next_incoming_id: u32,
        after_last: u32,
    ) -> Self {
        Self {
            theirs,
            next_outgoing_id,
            next_incoming_id,
            next_delivery_id: next_outgoing_id.wrapping_mul(7),
            after_last,
            links: BTreeMap::new(),
            asked: VecDeque::new(),
            end_sent: false,
            answers: 0,
        }
    }

    fn flow(&self, window: u32, echo: bool) -> Flow {
        Flow {
            next_incoming_id: Some(self.next_incoming_id),
            incoming_window: window,
            next_outgoing_id: self.next_outgoing_id,
            outgoing_window: 100,
            echo,
            ..Flow::default()
        }
    }

    pub(crate) fn write(
        &mut self,
        wild: bool,
        channel: u16,
        handle: u32,
        what: &PeerFrame,
        messages: &mut u64,
    ) -> Vec<u8> {
        let link = self.links.get(&handle);
        let alive = link.is_some_and(|link| !link.detach_sent);
        match *what {
            PeerFrame::Attach { sends, name, first } if link.is_none() || wild => {
                let text = format!("raw-{name}");
                let same = |link: &PeerLink| link.name == text && link.sends == sends;
                if self.links.values().any(same) && !wild {
                    return Vec::new();
                }
                let mut attach = match sends {
                    true => Attach::sender(text, "there"),
                    false => Attach::receiver(text, "there"),
                };
                attach.handle = handle;
                attach.initial_delivery_count = sends.then_some(first);
                self.attach(handle, &attach, None);
                frame(channel, |into| attach.write(into))
            }
            PeerFrame::AnswerAttach { accept, first } => {
                let Some(asked) = self.asked.pop_front() else { return Vec::new() };
                let free = (0..).find(|handle| !self.links.contains_key(handle)).unwrap_or(0);
                self.answer(channel, free, &asked, accept, first)
            }
            PeerFrame::SessionFlow { window, echo, bare } => {
                let mut flow = self.flow(window, echo);
                if bare && self.next_incoming_id == 1 {
                    flow.next_incoming_id = None;
                }
                frame(channel, |into| flow.write(into))
            }
            PeerFrame::LinkFlow { window, credit, drain, echo, bare } if alive || wild => {
                let count = link.map_or(0, |link| link.delivery_count);
                let flow = Flow {
                    handle: Some(handle),
                    delivery_count: (!bare).then_some(count),
                    link_credit: Some(credit),
                    drain: drain.then_some(true),
                    ..self.flow(window, echo)
                };
                frame(channel, |into| flow.write(into))
            }
            PeerFrame::Transfer { size, more, aborted, settled, repeats, form } => {
                if !wild && !link.is_some_and(|link| link.sends && alive && link.theirs.is_some()) {
                    return Vec::new();
                }
                let begun = link.and_then(|link| link.delivery);
                let id = begun.unwrap_or(self.next_delivery_id);
                if begun.is_none() {
                    self.next_delivery_id = id.wrapping_add(1);
                }
                *messages += 1;
                let part = Part {
                    handle,
                    delivery_id: (begun.is_none() || repeats).then_some(id),
                    format: (begun.is_none() || repeats).then_some(0),
                    settled,
                    more: more && !aborted,
                    aborted,
                    payload: (0..size).map(|index| (u64::from(index) * 3 + *messages) as u8).collect(),
                };
                if let Some(link) = self.links.get_mut(&handle) {
                    link.delivery = part.more.then_some(id);
                    if !part.more {
                        link.delivery_count = link.delivery_count.wrapping_add(1);
                    }
                }
                self.next_outgoing_id = self.next_outgoing_id.wrapping_add(1);
                transfer(channel, &part, form)
            }
            PeerFrame::Disposition { back, count, settled, outcome: number, sender } => {
                let first = self.after_last.wrapping_sub(back.into());
                let last = first.wrapping_add(u32::from(count) - 1);
                let disposition = Disposition {
                    role: if sender { Role::Sender } else { Role::Receiver },
                    first,
                    last: (count > 1).then_some(last),
                    settled,
                    outcome: outcome(number),
                };
                frame(channel, |into| disposition.write(into))
            }
            PeerFrame::Detach { closed, error: fails } if alive || wild => {
                if let Some(link) = self.links.get_mut(&handle) {
                    link.detach_sent = true;
                }
                frame(channel, |into| Detach { handle, closed, error: error(fails) }.write(into))
            }
            _ => Vec::new(),
        }
    }

    fn attach(&mut self, handle: u32, attach: &Attach, theirs: Option<u32>) {
        let link = PeerLink {
            name: attach.name.clone(),
            sends: attach.role == Role::Sender,
            theirs,
            delivery_count: attach.initial_delivery_count.unwrap_or(0),
            delivery: None,
            detach_sent: false,
        };
        self.links.insert(handle, link);
    }

    fn answer(&mut self, channel: u16, handle: u32, asked: &Attach, accept: bool, first: u32) -> Vec<u8> {
        let mut answer = Attach { handle, ..Attach::new(asked.name.clone(), asked.role.other()) };
        answer.initial_delivery_count = (answer.role == Role::Sender).then_some(first);
        if accept {
            (answer.source, answer.target) = (Some(Source::default()), Some(Target::default()));
        }
        self.attach(handle, &answer, Some(asked.handle));
        if let (Some(link), Some(count)) = (self.links.get_mut(&handle), asked.initial_delivery_count) {
            link.delivery_count = count;
        }
        // The detach of a link that is refused comes later.
        frame(channel, |into| answer.write(into))
    }

    pub(crate) fn read(&mut self, channel: u16, body: &Body) -> Vec<u8> {
        match body {
            Body::Attach(attach) => {
                let asked = self.links.values_mut().find(|link| {
                    link.theirs.is_none()
                        && link.name == attach.name
                        && link.sends == (attach.role == Role::Receiver)
                });
                match asked {
                    Some(link) => {
                        link.theirs = Some(attach.handle);
                        if !link.sends {
                            link.delivery_count = attach.initial_delivery_count.unwrap_or(0);
                        }
                    }
                    None => self.asked.push_back(attach.clone()),
                }
                Vec::new()
            }
            Body::Transfer(part) => {
                self.next_incoming_id = self.next_incoming_id.wrapping_add(1);
                if let Some(id) = part.delivery_id {
                    self.after_last = id.wrapping_add(1);
                    if let Some(link) = self.links.values_mut().find(|link| link.theirs == Some(part.handle))
                    {
                        link.delivery_count = link.delivery_count.wrapping_add(1);
                    }
                }
                Vec::new()
            }
            Body::Detach(detach) => {
                let found = self.links.iter().find(|(_, link)| link.theirs == Some(detach.handle));
                if let Some((&handle, link)) = found {
                    let answers = !link.detach_sent;
                    self.links.remove(&handle);
                    let answer = Detach { handle, closed: true, error: None };
                    return if answers { frame(channel, |into| answer.write(into)) } else { Vec::new() };
                }
                // Its attach has not been answered: both follow.
                let Some(at) = self.asked.iter().position(|asked| asked.handle == detach.handle) else {
                    return Vec::new();
                };
                let asked = self.asked.remove(at).expect("an attach");
                // After a wild attach, both sides may take the frames of the other for requests, without end.
                self.answers += 1;
                if self.answers > MAX_ANSWERS {
                    return Vec::new();
                }
                let free = (0..).find(|handle| !self.links.contains_key(handle)).unwrap_or(0);
                let answer = self.answer(channel, free, &asked, false, 0);
                self.links.remove(&free);
                let detach = Detach { handle: free, closed: true, error: None };
                [answer, frame(channel, |into| detach.write(into))].concat()
            }
            Body::Flow(flow) => {
                let receives = |link: &&mut PeerLink| !link.sends && link.theirs == flow.handle;
                let found = self.links.values_mut().find(receives);
                // A sender that returns its credit advances its count.
                if let (Some(link), Some(_), Some(count)) = (found, flow.handle, flow.delivery_count) {
                    link.delivery_count = count;
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }
}
