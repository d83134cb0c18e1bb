//! Builds events and their properties from the types that programs use, and reads the common message fields back.

use std::ops::Index;
use std::slice;
use std::sync::Arc;

use bytes::Bytes;

use super::{Event, NewEvent, Properties, Property, Value};
use crate::time::Timestamp;

/// The AMQP name of the field that describes the format of the body, such as `application/json`.
const CONTENT_TYPE: &str = "content-type";
/// The AMQP name of the field that identifies a message.
const MESSAGE_ID: &str = "message-id";
/// The AMQP name of the field that links a message to another one.
const CORRELATION_ID: &str = "correlation-id";

impl Event {
    /// The format of the body, such as `application/json`, if the sender named it.
    pub fn content_type(&self) -> Option<&str> {
        self.system_properties.get(CONTENT_TYPE)?.as_text()
    }

    /// The sender's identifier of this message: a text, a number, bytes or a UUID.
    pub fn message_id(&self) -> Option<&Value> {
        self.system_properties.get(MESSAGE_ID)
    }

    /// The sender's reference to another message.
    pub fn correlation_id(&self) -> Option<&Value> {
        self.system_properties.get(CORRELATION_ID)
    }
}

impl NewEvent {
    /// Sets the partition key: events with the same key go to the same partition, in order.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.partition_key = Some(key.into());
        self
    }

    /// Adds a property beside the body. A property of the same name is replaced.
    #[must_use]
    pub fn with_property(mut self, name: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        self.properties = self.properties.with(name.into(), value.into());
        self
    }

    /// Describes the format of the body, such as `application/json`.
    #[must_use]
    pub fn with_content_type(self, content_type: &str) -> Self {
        self.with_system_property(CONTENT_TYPE, content_type)
    }

    /// Identifies this message, for those who look for duplicates.
    #[must_use]
    pub fn with_message_id(self, id: impl Into<Value>) -> Self {
        self.with_system_property(MESSAGE_ID, id)
    }

    /// Refers to another message.
    #[must_use]
    pub fn with_correlation_id(self, id: impl Into<Value>) -> Self {
        self.with_system_property(CORRELATION_ID, id)
    }

    fn with_system_property(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.system_properties = self.system_properties.with(name.into(), value.into());
        self
    }
}

impl<B: Into<Bytes>> From<B> for NewEvent {
    fn from(body: B) -> Self {
        Self::new(body)
    }
}

impl Properties {
    /// The number of properties.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |pairs| pairs.len())
    }

    fn with(&self, name: Arc<str>, value: Value) -> Self {
        let others = self.iter().filter(|(other, _)| *other != name).cloned();
        others.chain([(name.clone(), value)]).collect()
    }
}

impl<'a> IntoIterator for &'a Properties {
    type Item = &'a Property;
    type IntoIter = slice::Iter<'a, Property>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.as_deref().unwrap_or_default().iter()
    }
}

impl Index<&str> for Properties {
    type Output = Value;

    /// The value under this name, or [`Value::Null`] if there is none.
    fn index(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&Value::Null)
    }
}

impl Value {
    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Declares conversions into a [`Value`]: type, and how it becomes one.
macro_rules! into_value {
    ($($type:ty: $make:expr,)+) => {
        $(impl From<$type> for Value {
            fn from(value: $type) -> Self {
                ($make)(value)
            }
        })+
    };
}

into_value! {
    bool: Value::Bool,
    i8: |number| Value::Int(i64::from(number)),
    i16: |number| Value::Int(i64::from(number)),
    i32: |number| Value::Int(i64::from(number)),
    i64: Value::Int,
    u8: |number| Value::UInt(u64::from(number)),
    u16: |number| Value::UInt(u64::from(number)),
    u32: |number| Value::UInt(u64::from(number)),
    u64: Value::UInt,
    f32: |number| Value::Float(f64::from(number)),
    f64: Value::Float,
    &str: |text| Value::Text(Arc::from(text)),
    String: |text| Value::Text(Arc::from(text)),
    Arc<str>: Value::Text,
    Bytes: Value::Bytes,
    Vec<u8>: |bytes| Value::Bytes(Bytes::from(bytes)),
    Timestamp: Value::Time,
    std::time::SystemTime: |time| Value::Time(Timestamp::from(time)),
}

impl<V: Into<Value>> From<Option<V>> for Value {
    /// [`Value::Null`] if there is none.
    fn from(value: Option<V>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::position::{Offset, SequenceNumber};

    #[test]
    fn an_event_is_built_step_by_step() {
        let event = NewEvent::from("door")
            .with_key("home-7")
            .with_property("level", 3)
            .with_property("kind", "motion")
            .with_property("level", 4_u64)
            .with_content_type("text/plain")
            .with_message_id(String::from("m-1"))
            .with_correlation_id(7_u64);
        assert_eq!(&event.body[..], b"door");
        assert_eq!(event.partition_key.as_deref(), Some("home-7"));
        assert_eq!(event.properties.len(), 2);
        assert_eq!(event.properties["level"], Value::UInt(4));
        assert_eq!(event.properties["kind"], Value::from("motion"));
        assert_eq!(event.properties["colour"], Value::Null);
        let names: Vec<&str> = event.properties.into_iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["kind", "level"]);
        let received = Event {
            sequence: SequenceNumber(0),
            offset: Offset::number(0),
            enqueued_at: Timestamp(0),
            partition_key: event.partition_key,
            body: event.body,
            properties: event.properties,
            system_properties: event.system_properties,
        };
        assert_eq!(received.content_type(), Some("text/plain"));
        assert_eq!(received.message_id(), Some(&Value::from("m-1")));
        assert_eq!(received.correlation_id(), Some(&Value::UInt(7)));
    }

    #[test]
    fn values_come_from_the_types_of_programs() {
        assert_eq!(Value::from(-3), Value::Int(-3));
        assert_eq!(Value::from(3_u32), Value::UInt(3));
        assert_eq!(Value::from(0.5_f32), Value::Float(0.5));
        assert_eq!(Value::from(vec![1, 2]), Value::Bytes(Bytes::from_static(&[1, 2])));
        assert_eq!(Value::from(UNIX_EPOCH + Duration::from_millis(7)), Value::Time(Timestamp(7)));
        assert_eq!(Value::from(None::<bool>), Value::Null);
        assert_eq!(Value::from(Some("x")).as_text(), Some("x"));
        assert_eq!((Properties::default().len(), Value::from(true).as_text()), (0, None));
        assert_eq!((&Properties::default()).into_iter().count(), 0);
    }
}
