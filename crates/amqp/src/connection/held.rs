//! Counts the memory that a connection uses for its peer, and detaches links whose deliveries do not end in
//! time.
//!
//! ```text
//! the peer ─ parts ─► incoming: until the last part comes, or nothing more for `time_to_finish`, or the last not
//!                               within ten times as long; pauses in which nothing is read do not count
//! the peer ◄─ parts ─ outgoing: until the peer lets the rest go, by its window and by reading
//! ```
//!
//! Only the peer can end these deliveries. An owner of many connections can see here how much each of them
//! holds, and since when.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Connection;
use super::event::Event;
use super::slots::LinkId;
use crate::performative::{Error, condition};

/// Incomplete deliveries are checked at most this many times within `time_to_finish`.
const LOOKS: u32 = 16;

/// A whole delivery may take this many times as long as its next part, so that a byte now and then is not
/// enough.
const TIMES_FOR_ALL: u32 = 10;

/// The memory that a connection uses for its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffered {
    /// All bytes: undecoded input, output, and deliveries that have not ended.
    pub bytes: usize,
    /// The bytes of deliveries that have not ended, in either direction.
    pub unended: usize,
    /// The time at which the oldest of those began, in the connection's time.
    pub oldest: Option<Duration>,
}

/// The deliveries that have begun and not ended.
#[derive(Default)]
pub(super) struct Held {
    /// The bytes of incoming ones.
    pub(super) incoming_bytes: usize,
    /// The bytes of outgoing ones.
    pub(super) outgoing_bytes: usize,
    /// The link with a delivery that was begun although no memory was left for it, because it is larger than
    /// the output buffer and its window was open. At most one link may.
    pub(super) beyond: Option<LinkId>,
    /// The part of `incoming_bytes` that the owner has been notified of.
    noticed: usize,
    /// By the time at which they began. A link has at most one.
    begun: BTreeSet<(Duration, LinkId)>,
    /// None of them can be late before this.
    look_at: Option<Duration>,
}

impl Held {
    pub(super) fn begin(&mut self, link: LinkId, now: Duration, time_to_finish: Duration) {
        self.begun.insert((now, link));
        self.look_at.get_or_insert(now + time_to_finish);
    }

    pub(super) fn end(&mut self, link: LinkId, began: Duration) {
        self.begun.remove(&(began, link));
        // A link only sends or only receives, so this was its delivery.
        self.beyond = self.beyond.filter(|beyond| *beyond != link);
        if self.begun.is_empty() {
            self.look_at = None;
        }
    }

    /// The event for the owner, if enough has come since the last one.
    pub(super) fn notice(&mut self, step: usize) -> Option<Event> {
        self.noticed = self.noticed.min(self.incoming_bytes);
        (self.incoming_bytes - self.noticed >= step).then(|| {
            self.noticed = self.incoming_bytes;
            Event::Unended
        })
    }

    pub(super) fn look_at(&self) -> Option<Duration> {
        self.look_at
    }
}

impl Connection {
    /// The memory that is used for the peer, and since when.
    pub fn buffered(&self) -> Buffered {
        let unended = self.held.incoming_bytes + self.held.outgoing_bytes;
        Buffered {
            bytes: unended + self.input.len() + self.output.len(),
            unended,
            oldest: self.held.begun.first().map(|(began, _)| *began),
        }
    }

    /// Detaches links whose incoming delivery has not ended in time, or of which no part has come for too
    /// long.
    pub(super) fn give_up_late_deliveries(&mut self, now: Duration) {
        if self.paused || self.held.look_at.is_none_or(|at| now < at) {
            return;
        }
        let patience = self.config.limits.time_to_finish;
        let (mut late, mut next) = (Vec::new(), None);
        for (_, link) in &self.held.begun {
            let Some(incoming) = self.links.get(*link).and_then(|link| link.incoming.as_ref()) else {
                continue;
            };
            // Nothing could come while reading was paused, so deadlines move by exactly that time.
            let paused = now.saturating_sub(self.clock.reading_time());
            let for_all = patience * TIMES_FOR_ALL;
            let spared = self.clock.spared_until + patience;
            let ends = (incoming.began_reading + paused + for_all).max(spared);
            let by = (incoming.heard_at + paused + patience).max(spared).min(ends);
            if now >= by {
                let why = match now >= ends {
                    true => format!("its end did not come within {for_all:?}"),
                    false => format!("nothing more of it came within {patience:?}"),
                };
                late.push((*link, incoming.id, why));
            } else {
                next = Some(next.map_or(by, |next: Duration| next.min(by)));
            }
        }
        self.held.look_at = next.map(|next| next.max(now + patience / LOOKS));
        for (link, delivery, why) in late {
            let description = format!("message {delivery} is incomplete and {why}; send it again");
            // Clients attach again and resend after this condition, which is what the description asks for.
            self.fail_link(link, Error::new(condition::DETACH_FORCED, description));
        }
    }
}
