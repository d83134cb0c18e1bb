//! Builds the messages that are sent, and reads delivered messages with the hub's annotations.

use fe2o3_amqp::Sender;
use fe2o3_amqp::link::SendError;
use fe2o3_amqp::link::delivery::Sendable;
use fe2o3_amqp_types::messaging::annotations::Annotations;
use fe2o3_amqp_types::messaging::message::__private::Serializable;
use fe2o3_amqp_types::messaging::{
    Batch, Body, Data, Message, MessageAnnotations, Outcome, SerializableBody,
};
use fe2o3_amqp_types::primitives::{Binary, Value};

use crate::client::Failure;

/// A message as it is received, whatever its body is.
pub type Event = Message<Body<Value>>;

/// The message format of a batch: each data section is a message.
pub const BATCH_FORMAT: u32 = 0x8001_3700;

/// An event with a text.
pub fn event(text: &str) -> Event {
    data(text.as_bytes().to_vec())
}

/// An event with bytes.
pub fn data(bytes: Vec<u8>) -> Event {
    let body = Body::Data(Batch::new(vec![Data(Binary::from(bytes))]));
    Message::builder().body(body).build()
}

/// The same event with a partition key.
pub fn keyed(event: Event, key: &str) -> Event {
    let annotations = MessageAnnotations::builder().insert("x-opt-partition-key", key).build();
    Message { message_annotations: Some(annotations), ..event }
}

/// Several events in one message, with the key that chooses their partition.
pub fn batch(events: &[Event], key: Option<&str>) -> Result<Sendable<Body<Value>>, Failure> {
    let encode = |event: &Event| serde_amqp::to_vec(&Serializable(event.clone()));
    let sections: Result<Vec<Data>, _> =
        events.iter().map(|event| encode(event).map(|bytes| Data(Binary::from(bytes)))).collect();
    let body = Body::Data(Batch::new(sections?));
    let mut message: Event = Message::builder().body(body).build();
    if let Some(key) = key {
        message = keyed(message, key);
    }
    Ok(Sendable::builder().message(message).message_format(BATCH_FORMAT).build())
}

/// Sends, and fails unless the hub accepted.
pub async fn send<T: SerializableBody>(
    sender: &mut Sender,
    sendable: impl Into<Sendable<T>>,
) -> Result<(), Failure> {
    match outcome(sender.send(sendable).await)? {
        Outcome::Accepted(_) => Ok(()),
        other => Err(format!("not accepted: {other:?}").into()),
    }
}

fn outcome(result: Result<Outcome, SendError>) -> Result<Outcome, Failure> {
    Ok(result?)
}

/// The annotations that the hub added to an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Stamp {
    pub sequence: i64,
    pub offset: String,
    pub enqueued_at: i64,
    pub key: Option<String>,
}

/// Reads what the hub wrote, each of its very type.
pub fn stamp(event: &Event) -> Result<Stamp, Failure> {
    let annotations = &event.message_annotations.as_ref().ok_or("an event without annotations")?.0;
    Ok(Stamp {
        sequence: match annotation(annotations, "x-opt-sequence-number")? {
            Value::Long(number) => *number,
            other => return Err(format!("a sequence number that is {other:?}").into()),
        },
        offset: match annotation(annotations, "x-opt-offset")? {
            Value::String(text) => text.clone(),
            other => return Err(format!("an offset that is {other:?}").into()),
        },
        enqueued_at: match annotation(annotations, "x-opt-enqueued-time")? {
            Value::Timestamp(time) => time.milliseconds(),
            other => return Err(format!("a time that is {other:?}").into()),
        },
        key: match annotation(annotations, "x-opt-partition-key") {
            Ok(Value::String(key)) => Some(key.clone()),
            Ok(other) => return Err(format!("a key that is {other:?}").into()),
            Err(_) => None,
        },
    })
}

pub fn annotation<'a>(annotations: &'a Annotations, name: &str) -> Result<&'a Value, Failure> {
    let key: &dyn fe2o3_amqp_types::messaging::annotations::AnnotationKey = &name;
    Ok(annotations.get(key).ok_or_else(|| format!("no {name}"))?)
}

pub fn sequences(events: &[Event]) -> Result<Vec<i64>, Failure> {
    events.iter().map(|event| Ok(stamp(event)?.sequence)).collect()
}

/// The bytes of an event whose body is data.
pub fn bytes(event: &Event) -> Result<Vec<u8>, Failure> {
    match &event.body {
        Body::Data(sections) => Ok(sections.iter().flat_map(|data| data.0.iter().copied()).collect()),
        other => Err(format!("a body that is {other:?}").into()),
    }
}

pub fn texts(events: &[Event]) -> Result<Vec<String>, Failure> {
    events.iter().map(|event| Ok(String::from_utf8(bytes(event)?)?)).collect()
}
