//! Fuzzes messages in a log: a hub accepts only those that are valid or can be corrected, and readers can
//! decode every message that they get, whatever is stored.

mod simple_decoder;

use std::cell::RefCell;

use bytes::Bytes;
use ephor_amqp::validate::{conform, keep_valid, validate};
use ephor_core::position::{Offset, SequenceNumber};
use ephor_core::time::Timestamp;
use ephor_hub::{HubConfig, HubProducer, LocalNamespace, NamespaceConfig};
use ephor_wire::annotations::{Stamp, deliver, received};
use ephor_wire::message::decode;

thread_local! {
    static PRODUCER: RefCell<(LocalNamespace, HubProducer)> = RefCell::new(producer());
}

/// A producer whose hub accepts events of any size that a fuzzer makes.
fn producer() -> (LocalNamespace, HubProducer) {
    let namespace = LocalNamespace::in_memory(NamespaceConfig::default()).expect("a namespace");
    let hub = namespace.create_hub(HubConfig::new("homes", 1).expect("a hub")).expect("a hub");
    let producer = hub.producer();
    (namespace, producer)
}

/// The length of the body that a message without one gets.
const EMPTY_BODY: usize = 5;

/// Runs one input.
pub fn run(data: &[u8]) {
    let taken = PRODUCER.with_borrow(|(_, producer)| producer.batch().push_message(None, data).is_ok());
    match conform(data) {
        Ok(conforming) => {
            assert!(taken, "a valid message is accepted");
            let added = conforming.len() - data.len();
            assert!(added == 0 || added == EMPTY_BODY, "{added} bytes were added");
            assert!(validate(&conforming).is_ok());
            assert_eq!(validate(data).is_ok(), *conforming == *data, "a valid message is not changed");
            decode(&Bytes::copy_from_slice(&conforming)).expect("a valid message can be decoded");
            simple_decoder::read_message(&conforming);
        }
        Err(malformed) => assert!(!taken && malformed.at <= data.len(), "{malformed}"),
    }
    let (kept, malformed) = keep_valid(data);
    assert_eq!(malformed.is_none(), taken, "nothing is left out of what is valid");
    assert!(validate(data).is_err() || *kept == *data, "a valid message is not changed");
    read_as_delivered(&kept);
}

/// A delivered message can be decoded, even by a reader that trusts every size in it.
fn read_as_delivered(stored: &[u8]) {
    let stamp = Stamp {
        sequence: SequenceNumber(7),
        offset: &Offset::number(288),
        enqueued_at: Timestamp(1_700_000_000_000),
        partition_key: Some("home-7"),
        metrics: None,
        last_number_epoch: false,
    };
    let mut delivered = Vec::new();
    deliver(stored, &stamp, &mut delivered).expect("a stored message can be delivered");
    validate(&delivered).expect("a delivered message is valid");
    simple_decoder::read_message(&delivered);
    received(&delivered.into()).expect("a delivered message can be received");
}
