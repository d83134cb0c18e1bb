//! Fuzzes the conversion of a stored message to a delivered one, and of a delivered one, also from an
//! untrusted hub, to the event that a client reads; and the addition of a partition key to a message.

use bytes::Bytes;
use ephor_amqp::Sections;
use ephor_core::position::{Offset, SequenceNumber};
use ephor_core::source::LastEnqueued;
use ephor_core::time::Timestamp;
use ephor_wire::annotations::{Delivered, RuntimeMetrics, Stamp, deliver, received, with_partition_key};
use ephor_wire::batch::partition_key;
use ephor_wire::message::decode_leniently;

const KEY: &str = "home-7";

/// Runs one input.
pub fn run(data: &[u8]) {
    let message = Bytes::copy_from_slice(data);
    // As a delivery from an untrusted hub.
    match (received(&message), Delivered::read(&message)) {
        (Ok((event, metrics)), Ok(delivered)) => {
            assert_eq!((event.sequence, &event.offset), (delivered.sequence, &delivered.offset));
            assert_eq!(event.partition_key.as_deref(), delivered.partition_key);
            assert_eq!(metrics, delivered.metrics);
            assert!(event.body.len() <= data.len());
        }
        (Err(one), Err(other)) => assert!(one == other && one.at <= data.len(), "{one}"),
        (one, other) => panic!("{one:?} and {other:?}"),
    }
    deliver_and_receive(&message);
    send_under_a_key(data);
}

/// The client reads the annotations that the hub added, and the rest is as it was sent.
fn deliver_and_receive(message: &Bytes) {
    let offset = Offset::new("4242");
    let last =
        LastEnqueued { sequence: SequenceNumber(9), offset: offset.clone(), enqueued_at: Timestamp(3) };
    let told = RuntimeMetrics { last, retrieved_at: Timestamp(4) };
    let number = SequenceNumber(message.len() as u64);
    let stamp = Stamp {
        sequence: number,
        offset: &offset,
        enqueued_at: Timestamp(5),
        partition_key: message.len().is_multiple_of(2).then_some(KEY),
        metrics: message.len().is_multiple_of(3).then_some(&told),
        last_number_epoch: message.len().is_multiple_of(5),
    };
    let mut bytes = b"before".to_vec();
    if deliver(message, &stamp, &mut bytes).is_err() {
        return assert_eq!(bytes, b"before", "a refused message leaves nothing");
    }
    let delivered = Bytes::from(bytes.split_off(6));
    let (event, metrics) = received(&delivered).expect("a delivered message can be received");
    assert_eq!((event.sequence, event.offset.clone()), (number, offset.clone()));
    assert_eq!(event.enqueued_at, Timestamp(5));
    assert_eq!(event.partition_key.as_deref(), stamp.partition_key);
    assert_eq!(metrics.as_ref(), stamp.metrics);
    let sections = Sections::scan(message).expect("a delivered message has sections");
    let sent = decode_leniently(message, &sections);
    assert_eq!(event.body, sent.body);
    assert_eq!(format!("{:?}", event.properties), format!("{:?}", sent.properties));
    assert_eq!(format!("{:?}", event.system_properties), format!("{:?}", sent.system_properties));
}

fn send_under_a_key(message: &[u8]) {
    let mut bytes = Vec::new();
    if with_partition_key(message, KEY, &mut bytes).is_err() {
        return assert!(bytes.is_empty());
    }
    assert_eq!(partition_key(&bytes), Ok(Some(KEY)));
    assert!(bytes.len() <= message.len() + 128);
}
