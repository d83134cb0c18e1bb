//! Packs events into batches, up to the size that a link accepts.

use ephor_amqp::encode;
use ephor_amqp::format_codes::section;
use ephor_core::event::NewEvent;
use ephor_core::partition_key::InvalidKey;

use super::MESSAGE_FORMAT;
use crate::annotations::{PARTITION_KEY, with_partition_key};
use crate::message::{self, Unencodable};

/// A batch under construction: events that are sent as one message.
#[derive(Debug)]
pub struct Packer {
    bytes: Vec<u8>,
    /// The length of the envelope without events. A batch that was taken starts again from there.
    head: usize,
    key: Option<String>,
    limit: usize,
    events: usize,
    /// The buffer in which an event is encoded. It is reused, so that only the largest event allocates.
    event: Vec<u8>,
    keyed: Vec<u8>,
}

/// The result of adding an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Push {
    /// The event was added.
    Added,
    /// The batch is full, but the event would fit into an empty one: send this batch first.
    Full,
}

/// The reason why an event fits into no batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// AMQP cannot represent it.
    #[error(transparent)]
    Unencodable(#[from] Unencodable),
    /// Its partition key is too long.
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// It is too large, even alone.
    #[error("the event takes {size} bytes as a message; this hub takes at most {limit}")]
    TooLarge {
        /// The size of a batch with this event alone.
        size: usize,
        /// The maximum message size of the link.
        limit: usize,
    },
}

/// A message that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The message format in the transfer.
    pub format: u32,
    /// The message.
    pub bytes: Vec<u8>,
    /// The number of events.
    pub events: usize,
}

impl Packer {
    /// Creates an empty batch of at most `limit` bytes, sent with the partition key `key`.
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

    /// The number of events in the batch.
    pub fn len(&self) -> usize {
        self.events
    }

    /// True if the batch has no events.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// The current size in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an event, if there is room. It carries its own key, or else the batch's.
    pub fn push(&mut self, event: &NewEvent) -> Result<Push, Refused> {
        // An event whose body alone exceeds the limit is refused without encoding it.
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

    /// Returns the batch, and empties it so that it can be filled again; none if it was empty.
    pub fn take(&mut self) -> Option<Packed> {
        if self.is_empty() {
            return None;
        }
        let head = self.bytes[..self.head].to_vec();
        let bytes = std::mem::replace(&mut self.bytes, head);
        Some(Packed { format: MESSAGE_FORMAT, bytes, events: std::mem::take(&mut self.events) })
    }
}

/// The size of a data section with `length` bytes.
fn in_data(length: usize) -> usize {
    length + if length <= u8::MAX.into() { 5 } else { 8 }
}
