//! Deliveries of multiple frames that have begun and not ended, in both directions: counts the memory that
//! they hold, and detaches a link whose incoming delivery does not end in time.
//!
//! ```text
//! the peer ─ parts ─► incoming: until the last part comes, or nothing more for `time_to_finish`, or the last not
//!                               within ten times as long; pauses in which nothing is read do not count
//! the peer ◄─ parts ─ outgoing: until the peer's session window and its reading allow the rest
//! ```
//!
//! Only the peer can end these deliveries. A server with many connections can see here how much each of them
//! holds, and since when.

use std::collections::BTreeSet;
use std::time::Duration;

use super::event::Event;
use super::slots::LinkId;
use super::{Connection, Phase};
use crate::performative::{Error, condition};

/// Incomplete deliveries are checked at most this many times within `time_to_finish`.
const MAX_CHECKS: u32 = 16;

/// A whole delivery may take this many times as long as its next part, so that a byte now and then is not
/// enough.
const WHOLE_DELIVERY_FACTOR: u32 = 10;

/// The buffer of an incoming delivery grows by at most this much more than it needs at once, so that it takes
/// little more memory than has come.
const MAX_SPARE: usize = 256 * 1024;

/// The memory that a connection uses for its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffered {
    /// All bytes: undecoded input, output, and deliveries that have not ended. Buffers count with their
    /// capacity, and an empty one for output does, too.
    pub bytes: usize,
    /// The bytes of deliveries that have not ended, in either direction; incoming ones count with the capacity
    /// of their buffers.
    pub unended: usize,
    /// The time at which the oldest of those began, in the connection's time.
    pub oldest: Option<Duration>,
    /// The part of `bytes` that is output which waits for the peer to read it.
    pub output: usize,
    /// The time since which the peer has not read a tenth of it.
    pub output_since: Option<Duration>,
}

/// The deliveries that have begun and not ended.
#[derive(Default)]
pub(super) struct UnendedDeliveries {
    /// The bytes that have come of incoming ones.
    pub(super) incoming_bytes: usize,
    /// The capacity of their buffers.
    incoming_memory: usize,
    /// The bytes of outgoing ones.
    pub(super) outgoing_bytes: usize,
    /// The link with a delivery that was begun although no memory was left for it, because it is larger than
    /// the output buffer and its window was open. At most one link may.
    pub(super) over_limit: Option<LinkId>,
    /// The part of `incoming_memory` that the owner has been notified of.
    reported: usize,
    /// By the time at which they began. A link has at most one.
    begun: BTreeSet<(Duration, LinkId)>,
    /// None of them can be late before this.
    check_at: Option<Duration>,
}

impl UnendedDeliveries {
    pub(super) fn begin(&mut self, link: LinkId, now: Duration, time_to_finish: Duration) {
        self.begun.insert((now, link));
        self.check_at.get_or_insert(now + time_to_finish);
    }

    pub(super) fn end(&mut self, link: LinkId, began: Duration) {
        self.begun.remove(&(began, link));
        // A link only sends or only receives, so this was its delivery.
        self.over_limit = self.over_limit.filter(|over_limit| *over_limit != link);
        if self.begun.is_empty() {
            self.check_at = None;
        }
    }

    /// Appends a part to the bytes of an incoming delivery, of which at most `max` may come.
    pub(super) fn append_incoming(&mut self, bytes: &mut Vec<u8>, part: &[u8], max: u64) {
        let (before, needed) = (bytes.capacity(), bytes.len() + part.len());
        if needed > before {
            let spare = bytes.len().min(MAX_SPARE);
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            let wanted = (needed + spare).min(max.max(needed));
            bytes.reserve_exact(wanted - bytes.len());
        }
        bytes.extend_from_slice(part);
        self.incoming_bytes += part.len();
        self.incoming_memory += bytes.capacity() - before;
    }

    /// The bytes of an incoming delivery are dropped, or become a message.
    pub(super) fn forget_incoming(&mut self, bytes: &Vec<u8>) {
        self.incoming_bytes -= bytes.len();
        self.incoming_memory -= bytes.capacity();
    }

    /// The event for the owner, if incoming deliveries take enough more than at the last one.
    pub(super) fn notice(&mut self, step: usize) -> Option<Event> {
        self.reported = self.reported.min(self.incoming_memory);
        (self.incoming_memory - self.reported >= step).then(|| {
            self.reported = self.incoming_memory;
            Event::Unended
        })
    }

    pub(super) fn check_at(&self) -> Option<Duration> {
        self.check_at
    }
}

impl Connection {
    /// The memory that is used for the peer, and since when. [`Event::Unended`] reports how the output
    /// differs from this later.
    pub fn buffered(&mut self) -> Buffered {
        self.output.mark_known();
        let unended = self.unended.incoming_memory + self.unended.outgoing_bytes;
        let input = if self.input.is_empty() { 0 } else { self.input.capacity() };
        let waits = self.output.len() > 0;
        Buffered {
            bytes: unended + input + self.output.memory(),
            unended,
            oldest: self.unended.begun.first().map(|(began, _)| *began),
            output: if waits { self.output.memory() } else { 0 },
            output_since: waits.then(|| self.clock.stuck_since.unwrap_or(self.clock.now)),
        }
    }

    /// The event for the owner, if the output differs enough from what it was told. Output grows without any
    /// other event, for example by the answers to flows.
    #[inline]
    pub(super) fn notice_output(&mut self) -> Option<Event> {
        if self.phase != Phase::Open || !self.output.is_news(self.config.limits.incomplete_notice) {
            return None;
        }
        self.output.mark_known();
        Some(Event::Unended)
    }

    /// Detaches links whose incoming delivery has not ended in time, or of which no part has come for too
    /// long.
    pub(super) fn give_up_late_deliveries(&mut self, now: Duration) {
        if self.paused || self.unended.check_at.is_none_or(|at| now < at) {
            return;
        }
        let timeout = self.config.limits.time_to_finish;
        let (mut late, mut next) = (Vec::new(), None);
        for (_, link) in &self.unended.begun {
            let Some(incoming) = self.links.get(*link).and_then(|link| link.incoming.as_ref()) else {
                continue;
            };
            // Nothing could come while reading was paused, so deadlines move by exactly that time.
            let paused = now.saturating_sub(self.clock.reading_time());
            let for_all = timeout * WHOLE_DELIVERY_FACTOR;
            let spared = self.clock.spared_until + timeout;
            let ends = (incoming.began_reading + paused + for_all).max(spared);
            let by = (incoming.received_at + paused + timeout).max(spared).min(ends);
            if now >= by {
                let why = match now >= ends {
                    true => format!("it did not end within {for_all:?}"),
                    false => format!("no further part came within {timeout:?}"),
                };
                late.push((*link, incoming.id, why));
            } else {
                next = Some(next.map_or(by, |next: Duration| next.min(by)));
            }
        }
        self.unended.check_at = next.map(|next| next.max(now + timeout / MAX_CHECKS));
        for (link, delivery, why) in late {
            let description = format!("message {delivery} is incomplete and {why}; send it again");
            // Clients attach again and resend after this condition, which is what the description asks for.
            self.fail_link(link, Error::new(condition::DETACH_FORCED, description));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest message of the default limits.
    const MAX: usize = 1088 * 1024;

    #[test]
    fn an_incoming_delivery_counts_with_the_memory_that_it_takes_and_takes_little_more_than_has_come() {
        for part in [1_000, 5_000, 64_000, 300_000] {
            let (mut unended, mut bytes) = (UnendedDeliveries::default(), Vec::new());
            while bytes.len() + part <= MAX {
                unended.append_incoming(&mut bytes, &vec![7; part], MAX as u64);
                assert_eq!(
                    (unended.incoming_bytes, unended.incoming_memory),
                    (bytes.len(), bytes.capacity())
                );
                let most = (bytes.len() * 2).min(bytes.len() + MAX_SPARE).min(MAX);
                assert!(bytes.capacity() <= most, "{} bytes in {}", bytes.len(), bytes.capacity());
            }
            unended.forget_incoming(&bytes);
            assert_eq!((unended.incoming_bytes, unended.incoming_memory), (0, 0));
        }
    }
}
