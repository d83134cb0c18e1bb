//! Tests of the annotations of delivered events, byte for byte, and of the client that reads them.

use bytes::Bytes;
use ephor_core::event::Value;
use ephor_core::position::{Offset, SequenceNumber};
use proptest::prelude::*;

use super::*;
use crate::message::decode;

const HEADER: &[u8] = b"\x00\x53\x70\xc0\x02\x01\x41";
const PROPERTIES: &[u8] = b"\x00\x53\x73\xc0\x04\x01\xa1\x01m";
const BODY: &[u8] = b"\x00\x53\x75\xa0\x02hi";
const FOOTER: &[u8] = b"\x00\x53\x78\xc1\x01\x00";
const DELIVERY_ANNOTATIONS: &[u8] = b"\x00\x53\x71\xc1\x05\x02\xa3\x01d\x41";

/// The annotations of event 7, without a key, as a map8 with room for others after them.
fn stamped(others: &[u8], pairs: u8) -> Vec<u8> {
    let ours = [
        b"\xa3\x1bx-opt-sequence-number-epoch\x54\xff".as_slice(),
        b"\xa3\x15x-opt-sequence-number\x55\x07",
        b"\xa3\x0cx-opt-offset\xa1\x03288",
        b"\xa3\x13x-opt-enqueued-time\x83\x00\x00\x01\x8b\xcf\xe5\x68\x00",
        others,
    ]
    .concat();
    [b"\x00\x53\x72\xc1", [ours.len() as u8 + 1, pairs * 2].as_slice(), &ours].concat()
}

fn delivered(message: &[u8], key: Option<&str>, metrics: Option<&RuntimeMetrics>) -> Vec<u8> {
    let stamp = Stamp {
        sequence: SequenceNumber(7),
        offset: &Offset::number(288),
        enqueued_at: Timestamp(1_700_000_000_000),
        partition_key: key,
        metrics,
        last_number_epoch: false,
    };
    let mut out = b"before".to_vec();
    deliver(message, &stamp, &mut out).unwrap();
    assert_eq!(&out[..6], b"before");
    out.split_off(6)
}

#[test]
fn epochs_come_before_their_numbers() {
    let (offset, metrics) = (Offset::number(288), metrics());
    let stamp = Stamp {
        sequence: SequenceNumber(7),
        offset: &offset,
        enqueued_at: Timestamp(1),
        partition_key: None,
        metrics: Some(&metrics),
        last_number_epoch: true,
    };
    let mut out = Vec::new();
    deliver(BODY, &stamp, &mut out).unwrap();
    for epoch in [
        b"\xa3\x23last_enqueued_sequence_number_epoch\x54\xff\xa3\x1dlast_enqueued_sequence_number"
            .as_slice(),
        b"\xa3\x1bx-opt-sequence-number-epoch\x54\xff\xa3\x15x-opt-sequence-number\x55\x07",
    ] {
        assert!(out.windows(epoch.len()).any(|bytes| bytes == epoch), "{}", out.escape_ascii());
    }
    assert_eq!(Delivered::read(&out).unwrap().sequence, SequenceNumber(7));
}

fn metrics() -> RuntimeMetrics {
    let last =
        LastEnqueued { sequence: SequenceNumber(900), offset: Offset::new("x:1"), enqueued_at: Timestamp(1) };
    RuntimeMetrics { last, retrieved_at: Timestamp(2) }
}

#[test]
fn without_annotations_of_its_own_a_message_is_stamped_and_copied() {
    assert_eq!(delivered(BODY, None, None), [&stamped(b"", 4), BODY].concat());
    let message = [PROPERTIES, BODY, FOOTER].concat();
    let key = b"\xa3\x13x-opt-partition-key\xa1\x06home-7";
    assert_eq!(delivered(&message, Some("home-7"), None), [&stamped(key, 5), &message[..]].concat());
}

#[test]
fn a_header_is_dropped_and_annotations_of_the_sender_stay_beside_ours() {
    let mut theirs = [
        b"\x00\x53\x72\xc1\x00\x06\xa3\x04mine\x54\x05".as_slice(),
        b"\xa3\x13x-opt-partition-key\xa1\x01k",
        b"\xa3\x0cx-opt-offset\x40",
    ]
    .concat();
    theirs[4] = (theirs.len() - 5) as u8;
    let message = [HEADER, &theirs, BODY].concat();
    let expected = [&stamped(b"\xa3\x04mine\x54\x05", 5), BODY].concat();
    assert_eq!(delivered(&message, None, None), expected);
    let (event, _) = received(&Bytes::from(expected)).unwrap();
    assert_eq!(event.system_properties.get("mine"), Some(&Value::Int(5)));
    assert_eq!(event.system_properties.iter().count(), 1);
}

#[test]
fn delivery_annotations_of_the_sender_are_delivered_also_from_the_end_of_a_message() {
    let expected = [DELIVERY_ANNOTATIONS, &stamped(b"", 4), PROPERTIES, BODY, FOOTER].concat();
    for message in [
        [HEADER, DELIVERY_ANNOTATIONS, PROPERTIES, BODY, FOOTER].concat(),
        [HEADER, PROPERTIES, BODY, FOOTER, DELIVERY_ANNOTATIONS].concat(),
    ] {
        assert_eq!(delivered(&message, None, None), expected);
    }
}

#[test]
fn metrics_stand_before_the_annotations_with_exact_types_and_none_of_them_is_the_senders() {
    let told: [&[u8]; 4] = [
        b"\xa3\x1dlast_enqueued_sequence_number\x81\x00\x00\x00\x00\x00\x00\x03\x84",
        b"\xa3\x14last_enqueued_offset\xa1\x03x:1",
        b"\xa3\x16last_enqueued_time_utc\x83\x00\x00\x00\x00\x00\x00\x00\x01",
        b"\xa3\x1fruntime_info_retrieval_time_utc\x83\x00\x00\x00\x00\x00\x00\x00\x02",
    ];
    let section = |pairs: &[&[u8]]| {
        let pairs: Vec<u8> = pairs.concat();
        [b"\x00\x53\x71\xc1", [pairs.len() as u8 + 1, 8].as_slice(), &pairs].concat()
    };
    let message = [HEADER, BODY].concat();
    let expected = [&section(&told), &stamped(b"", 4), BODY].concat();
    assert_eq!(delivered(&message, None, Some(&metrics())), expected);
    // What a sender writes under these names reaches nobody.
    let lie = [&section(&told[..1]), BODY].concat();
    let lie = [&lie[..5], &[2], &lie[6..]].concat();
    assert_eq!(delivered(&lie, None, Some(&metrics())), expected);
    assert_eq!(delivered(&lie, None, None), [&stamped(b"", 4), BODY].concat());
    let both = [DELIVERY_ANNOTATIONS, BODY].concat();
    let (_, told_again) = received(&Bytes::from(delivered(&both, None, Some(&metrics())))).unwrap();
    assert_eq!(told_again, Some(metrics()));
}

#[test]
fn what_was_delivered_is_read_back() {
    let message = Bytes::from(delivered(&[HEADER, PROPERTIES, BODY].concat(), Some("k"), Some(&metrics())));
    let (event, told) = received(&message).unwrap();
    assert_eq!(told, Some(metrics()));
    assert_eq!(event.sequence, SequenceNumber(7));
    assert_eq!(event.offset, Offset::number(288));
    assert_eq!(event.enqueued_at, Timestamp(1_700_000_000_000));
    assert_eq!(event.partition_key.as_deref(), Some("k"));
    assert_eq!(event.body, "hi");
    assert_eq!(event.system_properties.get("message-id"), Some(&Value::from("m")));
    assert!(message.as_ptr_range().contains(&event.body.as_ptr()), "nothing was copied");
}

#[test]
fn an_event_without_a_body_is_read_with_an_empty_one() {
    let stored = [PROPERTIES, DELIVERY_ANNOTATIONS].concat();
    let message = delivered(&stored, None, None);
    assert_eq!(message, [DELIVERY_ANNOTATIONS, &stamped(b"", 4), PROPERTIES].concat());
    let (event, _) = received(&Bytes::from(message)).unwrap();
    assert!(event.body.is_empty());
    assert_eq!(event.system_properties.get("message-id"), Some(&Value::from("m")));
}

#[test]
fn numbers_of_any_length_become_text() {
    for number in [0, 9, 10, 288, u64::MAX] {
        let mut text = Vec::new();
        deliver::write_offset(&Offset::number(number), &mut text);
        assert_eq!(text[2..], *number.to_string().as_bytes());
        assert_eq!(usize::from(text[1]) + 2, text.len());
    }
}

#[test]
fn an_offset_is_read_to_the_letter() {
    let long = "1".repeat(30);
    for text in [
        "0",
        "7",
        "288",
        "9999999999999999999",
        "18446744073709551615",
        "18446744073709551616",
        "007",
        "-1",
        "+1",
        "1:2",
        "",
        &long,
    ] {
        let mut message = Vec::new();
        let stamp = Stamp {
            sequence: SequenceNumber(7),
            offset: &Offset::new(text),
            enqueued_at: Timestamp(1),
            partition_key: None,
            metrics: None,
            last_number_epoch: false,
        };
        deliver(BODY, &stamp, &mut message).unwrap();
        assert_eq!(Delivered::read(&message).unwrap().offset, Offset::new(text));
    }
}

#[test]
fn a_delivery_without_what_the_hub_has_to_say_is_refused() {
    let refused = |message: &[u8]| Delivered::read(message).unwrap_err().what;
    assert_eq!(refused(BODY), "a delivery without annotations");
    let whole = stamped(b"", 4);
    for (at, what) in [
        (39, "a delivery without its sequence number"),
        (64, "a delivery without its offset"),
        (83, "a delivery without its enqueued time"),
    ] {
        let mut message = [&whole, BODY].concat();
        message[at] = b'?';
        assert_eq!(refused(&message), what, "{at}");
    }
}

#[test]
fn a_property_that_makes_no_sense_does_not_hide_the_event() {
    let nameless: &[u8] = b"\x00\x53\x74\xc1\x03\x02\x41\x41";
    let message = Bytes::from([stamped(b"", 4).as_slice(), nameless, BODY].concat());
    assert!(decode(&message).is_err());
    assert_eq!(received(&message).unwrap().0.body, "hi");
}

#[test]
fn a_message_gets_the_key_that_it_is_sent_under() {
    let mut out = Vec::new();
    with_partition_key(&[HEADER, BODY, DELIVERY_ANNOTATIONS].concat(), "k", &mut out).unwrap();
    let keyed = b"\x00\x53\x72\xc1\x19\x02\xa3\x13x-opt-partition-key\xa1\x01k";
    assert_eq!(out, [HEADER, DELIVERY_ANNOTATIONS, keyed, BODY].concat());
    let mut again = Vec::new();
    with_partition_key(&out, "k", &mut again).unwrap();
    assert_eq!(again, out);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_messages_are_refused_or_delivered(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        key in proptest::option::of("[a-z]{0,300}"),
        tail in proptest::collection::vec(any::<u8>(), 0..30),
    ) {
        let mut message = [HEADER, DELIVERY_ANNOTATIONS, &stamped(b"", 4), PROPERTIES, BODY].concat();
        for (index, byte) in changes {
            let at = index.index(message.len());
            message[at] = byte;
        }
        message.extend(tail);
        let told = metrics();
        let stamp = Stamp {
            sequence: SequenceNumber(u64::MAX),
            offset: &Offset::new("o"),
            enqueued_at: Timestamp(-1),
            partition_key: key.as_deref(),
            metrics: Some(&told),
            last_number_epoch: false,
        };
        let mut out = Vec::new();
        match deliver(&message, &stamp, &mut out) {
            Ok(()) => {
                prop_assert!(out.len() as u64 <= message.len() as u64 + MAX_ADDED_BYTES);
                let read = Delivered::read(&out).unwrap();
                prop_assert_eq!(read.partition_key, key.as_deref());
                prop_assert_eq!(read.metrics.as_ref(), Some(&told));
            }
            Err(_) => prop_assert!(out.is_empty(), "nothing is left of a refused message"),
        }
        let _ = received(&Bytes::from(message));
    }
}
