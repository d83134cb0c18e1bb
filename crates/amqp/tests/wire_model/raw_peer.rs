//! A peer that writes its frames by hand: it keeps its sessions, writes the frames that a test chooses, and
//! reads those of the other end, some of which it has to answer.

use std::collections::{BTreeMap, VecDeque};

use ephor_amqp::performative::{Begin, Close, End};

use crate::decoded_frames::{Body, Frame};
use crate::hand_written_frames::frame;
use crate::raw_session::{PeerLink, PeerSession, error};
use crate::raw_steps::PeerFrame;

/// The peer.
pub(crate) struct RawPeer {
    /// By the peer's channels.
    pub(crate) sessions: BTreeMap<u16, PeerSession>,
    /// A `begin` of the other end without an answer.
    asked: VecDeque<(u16, Box<Begin>)>,
    /// The first numbers of the other end.
    first_transfer: u32,
    first_delivery: u32,
    messages: u64,
    pub(crate) closed: bool,
}

impl RawPeer {
    pub(crate) fn new(first_transfer: u32, first_delivery: u32) -> Self {
        let (sessions, asked) = (BTreeMap::new(), VecDeque::new());
        Self { sessions, asked, first_transfer, first_delivery, messages: 0, closed: false }
    }

    /// The bytes of a frame; empty if it would violate the protocol and is not `wild`.
    pub(crate) fn write(&mut self, wild: bool, channel: u16, handle: u32, what: &PeerFrame) -> Vec<u8> {
        if self.closed {
            return Vec::new();
        }
        match *what {
            PeerFrame::Heartbeat => return frame(channel, |_| {}),
            PeerFrame::Close { error: fails } => {
                self.closed = true;
                return frame(0, |into| Close { error: error(fails) }.write(into));
            }
            PeerFrame::Begin { window, first } => return self.begin(wild, channel, None, window, first),
            PeerFrame::AnswerBegin { window, first } => {
                let free = (0..).find(|channel| !self.sessions.contains_key(channel)).unwrap_or(0);
                let Some((theirs, _)) = self.asked.pop_front() else { return Vec::new() };
                return self.begin(wild, free, Some(theirs), window, first);
            }
            _ => {}
        }
        // Half of the wild frames are for any link that there is.
        let any = wild && handle.is_multiple_of(2);
        let (channel, handle) = match wild && !any {
            true => (channel, handle),
            false => self.existing(channel, handle, what, any),
        };
        let known = self.sessions.get(&channel).is_some_and(|session| !session.end_sent);
        if !known && !wild {
            return Vec::new();
        }
        if let PeerFrame::End { error: fails } = *what {
            self.end(channel);
            return frame(channel, |into| End { error: error(fails) }.write(into));
        }
        let mut nothing = PeerSession::new(None, 0, 0, 0);
        let messages = &mut self.messages;
        let session = self.sessions.get_mut(&channel).unwrap_or(&mut nothing);
        session.write(wild, channel, handle, what, messages)
    }

    /// A session and a link that the frame can be for.
    fn existing(&self, channel: u16, handle: u32, what: &PeerFrame, any: bool) -> (u16, u32) {
        let mut sessions = self.sessions.iter();
        let Some((&channel, session)) = sessions.nth(usize::from(channel) % self.sessions.len().max(1))
        else {
            return (channel, handle);
        };
        let fits = |link: &PeerLink| match what {
            _ if any => true,
            PeerFrame::Transfer { .. } => link.sends,
            PeerFrame::LinkFlow { drain: true, .. } => !link.sends,
            _ => true,
        };
        if matches!(what, PeerFrame::Attach { .. }) && !any {
            return (channel, handle);
        }
        let links: Vec<u32> =
            session.links.iter().filter(|(_, link)| fits(link)).map(|(id, _)| *id).collect();
        (channel, links.get(handle as usize % links.len().max(1)).copied().unwrap_or(handle))
    }

    fn begin(&mut self, wild: bool, channel: u16, theirs: Option<u16>, window: u32, first: u32) -> Vec<u8> {
        if self.sessions.contains_key(&channel) && !wild {
            return Vec::new();
        }
        let session = PeerSession::new(theirs, first, self.first_transfer, self.first_delivery);
        self.sessions.entry(channel).or_insert(session);
        let begin = Begin {
            remote_channel: theirs,
            next_outgoing_id: first,
            incoming_window: window,
            outgoing_window: 100,
            handle_max: Some(7),
            ..Begin::default()
        };
        frame(channel, |into| begin.write(into))
    }

    fn end(&mut self, channel: u16) {
        if let Some(session) = self.sessions.get_mut(&channel) {
            session.end_sent = true;
        }
    }

    /// Handles a frame of the other end, and returns the answer that must follow at once.
    pub(crate) fn read(&mut self, written: &Frame) -> Vec<u8> {
        if self.closed {
            return Vec::new();
        }
        let by_theirs = self.sessions.iter_mut().find(|(_, session)| session.theirs == Some(written.channel));
        match (&written.body, by_theirs) {
            (Body::Begin(begin), _) => {
                match begin.remote_channel {
                    None => self.asked.push_back((written.channel, begin.clone())),
                    Some(ours) => {
                        if let Some(session) = self.sessions.get_mut(&ours) {
                            session.theirs = Some(written.channel);
                        }
                    }
                }
                Vec::new()
            }
            (Body::Close(_), _) => {
                self.closed = true;
                frame(0, |into| Close { error: None }.write(into))
            }
            (Body::End(_), Some((&channel, session))) => {
                let answers = !session.end_sent;
                self.sessions.remove(&channel);
                if answers { frame(channel, |into| End { error: None }.write(into)) } else { Vec::new() }
            }
            // Its begin has not been answered: both follow.
            (Body::End(_), None) => {
                let Some(at) = self.asked.iter().position(|(channel, _)| *channel == written.channel) else {
                    return Vec::new();
                };
                let (theirs, _) = self.asked.remove(at).expect("a begin");
                let free = (0..).find(|channel| !self.sessions.contains_key(channel)).unwrap_or(0);
                let begin = self.begin(false, free, Some(theirs), 1, 0);
                self.sessions.remove(&free);
                [begin, frame(free, |into| End { error: None }.write(into))].concat()
            }
            (body, Some((&channel, session))) if !session.end_sent => session.read(channel, body),
            _ => Vec::new(),
        }
    }
}
