//! Event bodies that identify their event, and in which every changed bit is detected.

use bytes::Bytes;
use ephor_core::event::Event;

use super::Checked;

/// Which event it is: no two that were ever sent have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    /// The process run of a hub: one that is deleted and made again has another.
    pub hub: u32,
    pub partition: u32,
    /// Counted over all partitions of the hub, in the order of sending.
    pub batch: u32,
    pub index: u32,
}

/// The bytes at the start of a body; the checksum of all comes last.
const HEADER: usize = 16;
const CHECKSUM: usize = 4;

/// The shortest body.
pub const MIN_LENGTH: usize = HEADER + CHECKSUM;

impl EventId {
    /// The body of this event; the length is at least [`MIN_LENGTH`].
    pub fn body(self, length: usize) -> Bytes {
        let mut body = Vec::with_capacity(length);
        for field in [self.hub, self.partition, self.batch, self.index] {
            body.extend_from_slice(&field.to_le_bytes());
        }
        // Bytes that belong to this event alone, and zeros as logs are full of.
        let seed = self.batch.wrapping_mul(31).wrapping_add(self.index) as u8;
        let filler = (HEADER..length - CHECKSUM).map(|at| if at % 3 == 0 { 0 } else { seed ^ at as u8 });
        body.extend(filler);
        let checksum = crc32c::crc32c(&body);
        body.extend_from_slice(&checksum.to_le_bytes());
        Bytes::from(body)
    }

    /// Which event this is, if it is whole.
    pub fn of(event: &Event) -> Checked<EventId> {
        let number = event.sequence.0;
        let split = event.body.len().checked_sub(CHECKSUM).filter(|at| *at >= HEADER);
        let Some((content, checksum)) = split.map(|at| event.body.split_at(at)) else {
            return Err(format!("the event with number {number} has a body of {} bytes", event.body.len()));
        };
        if crc32c::crc32c(content).to_le_bytes() != checksum {
            return Err(format!("the body of the event with number {number} has changed"));
        }
        let mut fields = content
            .chunks_exact(4)
            .map(|field| field.first_chunk().map_or(0, |field| u32::from_le_bytes(*field)));
        let mut next = || fields.next().unwrap_or(0);
        Ok(EventId { hub: next(), partition: next(), batch: next(), index: next() })
    }
}
