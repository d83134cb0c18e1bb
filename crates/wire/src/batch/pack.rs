//! Putting events together, up to the size that a link takes.

use ephor_amqp::code::section;
use ephor_amqp::encode;
use ephor_core::event::NewEvent;

use super::MESSAGE_FORMAT;
use crate::annotations::{PARTITION_KEY, with_partition_key};
use crate::message::{self, Unencodable};

/// Events that are sent as one message.
#[derive(Debug)]
pub struct Packer {
    bytes: Vec<u8>,
    /// The envelope without events: what an emptied one begins with again.
    head: usize,
    key: Option<String>,
    limit: usize,
    events: usize,
    /// An event on its way in. Kept, so that only the largest one allocates.
    event: Vec<u8>,
    keyed: Vec<u8>,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Push {
    /// It is in.
    Added,
    /// It would fit into an empty batch: send this one first.
    Full,
}

/// An event that no batch takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// AMQP cannot say it.
    #[error(transparent)]
    Unencodable(#[from] Unencodable),
    /// It is too large, even alone.
    #[error("the event takes {size} bytes as a message; this hub takes at most {limit}")]
    TooLarge {
        /// What a batch with it alone would take.
        size: usize,
        /// What the link takes.
        limit: usize,
    },
}

/// A message that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// What the transfer says about the bytes.
    pub format: u32,
    /// The message.
    pub bytes: Vec<u8>,
    /// How many events it holds.
    pub events: usize,
}

impl Packer {
    /// An empty batch of at most `limit` bytes, sent under `key`.
    pub fn new(limit: usize, key: Option<&str>) -> Self {
        let mut bytes = Vec::new();
        if let Some(key) = key {
            encode::described(&mut bytes, section::MESSAGE_ANNOTATIONS.into());
            let map = encode::begin(&mut bytes);
            encode::symbol(&mut bytes, PARTITION_KEY);
            encode::string(&mut bytes, key);
            encode::end_map(&mut bytes, map, 1);
        }
        Self {
            head: bytes.len(),
            bytes,
            key: key.map(Into::into),
            limit: limit.min(encode::MAX_LENGTH),
            events: 0,
            event: Vec::new(),
            keyed: Vec::new(),
        }
    }

    /// How many events are in.
    pub fn len(&self) -> usize {
        self.events
    }

    /// Whether none is in.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// How many bytes it takes as it is.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an event, if there is room. It carries its own key, or else the batch's.
    pub fn push(&mut self, event: &NewEvent) -> Result<Push, Refused> {
        // What is larger than the limit many times over is not encoded to find out.
        let bound = message::size_bound(event);
        if event.body.len() > self.limit {
            return Err(Refused::TooLarge { size: bound, limit: self.limit });
        }
        self.event.clear();
        message::encode(event, &mut self.event)?;
        let encoded = match event.partition_key.as_deref().or(self.key.as_deref()) {
            None => &self.event,
            Some(key) => {
                self.keyed.clear();
                with_partition_key(&self.event, key, &mut self.keyed)
                    .map_err(|malformed| Unencodable { name: PARTITION_KEY.into(), why: malformed.what })?;
                &self.keyed
            }
        };
        let size = in_data(encoded.len());
        if self.head + size > self.limit {
            return Err(Refused::TooLarge { size: self.head + size, limit: self.limit });
        }
        if self.bytes.len() + size > self.limit {
            return Ok(Push::Full);
        }
        encode::described(&mut self.bytes, section::DATA.into());
        encode::binary(&mut self.bytes, encoded);
        self.events += 1;
        Ok(Push::Added)
    }

    /// The batch, which is empty and may be filled again then; none if it was empty.
    pub fn take(&mut self) -> Option<Packed> {
        if self.is_empty() {
            return None;
        }
        let head = self.bytes[..self.head].to_vec();
        let bytes = std::mem::replace(&mut self.bytes, head);
        Some(Packed { format: MESSAGE_FORMAT, bytes, events: std::mem::take(&mut self.events) })
    }
}

/// What so many bytes take as a data section.
fn in_data(length: usize) -> usize {
    length + if length <= u8::MAX.into() { 5 } else { 8 }
}
