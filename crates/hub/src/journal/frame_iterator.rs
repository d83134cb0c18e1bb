//! Iterates over the frames of a segment, also of a damaged one.
//!
//! If there is no intact header, it searches for the next one. A header's checksum covers its position, so that other
//! bytes are never taken for a header.

use std::io;
use std::ops::Range;

use super::layout::{ALIGNMENT, FRAME_HEADER, FrameHeader, Kind, Place, aligned, decode_reservation};
use crate::files::File;

/// The bytes that are read at a time.
const CHUNK: u64 = 1 << 20;

/// One step of the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// An intact frame, and the numbers that it reserves if it is a reservation.
    Frame { position: u64, header: FrameHeader, reserved: Vec<(u32, u64)> },
    /// Bytes without an intact frame; with the header if that is intact.
    Unreadable { range: Range<u64>, header: Option<FrameHeader> },
}

/// A walk through a part of a segment.
pub(crate) struct Walk<'a> {
    file: &'a dyn File,
    identity: u64,
    segment: u64,
    position: u64,
    end: u64,
    chunk: Vec<u8>,
    chunk_start: u64,
    bytes_read: u64,
}

impl<'a> Walk<'a> {
    /// Walks over this range, which is within the file.
    pub(crate) fn new(file: &'a dyn File, identity: u64, segment: u64, range: Range<u64>) -> Self {
        let Range { start: position, end } = range;
        Self { file, identity, segment, position, end, chunk: Vec::new(), chunk_start: 0, bytes_read: 0 }
    }

    /// Returns the bytes that were read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Returns the next step; none if only zeros are left, or nothing.
    pub(crate) fn step(&mut self) -> io::Result<Option<Step>> {
        let start = self.position;
        if start >= self.end {
            return Ok(None);
        }
        let Some(header) = self.header(start)? else {
            return self.skip_unreadable(start);
        };
        let next = start + header.frame_length();
        if next > self.end {
            self.position = self.end;
            return Ok(Some(Step::Unreadable { range: start..self.end, header: Some(header) }));
        }
        self.position = next;
        let payload = self.bytes(start + FRAME_HEADER as u64, header.payload_length as usize)?;
        if crc32c::crc32c(payload) != header.payload_checksum {
            return Ok(Some(Step::Unreadable { range: start..next, header: Some(header) }));
        }
        let reserved = match header.kind {
            Kind::Events => Vec::new(),
            Kind::Reservation => decode_reservation(payload).collect(),
        };
        Ok(Some(Step::Frame { position: start, header, reserved }))
    }

    /// Searches for the next header.
    fn skip_unreadable(&mut self, start: u64) -> io::Result<Option<Step>> {
        let mut only_zeros = true;
        let mut position = start;
        while position < self.end {
            let here = self.bytes(position, ALIGNMENT)?;
            let zeros = here.iter().all(|byte| *byte == 0);
            only_zeros &= zeros;
            if !zeros
                && position > start
                && position.is_multiple_of(ALIGNMENT as u64)
                && self.header(position)?.is_some()
            {
                break;
            }
            position = aligned(position + 1);
        }
        self.position = position.min(self.end);
        let nothing_left = only_zeros && self.position == self.end;
        Ok((!nothing_left).then_some(Step::Unreadable { range: start..self.position, header: None }))
    }

    fn header(&mut self, position: u64) -> io::Result<Option<FrameHeader>> {
        let place = Place { identity: self.identity, segment: self.segment, position };
        Ok(FrameHeader::decode(self.bytes(position, FRAME_HEADER)?, &place))
    }

    /// Returns these bytes, or as many as there are before the end.
    fn bytes(&mut self, position: u64, length: usize) -> io::Result<&[u8]> {
        let end = self.end.min(position + length as u64);
        if position < self.chunk_start || end > self.chunk_start + self.chunk.len() as u64 {
            let known = position.checked_sub(self.chunk_start).map_or(self.chunk.len(), |from| from as usize);
            self.chunk.drain(..known.min(self.chunk.len()));
            let known = self.chunk.len();
            let wanted = CHUNK.max(end - position).min(self.end - position);
            self.chunk.resize(wanted as usize, 0);
            let read = self.file.read_at(position + known as u64, &mut self.chunk[known..])?;
            self.chunk.truncate(known + read);
            self.chunk_start = position;
            self.bytes_read += read as u64;
        }
        let from = (position - self.chunk_start) as usize;
        let to = ((end - self.chunk_start) as usize).min(self.chunk.len());
        Ok(self.chunk.get(from..to).unwrap_or_default())
    }
}
