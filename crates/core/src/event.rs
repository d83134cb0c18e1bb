//! Events, as they are sent and as they reach a processor.

mod conversions;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::position::{Offset, SequenceNumber};
use crate::time::Timestamp;

/// An event. Cloning it copies no bytes.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// Its number in the partition.
    pub sequence: SequenceNumber,
    /// Its offset in the log.
    pub offset: Offset,
    /// The time at which the hub stored it, by the hub's clock.
    pub enqueued_at: Timestamp,
    /// The key that chose its partition, if it was sent with one.
    pub partition_key: Option<Arc<str>>,
    /// The payload.
    pub body: Bytes,
    /// The application properties that the sender set.
    pub properties: Properties,
    /// The system properties that the sender set: `content-type`, `message-id`, `correlation-id`
    /// and the other fields of an AMQP message by their AMQP names, and annotations. Those that the
    /// hub itself adds are the fields above.
    pub system_properties: Properties,
}

impl Event {
    /// The event that a hub stores when it gets `event`, for authors of a source and for tests.
    #[inline]
    pub fn stored(sequence: SequenceNumber, offset: Offset, enqueued_at: Timestamp, event: NewEvent) -> Self {
        let NewEvent { body, partition_key, properties, system_properties } = event;
        Self { sequence, offset, enqueued_at, partition_key, body, properties, system_properties }
    }

    /// The body as text, if it is UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.body).ok()
    }

    /// The approximate memory that the event holds, in bytes: the unit of all byte limits.
    pub fn size(&self) -> usize {
        self.body.len()
            + self.partition_key.as_ref().map_or(0, |key| key.len())
            + self.properties.size()
            + self.system_properties.size()
    }
}

impl fmt::Debug for Event {
    /// Bodies are the user's data: only their length is printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:?} {:?} {} bytes)", self.sequence, self.offset, self.body.len())
    }
}

/// An event on its way into a hub.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewEvent {
    /// The payload.
    pub body: Bytes,
    /// The partition key. It chooses the partition, unless the sender names one.
    pub partition_key: Option<Arc<str>>,
    /// The application properties.
    pub properties: Properties,
    /// The system properties; see [`Event::system_properties`].
    pub system_properties: Properties,
}

impl NewEvent {
    /// An event with this body, without key and properties.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }
}

/// Names and values that travel beside the body.
#[derive(Clone, Default, PartialEq)]
pub struct Properties(Option<Arc<[Property]>>);

/// A name and its value.
pub type Property = (Arc<str>, Value);

impl Properties {
    /// The value under this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter().find(|(key, _)| &**key == name).map(|(_, value)| value)
    }

    /// All pairs, in the order in which they were sent.
    pub fn iter(&self) -> impl Iterator<Item = &Property> {
        self.0.iter().flat_map(|pairs| pairs.iter())
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn size(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.size()).sum()
    }
}

impl<N: Into<Arc<str>>, V: Into<Value>> FromIterator<(N, V)> for Properties {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let pairs: Arc<[_]> = pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self((!pairs.is_empty()).then_some(pairs))
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(name, value)| (name, value))).finish()
    }
}

/// A property's value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// A signed integer of any width.
    Int(i64),
    /// An unsigned integer of any width.
    UInt(u64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(Arc<str>),
    /// Bytes.
    Bytes(Bytes),
    /// A time.
    Time(Timestamp),
    /// A universally unique identifier.
    Uuid([u8; 16]),
    /// A value of any other type, encoded as AMQP 1.0 writes it.
    Encoded(Bytes),
}

impl Value {
    fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) | Self::Encoded(bytes) => bytes.len(),
            Self::Uuid(bytes) => bytes.len(),
            _ => size_of::<u64>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(body: &'static [u8]) -> Event {
        Event {
            sequence: SequenceNumber(4),
            offset: Offset::number(40),
            enqueued_at: Timestamp(1),
            partition_key: Some("home-7".into()),
            body: Bytes::from_static(body),
            properties: [("kind", Value::from("motion")), ("level", Value::from(3))].into_iter().collect(),
            system_properties: [("content-type", "text/plain")].into_iter().collect(),
        }
    }

    #[test]
    fn an_event_knows_its_size_and_hides_its_body() {
        let event = event(b"secret");
        assert_eq!(event.size(), 6 + 6 + (4 + 6) + (5 + 8) + (12 + 10));
        assert_eq!(format!("{event:?}"), "Event(#4 @40 6 bytes)");
        assert_eq!(event.text(), Some("secret"));
        assert_eq!(super::Event { body: Bytes::from_static(&[0xff]), ..event }.text(), None);
        assert_eq!(Value::Bytes(Bytes::from_static(b"abc")).size(), 3);
        assert_eq!(Value::Encoded(Bytes::from_static(b"ab")).size(), 2);
        assert_eq!(Value::Uuid([7; 16]).size(), 16);
    }

    #[test]
    fn properties_are_found_by_name() {
        let event = event(b"");
        assert_eq!(event.properties.get("kind"), Some(&Value::from("motion")));
        assert_eq!(event.properties.get("Kind"), None);
        assert!(!event.properties.is_empty());
        assert!(Properties::default().is_empty());
        assert!(Properties::from_iter(Vec::<(&str, bool)>::new()).is_empty());
        assert_eq!(format!("{:?}", Properties::from_iter([("on", true)])), "{\"on\": Bool(true)}");
    }
}
