//! Interoperability tests that send every kind of value (sizes, properties, bodies) and receive it
//! unchanged; one that is too large is refused.

use std::time::{Duration, UNIX_EPOCH};

use azure_core::Uuid;
use azure_core_amqp::message::{
    AmqpApplicationProperties, AmqpMessageBody, AmqpMessageId, AmqpMessageProperties,
};
use azure_core_amqp::{AmqpList, AmqpMessage, AmqpSimpleValue, AmqpSymbol, AmqpTimestamp, AmqpValue};
use azure_messaging_eventhubs::models::EventData;
use azure_messaging_eventhubs::{EventDataBatchOptions, SendMessageOptions};

use crate::client::{Failure, equal, last, producer, to};
use crate::reader::{Reading, bytes};
use crate::{Operation, operation};

const HUB: &str = "rust-sdk-values";
/// Of the 1,048,576 that the link takes, with room for the rest of the message.
const MEGABYTE: usize = 1_048_000;

fn partition() -> EventDataBatchOptions {
    EventDataBatchOptions { partition_id: Some("0".to_owned()), ..EventDataBatchOptions::default() }
}

/// The same messages after a way through the hub, first each for itself and then in one batch.
async fn through(messages: &[AmqpMessage]) -> Result<Vec<AmqpMessage>, Failure> {
    let before = last(HUB, "0").await?;
    let client = producer(HUB).await?;
    let batch = client.create_batch(Some(partition())).await?;
    for message in messages {
        let options = SendMessageOptions { partition_id: Some("0".to_owned()) };
        client.send_message(message.clone(), Some(options)).await?;
        equal(batch.try_add_amqp_message(message.clone(), None)?, true, "room in the batch")?;
    }
    client.send_batch(batch, None).await?;
    client.close().await?;
    let events = Reading::of(HUB).after(before).read(2 * messages.len()).await?;
    Ok(events.iter().map(|event| event.raw_amqp_message().clone()).collect())
}

pub fn megabyte_of_bytes() -> Vec<u8> {
    (0..MEGABYTE).map(|index| (index * 7 % 251) as u8).collect()
}

async fn megabyte() -> Result<(), Failure> {
    let (before, body) = (last(HUB, "0").await?, megabyte_of_bytes());
    let client = producer(HUB).await?;
    client.send_event(body.clone(), to("0")).await?;
    // This client counts the first event of a batch twice: there is room for half of it.
    let half = &body[..MEGABYTE / 2];
    let batch = client.create_batch(Some(partition())).await?;
    equal(batch.try_add_event_data(half, None)?, true, "room in the batch")?;
    client.send_batch(batch, None).await?;
    client.close().await?;
    let events = Reading::of(HUB).after(before).read(2).await?;
    equal(bytes(&events[0]) == body && bytes(&events[1]) == half, true, "same bytes")
}

async fn largest_batch() -> Result<(), Failure> {
    let before = last(HUB, "0").await?;
    let client = producer(HUB).await?;
    let (mut largest, mut too_large) = (0, 1_048_577);
    while too_large - largest > 1 {
        let middle = (largest + too_large) / 2;
        let batch = client.create_batch(Some(partition())).await?;
        match batch.try_add_event_data(vec![7; middle], None)? {
            true => largest = middle,
            false => too_large = middle,
        }
    }
    for size in [largest - 1, largest] {
        let batch = client.create_batch(Some(partition())).await?;
        equal(batch.try_add_event_data(vec![7; size], None)?, true, "room in the batch")?;
        client.send_batch(batch, None).await?;
    }
    client.close().await?;
    let events = Reading::of(HUB).after(before).read(2).await?;
    let sizes: Vec<_> = events.iter().map(|event| bytes(event).len()).collect();
    equal(sizes, vec![largest - 1, largest], "sizes")
}

/// A batch has no room for it. One that is sent alone is split by this client into two deliveries that are entangled,
/// which no hub can take; then it waits for ever for the acknowledgement of a link that is gone.
async fn too_large() -> Result<(), Failure> {
    let before = last(HUB, "0").await?;
    let client = producer(HUB).await?;
    let batch = client.create_batch(Some(partition())).await?;
    equal(batch.try_add_event_data(vec![0; 1_048_577], None)?, false, "room in the batch")?;
    drop(batch);
    let sending = client.send_event(vec![0; 1_048_577], to("0"));
    if let Ok(Ok(())) = tokio::time::timeout(Duration::from_secs(2), sending).await {
        return Err("sent what is too large".into());
    }
    let other = producer(HUB).await?;
    other.send_event("after it", to("0")).await?;
    other.close().await?;
    equal(last(HUB, "0").await?, before + 1, "last")
}

async fn properties() -> Result<(), Failure> {
    let time = UNIX_EPOCH + Duration::from_millis(1_709_209_815_250);
    let values: Vec<(&str, AmqpSimpleValue)> = vec![
        ("nothing", AmqpSimpleValue::Null),
        ("true", true.into()),
        ("false", false.into()),
        ("ubyte", u8::MAX.into()),
        ("ushort", u16::MAX.into()),
        ("uint", u32::MAX.into()),
        ("ulong", u64::MAX.into()),
        ("byte", i8::MIN.into()),
        ("short", i16::MIN.into()),
        ("int", i32::MIN.into()),
        ("long", i64::MIN.into()),
        ("float", 0.1_f32.into()),
        ("double", 0.1_f64.into()),
        ("char", 'ü'.into()),
        ("timestamp", AmqpSimpleValue::TimeStamp(AmqpTimestamp(Some(time)))),
        ("uuid", Uuid::from_bytes([7; 16]).into()),
        ("binary", AmqpSimpleValue::Binary(vec![0, 255])),
        ("string", AmqpSimpleValue::String("grün".to_owned())),
        ("empty", AmqpSimpleValue::String(String::new())),
        ("long string", AmqpSimpleValue::String("x".repeat(1000))),
        ("symbol", AmqpSimpleValue::Symbol(AmqpSymbol::from("a-symbol"))),
    ];
    let event = values.iter().fold(EventData::builder().with_body(b"typed"), |event, (name, value)| {
        event.add_property((*name).to_owned(), value.clone())
    });
    let sent = AmqpMessage::from(event.build());
    for found in through(&[sent]).await? {
        let AmqpApplicationProperties(found) = found.application_properties.ok_or("no properties")?;
        equal(found.len(), values.len(), "number of properties")?;
        for (name, value) in &values {
            equal(found.get(*name), Some(value), name)?;
        }
    }
    Ok(())
}

async fn system_properties() -> Result<(), Failure> {
    let time = |milliseconds| Some(AmqpTimestamp(Some(UNIX_EPOCH + Duration::from_millis(milliseconds))));
    let full = AmqpMessageProperties {
        message_id: Some(AmqpMessageId::Uuid(Uuid::from_bytes([3; 16]))),
        user_id: Some(vec![1, 2]),
        to: Some("to".to_owned()),
        subject: Some("subject".to_owned()),
        reply_to: Some("reply".to_owned()),
        correlation_id: Some(AmqpMessageId::Ulong(u64::MAX)),
        content_type: Some("text/x-test".into()),
        content_encoding: Some("identity".into()),
        absolute_expiry_time: time(1),
        creation_time: time(2),
        group_id: Some("group".to_owned()),
        group_sequence: Some(3),
        reply_to_group_id: Some("reply group".to_owned()),
    };
    let sent = AmqpMessage::builder().with_properties(full.clone()).with_body(b"described".to_vec()).build();
    for found in through(&[sent]).await? {
        equal(found.properties, Some(full.clone()), "properties")?;
        // Sequence number and its epoch, offset, and enqueued time.
        equal(found.message_annotations.map(|annotations| annotations.0.len()), Some(4), "annotations")?;
    }
    Ok(())
}

async fn kinds_of_bodies() -> Result<(), Failure> {
    let list = |values: Vec<AmqpValue>| AmqpList::from(values);
    let bodies = [
        AmqpMessageBody::Binary(vec![b"one".to_vec(), Vec::new(), b"three".to_vec()]),
        AmqpMessageBody::Binary(vec![Vec::new()]),
        AmqpMessageBody::Value(AmqpValue::String("text".to_owned())),
        AmqpMessageBody::Value(AmqpValue::List(list(vec![AmqpValue::Int(1), AmqpValue::Boolean(true)]))),
        AmqpMessageBody::Sequence(vec![
            list(vec![AmqpValue::Int(1), AmqpValue::String("two".to_owned())]),
            list(vec![AmqpValue::Double(3.5)]),
        ]),
    ];
    // The message id tells the messages apart.
    let messages: Vec<AmqpMessage> =
        bodies.iter().map(|body| AmqpMessage::builder().with_body(body.clone()).build()).collect();
    let found = through(&messages).await?;
    for (found, sent) in found.iter().zip(bodies.iter().chain(&bodies)) {
        equal(&found.body, sent, "body")?;
    }
    Ok(())
}

pub fn operations() -> Vec<Operation> {
    vec![
        operation("an event of 1 MB both ways", megabyte()),
        operation("an event beyond the limit is refused", too_large()),
        operation("the largest batch, and one byte less and more", largest_batch()),
        operation("all types of properties unchanged", properties()),
        operation("system properties unchanged", system_properties()),
        operation("all kinds of bodies unchanged", kinds_of_bodies()),
    ]
}
