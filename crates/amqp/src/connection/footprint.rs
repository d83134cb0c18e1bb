//! Counts the memory of session and link objects, in addition to the messages that they buffer.
//!
//! A peer chooses how many sessions it begins and which handles it uses, so an owner that serves
//! unauthenticated peers has to count that, too.

use super::Connection;
use super::link::Link;
use super::session::Handle;
use super::slots::LinkId;

/// The bytes of a slot for a handle; those of the peer's are the larger ones.
const HANDLE_BYTES: usize = size_of::<Handle>();
const _: () = assert!(size_of::<Option<LinkId>>() <= HANDLE_BYTES);

/// The approximate bytes of a channel in the tables of both directions.
const CHANNEL_BYTES: usize = 64;

/// Makes room for a handle, and returns by how many slots the table grew.
pub(super) fn grow<T: Clone>(handles: &mut Vec<T>, handle: u32, unused: T) -> usize {
    let (before, needed) = (handles.len(), handle as usize + 1);
    if before >= needed {
        return 0;
    }
    handles.resize(needed, unused);
    needed - before
}

impl Connection {
    /// The number of sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The approximate bytes of all sessions and links, without what they buffer. It takes time for each
    /// link, so that it is meant for peers that may have few.
    pub fn footprint(&self) -> usize {
        let names = self.links.values().map(|link: &Link| link.name.capacity()).sum::<usize>();
        self.sessions.memory()
            + self.sessions.len() * CHANNEL_BYTES
            + self.links.memory()
            + names
            + self.handle_slots * HANDLE_BYTES
    }
}
