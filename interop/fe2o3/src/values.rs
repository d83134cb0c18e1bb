//! Interoperability tests that send every kind of value (sizes, properties, bodies) and receive it
//! unchanged; one that is too large, or is no message, is refused.

use fe2o3_amqp::link::SendError;
use fe2o3_amqp_types::messaging::{
    AmqpSequence, AmqpValue, ApplicationProperties, Batch, Body, Data, Header, Message, MessageId, Outcome,
    Properties,
};
use fe2o3_amqp_types::primitives::{
    Binary, Dec32, Dec64, Dec128, OrderedMap, SimpleValue, Symbol, Timestamp, Uuid, Value,
};

use crate::client::{Client, Failure, equal};
use crate::events::{Event, batch, bytes, data, event, send};
use crate::reader::{Reading, read};
use crate::refusals::{describe, is_refused};
use crate::{Operation, operation};

const HUB: &str = "fe2o3-values";
const PARTITION: &str = "fe2o3-values/Partitions/0";
/// Of the 1,048,576 that the link takes, with room for the rest of the message.
const MEGABYTE: usize = 1_048_000;

/// The same events after a way through the hub.
async fn through(events: &[Event]) -> Result<Vec<Event>, Failure> {
    let mut client = Client::open(HUB).await?;
    let before = client.last(HUB, "0").await?;
    let mut sender = client.sender(PARTITION).await?;
    for event in events {
        send(&mut sender, event.clone()).await?;
    }
    send(&mut sender, batch(events, None)?).await?;
    sender.close().await?;
    client.close().await;
    let start = format!("x-opt-sequence-number > '{before}'");
    read(Reading::of(HUB).after(&start), 2 * events.len()).await
}

async fn megabyte() -> Result<(), Failure> {
    let body: Vec<u8> = (0..MEGABYTE).map(|index| (index * 7 % 251) as u8).collect();
    for found in through(&[data(body.clone())]).await? {
        equal(bytes(&found)? == body, true, "same bytes")?;
    }
    Ok(())
}

async fn too_large() -> Result<(), Failure> {
    let mut client = Client::open(HUB).await?;
    let before = client.last(HUB, "0").await?;
    let mut sender = client.sender(PARTITION).await?;
    equal(sender.max_message_size(), Some(1_048_576), "the limit of the link")?;
    // This library keeps the limit by itself.
    match sender.send(data(vec![0; 1_048_577])).await {
        Err(SendError::MessageSizeExceeded(_)) => {}
        other => return Err(format!("sent what is too large: {other:?}").into()),
    }
    send(&mut sender, event("after it")).await?;
    sender.close().await?;
    equal(client.last(HUB, "0").await?, before + 1, "last")?;
    client.close().await;
    Ok(())
}

async fn properties() -> Result<(), Failure> {
    let sent = ApplicationProperties::builder()
        .insert("nothing", SimpleValue::Null)
        .insert("true", true)
        .insert("false", false)
        .insert("ubyte", u8::MAX)
        .insert("ushort", u16::MAX)
        .insert("uint", u32::MAX)
        .insert("uint of one byte", 7_u32)
        .insert("ulong", u64::MAX)
        .insert("byte", i8::MIN)
        .insert("short", i16::MIN)
        .insert("int", i32::MIN)
        .insert("long", i64::MIN)
        .insert("float", 0.1_f32)
        .insert("double", 0.1_f64)
        .insert("decimal32", SimpleValue::Decimal32(Dec32::from([1, 2, 3, 4])))
        .insert("decimal64", SimpleValue::Decimal64(Dec64::from([1, 2, 3, 4, 5, 6, 7, 8])))
        .insert("decimal128", SimpleValue::Decimal128(Dec128::from([9; 16])))
        .insert("char", 'ü')
        .insert("timestamp", Timestamp::from_milliseconds(1_709_209_815_250))
        .insert("uuid", Uuid::from([7; 16]))
        .insert("binary", SimpleValue::Binary(Binary::from(vec![0, 255])))
        .insert("string", "grün")
        .insert("empty", "")
        .insert("long string", "x".repeat(1000))
        .insert("symbol", Symbol::from("a-symbol"))
        .build();
    let typed = Message { application_properties: Some(sent.clone()), ..event("typed") };
    for found in through(&[typed]).await? {
        let found = found.application_properties.ok_or("no properties")?;
        equal(found.0.len(), sent.0.len(), "number of properties")?;
        for (name, value) in sent.0.iter() {
            equal(found.0.get(name), Some(value), name)?;
        }
    }
    Ok(())
}

async fn system_properties() -> Result<(), Failure> {
    let full = Properties {
        message_id: Some(MessageId::Uuid(Uuid::from([3; 16]))),
        user_id: Some(Binary::from(vec![1, 2])),
        to: Some("to".to_owned()),
        subject: Some("subject".to_owned()),
        reply_to: Some("reply".to_owned()),
        correlation_id: Some(MessageId::Ulong(u64::MAX)),
        content_type: Some(Symbol::from("text/x-test")),
        content_encoding: Some(Symbol::from("identity")),
        absolute_expiry_time: Some(Timestamp::from_milliseconds(1)),
        creation_time: Some(Timestamp::from_milliseconds(2)),
        group_id: Some("group".to_owned()),
        group_sequence: Some(3),
        reply_to_group_id: Some("reply group".to_owned()),
    };
    let header = Header { durable: true, ..Header::default() };
    let described = Message { header: Some(header), properties: Some(full.clone()), ..event("described") };
    for found in through(&[described]).await? {
        equal(found.properties, Some(full.clone()), "properties")?;
        // As with the service, it is for the hub alone.
        equal(found.header.is_none(), true, "no header")?;
        let annotations = found.message_annotations.ok_or("no annotations")?.0;
        // Sequence number and its epoch, offset, and enqueued time.
        equal(annotations.len(), 4, "annotations")?;
    }
    Ok(())
}

async fn kinds_of_bodies() -> Result<(), Failure> {
    let section = |bytes: &[u8]| Data(Binary::from(bytes.to_vec()));
    let mut map = OrderedMap::new();
    map.insert(Value::from("a"), Value::List(vec![Value::Int(1), Value::Bool(true), Value::Null]));
    let bodies: Vec<Body<Value>> = vec![
        Body::Data(Batch::new(vec![section(b"one"), section(b""), section(b"three")])),
        Body::Data(Batch::new(vec![section(b"")])),
        Body::Value(AmqpValue(Value::Map(map))),
        Body::Value(AmqpValue(Value::from("text"))),
        Body::Value(AmqpValue(Value::Null)),
        Body::Sequence(Batch::new(vec![
            AmqpSequence(vec![Value::Int(1), Value::from("two")]),
            AmqpSequence(vec![Value::from(3.5_f64)]),
        ])),
    ];
    let events: Vec<Event> =
        bodies.iter().map(|body| Message::builder().body(body.clone()).build()).collect();
    let found: Vec<Body<Value>> = through(&events).await?.into_iter().map(|event| event.body).collect();
    for (found, sent) in found.iter().zip(bodies.iter().chain(&bodies)) {
        equal(found, sent, "body")?;
    }
    Ok(())
}

/// Sends what this library does not check by itself: the hub refuses it and keeps the link.
async fn batch_of_nonsense() -> Result<(), Failure> {
    let mut client = Client::open(HUB).await?;
    let before = client.last(HUB, "0").await?;
    let mut sender = client.sender(PARTITION).await?;
    let mut nonsense = batch(&[], None)?;
    nonsense.message = data(b"this is no message".to_vec());
    match sender.send(nonsense).await? {
        Outcome::Rejected(rejected) => {
            let error = rejected.error.ok_or("rejected without a reason")?;
            is_refused(&describe(&error)?, "com.microsoft:argument-error", &["cannot be stored"])?;
        }
        other => return Err(format!("took nonsense: {other:?}").into()),
    }
    send(&mut sender, event("after it")).await?;
    sender.close().await?;
    equal(client.last(HUB, "0").await?, before + 1, "last")?;
    client.close().await;
    Ok(())
}

pub fn operations() -> Vec<Operation> {
    vec![
        operation("an event of 1 MB both ways", megabyte()),
        operation("an event beyond the limit is refused", too_large()),
        operation("all types of properties unchanged", properties()),
        operation("system properties unchanged", system_properties()),
        operation("all kinds of bodies unchanged", kinds_of_bodies()),
        operation("a batch that is none is refused", batch_of_nonsense()),
    ]
}
