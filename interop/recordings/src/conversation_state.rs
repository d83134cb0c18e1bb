//! The state of one conversation while it is replayed: its connection, its links and its deliveries.

use std::collections::{BTreeMap, BTreeSet};

use crate::connection::Connection;
use crate::recording::{Conversation, Direction, Frame};

/// A conversation that is played.
pub(crate) struct Playing {
    pub(crate) connection: Connection,
    pub(crate) host: String,
    /// Handles of the client by the name of the link.
    pub(crate) handles: BTreeMap<String, u32>,
    /// The kind of each link by its name.
    pub(crate) places: BTreeMap<String, &'static str>,
    /// The link of each delivery of the client.
    pub(crate) sent: BTreeMap<u32, String>,
    /// Our number of each delivery that the service numbered.
    pub(crate) numbers: BTreeMap<u32, u32>,
    /// The link of each delivery of the service.
    pub(crate) delivered: BTreeMap<u32, String>,
    /// Performatives and links for which an answer was missing: no further one is waited for.
    pub(crate) missing: BTreeSet<(String, String)>,
    /// Links to partitions, in place of a link to the hub.
    pub(crate) own_links: BTreeMap<String, u32>,
    /// The rest of a delivery goes to the same link.
    pub(crate) going_to: BTreeMap<String, u32>,
    /// The session's channel.
    pub(crate) channel: u16,
}

impl Playing {
    /// A conversation on this connection; `elsewhere` if the service does not know the namespace that it is for.
    pub(crate) fn new(connection: Connection, conversation: &Conversation, elsewhere: bool) -> Self {
        let open = conversation.frames.iter().find(|frame| frame.kind == "Open");
        let host = open.and_then(|open| open.body["Hostname"].as_str()).unwrap_or("localhost");
        let attaches = conversation
            .frames
            .iter()
            .filter(|frame| frame.kind == "Attach" && frame.direction == Direction::Client);
        Self {
            connection,
            host: host.to_owned(),
            handles: attaches.clone().map(|frame| (frame.link.clone(), handle(frame))).collect(),
            places: attaches.map(|frame| (frame.link.clone(), kind_of_link(frame, elsewhere))).collect(),
            sent: BTreeMap::new(),
            numbers: BTreeMap::new(),
            delivered: BTreeMap::new(),
            missing: BTreeSet::new(),
            own_links: BTreeMap::new(),
            going_to: BTreeMap::new(),
            channel: 0,
        }
    }

    pub(crate) fn place(&self, frame: &Frame, delivery: Option<(u32, bool)>) -> &'static str {
        match delivery {
            Some((id, true)) => self.place_of(self.delivered.get(&id)),
            Some((id, false)) => self.place_of(self.sent.get(&id)),
            None => self.place_of(Some(&frame.link)),
        }
    }

    pub(crate) fn place_of(&self, link: Option<&String>) -> &'static str {
        link.and_then(|link| self.places.get(link)).copied().unwrap_or("connection")
    }
}

fn handle(frame: &Frame) -> u32 {
    frame.body["Handle"].as_u64().and_then(|handle| u32::try_from(handle).ok()).unwrap_or(0)
}

fn kind_of_link(frame: &Frame, elsewhere: bool) -> &'static str {
    match frame.address.as_str() {
        "$cbs" if elsewhere => "$cbs of an unknown namespace",
        "$cbs" => "$cbs",
        address if address.ends_with("$management") => "$management",
        _ if frame.client_receives => "receiver",
        _ => "sender",
    }
}
