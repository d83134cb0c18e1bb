//! Unpacks a batch: finds each event and the partition key.

use std::ops::Range;

use ephor_amqp::format_codes::{self as code, section};
use ephor_amqp::{Malformed, Reader, Sections, Value};

use crate::annotations::PARTITION_KEY;

/// The reason why a partition key cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKeyType {
    /// The message is malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The annotation exists and is not text.
    #[error("the partition key is not a string")]
    NotText,
}

/// A batch message. Its events are located but not decoded.
#[derive(Clone, Debug)]
pub struct Envelope<'a> {
    message: &'a [u8],
    sections: Sections,
    key: Option<&'a str>,
}

impl<'a> Envelope<'a> {
    /// Finds the events of a batch.
    pub fn open(message: &'a [u8]) -> Result<Self, InvalidKeyType> {
        let sections = Sections::scan(message)?;
        if sections.data_sections() == 0 {
            return Err(Malformed::new(sections.body.whole.start, "a batch whose body is not data").into());
        }
        let key = partition_key(message)?;
        Ok(Self { message, sections, key })
    }

    /// The number of events: at least one.
    // No `is_empty`: a batch without events does not exist.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.sections.data_sections()
    }

    /// The events, each a complete message as it was sent.
    pub fn events(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.sections.data(self.message)
    }

    /// The ranges of the events in the message.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let start = self.message.as_ptr() as usize;
        self.events().map(move |event| {
            let at = event.as_ptr() as usize - start;
            at..at + event.len()
        })
    }

    /// The key on the envelope.
    pub fn key(&self) -> Option<&'a str> {
        self.key
    }

    /// The key that chooses the partition for the whole batch: the envelope's, or the first event's.
    pub fn routing_key(&self) -> Result<Option<&'a str>, InvalidKeyType> {
        match (self.key, self.events().next()) {
            (None, Some(event)) => partition_key(event),
            (key, _) => Ok(key),
        }
    }

    /// The key to store with one of the events: its own, or the envelope's.
    pub fn key_of(&self, event: &'a [u8]) -> Result<Option<&'a str>, InvalidKeyType> {
        Ok(partition_key(event)?.or(self.key))
    }
}

/// The partition key in a message's annotations. An empty key counts as none, as with the service.
///
/// Only the sections up to the annotations are read; most messages have none of them.
pub fn partition_key(message: &[u8]) -> Result<Option<&str>, InvalidKeyType> {
    let mut reader = Reader::new(message);
    while let Some(&[code::DESCRIBED, constructor, descriptor]) = message[reader.at()..].first_chunk() {
        if constructor != code::SMALL_ULONG {
            // A descriptor that is a symbol or an eight-byte ulong: rare, but legal.
            let found = Sections::scan(message)?.message_annotations;
            return found.map_or(Ok(None), |section| in_map(&message[..section.end], section.value));
        }
        match descriptor {
            section::HEADER | section::DELIVERY_ANNOTATIONS => {
                reader.skip()?;
            }
            section::MESSAGE_ANNOTATIONS => return in_map(message, reader.at() + 3),
            _ => break,
        }
    }
    Ok(None)
}

fn in_map(message: &[u8], at: usize) -> Result<Option<&str>, InvalidKeyType> {
    let mut items = Reader::starting(message, at).map()?;
    while let Some(key) = items.next()? {
        let value = items.next()?;
        if key.text() == Some(PARTITION_KEY) {
            return match value {
                None | Some(Value::Null) => Ok(None),
                Some(value) => match value.text() {
                    Some(text) => Ok(Some(text).filter(|text| !text.is_empty())),
                    None => Err(InvalidKeyType::NotText),
                },
            };
        }
    }
    Ok(None)
}
