//! Commits batches to the log: encodes frames, writes them together, syncs them unless the page cache is
//! enough, and makes them readable. `appender.rs` then hands them to waiting receivers.

use std::io;

use ephor_core::time::Timestamp;

use super::layout::{FRAME_HEADER, FrameHeader, Kind, MAX_NUMBER, Place, encode_reservation};
use super::log::invalid;
use super::log_time::is_from_the_future;
use super::retention::NewestEvent;
use super::segment::Frame;
use super::{Journal, Payload};

/// The sequence numbers that are reserved at a time when events are acknowledged before they are on disk. After a power
/// failure, the numbers jump by at most this.
const RESERVATION: u64 = 1 << 16;

/// The file is allocated this far ahead, since a file that does not grow is synced faster. It makes no difference for
/// large commits.
const ALLOCATE_AHEAD: u64 = 4 << 20;

impl Journal {
    /// Stores all batches or none. When it returns, they are on disk (or in the page cache, by the durability), and readers
    /// see them. Returns each batch as a frame.
    pub(crate) fn commit(&mut self, batches: &[(u32, Payload)], now: Timestamp) -> io::Result<Vec<Frame>> {
        let full = self.end - self.active.header.first_frame() >= self.config.segment_bytes;
        // Within a segment, the stamps of a partition never go back: the search by time relies on it.
        let went_back = self.newest.is_some_and(|newest| is_from_the_future(newest.stamp, now));
        if self.poisoned {
            let payloads = batches.iter().map(|(_, payload)| (FRAME_HEADER + payload.bytes.len()) as u64);
            self.roll_for(payloads.sum(), now)?;
        } else if full || went_back {
            self.roll(now)?;
        }
        let mut after = self.partitions.clone();
        let mut headers = Vec::with_capacity(batches.len() + 1);
        let mut position = self.end;
        let reservation = self.reservation(batches);
        let reserved_bytes = encode_reservation(&reservation);
        if !reservation.is_empty() {
            let header = FrameHeader {
                kind: Kind::Reservation,
                partition: 0,
                first: 0,
                count: 0,
                enqueued_at: now,
                commit: self.end,
                payload_length: reserved_bytes.len() as u32,
                payload_checksum: crc32c::crc32c(&reserved_bytes),
                validated: false,
            };
            headers.push((header, self.place(position)));
            position += header.frame_length();
            reservation.iter().for_each(|(partition, until)| after[*partition as usize].reserved = *until);
        }
        for (partition, payload) in batches {
            let state = &mut after[*partition as usize];
            // If the clock was set back a little, the stamp stays at that of the last event.
            let enqueued_at = match state.last {
                Some((_, last)) if !is_from_the_future(last, now) => last.max(now),
                _ => now,
            };
            let header = FrameHeader {
                kind: Kind::Events,
                partition: *partition,
                first: state.next,
                count: payload.count,
                enqueued_at,
                commit: self.end,
                payload_length: payload.bytes.len() as u32,
                payload_checksum: payload.checksum,
                // A `Batch` accepts only validated messages.
                validated: true,
            };
            state.next = header.end();
            state.last = Some((header.end() - 1, enqueued_at));
            headers.push((header, self.place(position)));
            position += header.frame_length();
        }
        if after.iter().any(|state| state.next.max(state.reserved) > MAX_NUMBER) {
            return Err(invalid(format!(
                "{} has used up its sequence numbers; delete the hub and create it again",
                self.log.folder
            )));
        }
        self.write(&headers, &reserved_bytes, batches, position, !reservation.is_empty())
            .inspect_err(|_| self.abandon())?;
        self.partitions = after;
        self.end = position;
        let stamps = headers.iter().map(|(header, _)| header.enqueued_at);
        self.newest = stamps.chain(self.newest.map(|newest| newest.stamp)).max().map(NewestEvent::at);
        self.active.publish(position, |index| {
            for (header, place) in &headers {
                match header.kind {
                    Kind::Events => index.add(header, place.position),
                    Kind::Reservation => {
                        reservation.iter().for_each(|(id, until)| index.reserve(*id, *until))
                    }
                }
            }
        });
        let events = headers.iter().filter(|(header, _)| header.kind == Kind::Events);
        Ok(events.zip(batches).map(|((header, _), (_, payload))| frame(header, payload)).collect())
    }

    fn write(
        &mut self,
        headers: &[(FrameHeader, Place)],
        reservation: &[u8],
        batches: &[(u32, Payload)],
        end: u64,
        must_sync: bool,
    ) -> io::Result<()> {
        let encoded: Vec<[u8; FRAME_HEADER]> =
            headers.iter().map(|(header, place)| header.encode(place)).collect();
        let mut parts: Vec<&[u8]> = Vec::with_capacity(2 * encoded.len());
        let first = (!reservation.is_empty()).then_some(reservation);
        let payloads = first.into_iter().chain(batches.iter().map(|(_, payload)| &payload.bytes[..]));
        encoded.iter().zip(payloads).for_each(|(header, payload)| parts.extend([&header[..], payload]));
        let small = end - self.end < ALLOCATE_AHEAD / 16;
        if end > self.room && small && self.config.segment_bytes >= ALLOCATE_AHEAD {
            // An optimization only: a disk without that much space may still have enough for the commit.
            let room = end + ALLOCATE_AHEAD;
            self.room = if self.active.file.reserve(room).is_ok() { room } else { end };
        }
        self.active.file.write_at(self.end, &parts)?;
        if self.config.sync || must_sync {
            self.active.file.sync()?;
        }
        Ok(())
    }

    /// Returns the numbers that must be reserved before these batches are acknowledged from the page cache.
    fn reservation(&self, batches: &[(u32, Payload)]) -> Vec<(u32, u64)> {
        if self.config.sync {
            return Vec::new();
        }
        let mut needed = vec![0; self.partitions.len()];
        batches
            .iter()
            .for_each(|(partition, payload)| needed[*partition as usize] += u64::from(payload.count));
        let short = self.partitions.iter().zip(&needed).enumerate();
        let short =
            short.filter(|(_, (state, needed))| **needed > 0 && state.next + **needed > state.reserved);
        short.map(|(id, (state, needed))| (id as u32, state.next + needed + RESERVATION)).collect()
    }

    fn place(&self, position: u64) -> Place {
        Place { identity: self.log.identity, segment: self.active.number, position }
    }

    /// Poisons the segment after a failed commit. Truncates its remains if possible; they are never overwritten.
    fn abandon(&mut self) {
        self.poisoned = true;
        let cut = self.active.file.set_len(self.end);
        if let Err(error) = cut {
            tracing::warn!(file = self.active.name, %error, "could not truncate a segment after a failed commit; the next commit begins a new segment");
        }
    }
}

fn frame(header: &FrameHeader, payload: &Payload) -> Frame {
    let FrameHeader { first, count, enqueued_at, validated, .. } = *header;
    Frame { first, count, enqueued_at, validated, payload: payload.bytes.clone() }
}
