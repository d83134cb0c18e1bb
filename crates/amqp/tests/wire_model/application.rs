//! Carries out the commands of an application (listed in `steps.rs`), which name sessions and links by
//! numbers; and compares the tables and the memory of the connection with the model.

use ephor_amqp::connection::{LinkId, SessionId};
use ephor_amqp::performative::{Attach, Error, Outcome, ReceiverSettles, Role, SenderSettles};

use crate::endpoint::Endpoint;
use crate::model::{LinkState, Message};
use crate::steps::Command;

fn error() -> Error {
    Error::new("amqp:internal-error", "because")
}

fn outcome(number: u8) -> Outcome {
    match number {
        0 => Outcome::Released,
        1 => Outcome::rejected(Error::new("amqp:not-allowed", "no")),
        2 => Outcome::Modified { delivery_failed: true, undeliverable_here: false },
        _ => Outcome::Accepted,
    }
}

/// A message that no other one is equal to.
fn message(number: u64, size: usize, settled: bool) -> Message {
    let mut payload: Vec<u8> = number.to_be_bytes().into_iter().cycle().take(size).collect();
    for (index, byte) in payload.iter_mut().enumerate().skip(8) {
        *byte = byte.wrapping_mul(31).wrapping_add(index as u8).wrapping_add((index >> 8) as u8);
    }
    Message { settled, format: (number % 3) as u32, payload }
}

impl Endpoint {
    fn pick_session(&self, number: u8) -> Option<SessionId> {
        let sessions = &self.model.sessions;
        sessions.keys().nth(usize::from(number) % sessions.len().max(1)).copied()
    }

    fn pick_link(&self, number: u8, role: Option<Role>) -> Option<LinkId> {
        let links = self.model.links.iter().filter(|(_, link)| role.is_none_or(|role| role == link.role));
        let links: Vec<LinkId> = links.map(|(id, _)| *id).collect();
        links.get(usize::from(number) % links.len().max(1)).copied()
    }

    /// Gives a command; `side` becomes a part of the names of links, and `messages` counts all messages.
    pub(crate) fn command(&mut self, side: usize, command: &Command, messages: &mut u64) {
        let receiver = |link| self.pick_link(link, Some(Role::Receiver));
        let sender = |link| self.pick_link(link, Some(Role::Sender));
        match *command {
            Command::Begin => self.begin(),
            Command::Attach { session, sends, name } => self.attach_named(side, session, sends, name),
            Command::Answer { request, accept } => {
                if !self.requests.is_empty() {
                    let request = self.requests.remove(usize::from(request) % self.requests.len());
                    self.answer(&request, accept);
                }
            }
            Command::Grant { link, credit } => {
                if let Some(link) = receiver(link) {
                    self.grant(link, credit);
                }
            }
            Command::Drain { link } => {
                if let Some(link) = receiver(link) {
                    self.drain(link);
                }
            }
            Command::Drained { link } => {
                if let Some(link) = sender(link) {
                    self.drained(link);
                }
            }
            Command::Send { link, count, size, settled } => {
                let Some(link) = sender(link) else { return };
                for _ in 0..count {
                    *messages += 1;
                    self.enqueue(link, message(*messages, size.into(), settled));
                }
            }
            Command::SendWoken => self.send_woken(),
            Command::Settle { link, skip, most, outcome: number } => {
                if let Some(link) = receiver(link) {
                    self.settle(link, skip.into(), most.into(), &outcome(number));
                }
            }
            Command::Detach { link, error: fails } => {
                if let Some(link) = self.pick_link(link, None) {
                    self.detach(link, fails.then(error));
                }
            }
            Command::End { session, error: fails } => {
                if let Some(session) = self.pick_session(session) {
                    self.end(session, fails.then(error));
                }
            }
            Command::Close { error: fails } => self.close(fails.then(error)),
            Command::Pause { paused } => self.pause(paused),
            Command::ReleaseMemory => self.connection.release_memory(),
        }
    }

    fn attach_named(&mut self, side: usize, session: u8, sends: bool, name: u8) {
        let Some(session) = self.pick_session(session) else { return };
        let text = format!("link-{name}-{side}");
        let role = if sends { Role::Sender } else { Role::Receiver };
        // A name may be used again once its link was detached, even if the peer has not agreed yet.
        let taken = self.model.links.values().any(|link| {
            link.session == session
                && (&link.name, link.role) == (&text, role)
                && !matches!(link.state, LinkState::Detaching { .. })
        });
        if taken {
            return;
        }
        let mut attach = match sends {
            true => Attach::sender(text, "there"),
            false => Attach::receiver(text, "there"),
        };
        let modes = [SenderSettles::Unsettled, SenderSettles::Settled, SenderSettles::Mixed];
        attach.sender_settles = modes.get(usize::from(name)).copied();
        attach.receiver_settles = Some(ReceiverSettles::First);
        self.attach(session, attach);
    }

    pub(crate) fn pause(&mut self, paused: bool) {
        self.paused = paused;
        self.connection.pause_reading(paused);
    }

    /// The tables and the memory of the connection are those of the model.
    pub(crate) fn check_limits(&mut self) {
        let (model, connection) = (&self.model, &mut self.connection);
        assert_eq!(connection.sessions(), model.sessions.len(), "the number of sessions");
        assert_eq!(connection.links(), model.links.len(), "the number of links");
        let (sessions, links) = model.held_elsewhere;
        assert_eq!(model.shared.sessions.used(), model.sessions.len() + sessions, "shared sessions");
        assert_eq!(model.shared.links.used(), model.links.len() + links, "shared links");
        let incomplete = model.incomplete();
        let unfinished: usize = model.unfinished().map(|outgoing| outgoing.payload.len()).sum();
        let buffered = connection.buffered();
        assert!(
            buffered.unended <= incomplete * 2 + unfinished,
            "{buffered:?}, of which {incomplete} have come and {unfinished} are sent"
        );
        let none = model.links.values().all(|link| link.incoming.is_none()) && unfinished == 0;
        assert!(!none || buffered.oldest.is_none(), "nothing is unended, and {buffered:?}");
    }
}
