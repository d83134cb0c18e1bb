//! Tests that batches are packed and unpacked without losing a byte.

use bytes::Bytes;
use ephor_core::event::NewEvent;
use proptest::prelude::*;

use super::*;
use crate::message::decode;

const ONE: &[u8] = b"\x00\x53\x75\xa0\x01a";
const KEYED: &[u8] = b"\x00\x53\x72\xc1\x1a\x02\xa3\x13x-opt-partition-key\xa1\x02k2\x00\x53\x75\xa0\x01b";
const ENVELOPE_KEY: &[u8] = b"\x00\x53\x72\xc1\x1a\x02\xa3\x13x-opt-partition-key\xa1\x02k1";

fn envelope(front: &[u8], events: &[&[u8]]) -> Vec<u8> {
    let data = events.iter().map(|event| {
        let length = (event.len() as u32).to_be_bytes();
        [b"\x00\x53\x75\xb0", length.as_slice(), event].concat()
    });
    [front.to_vec()].into_iter().chain(data).collect::<Vec<_>>().concat()
}

#[test]
fn the_format_is_the_one_of_the_service() {
    assert_eq!(MESSAGE_FORMAT, 2_147_563_264);
}

#[test]
fn the_events_of_a_batch_are_found_where_they_are() {
    // As the JavaScript SDK writes it: an empty header, empty annotations, empty properties.
    let front = b"\x00\x53\x70\x45\x00\x53\x72\xd1\x00\x00\x00\x04\x00\x00\x00\x00\x00\x53\x73\x45";
    let message = envelope(front, &[ONE, KEYED, ONE]);
    let batch = Envelope::open(&message).unwrap();
    assert_eq!(batch.len(), 3);
    assert_eq!(batch.events().collect::<Vec<_>>(), [ONE, KEYED, ONE]);
    for (range, event) in batch.ranges().zip(batch.events()) {
        assert_eq!(&message[range.clone()], event);
        assert_eq!(message[range].as_ptr(), event.as_ptr());
    }
    assert_eq!(batch.key(), None);
}

#[test]
fn the_key_of_the_envelope_comes_first_and_that_of_an_event_is_its_own() {
    let message = envelope(ENVELOPE_KEY, &[ONE, KEYED]);
    let batch = Envelope::open(&message).unwrap();
    assert_eq!(batch.routing_key(), Ok(Some("k1")));
    let keys: Vec<_> = batch.events().map(|event| batch.key_of(event).unwrap()).collect();
    assert_eq!(keys, [Some("k1"), Some("k2")]);
    let message = envelope(b"", &[KEYED, ONE]);
    let batch = Envelope::open(&message).unwrap();
    assert_eq!(batch.routing_key(), Ok(Some("k2")), "the first event's, if there is no other");
    let message = envelope(b"", &[ONE, KEYED]);
    assert_eq!(Envelope::open(&message).unwrap().routing_key(), Ok(None));
}

#[test]
fn a_key_is_found_behind_other_sections_and_under_other_descriptors() {
    let key = &ENVELOPE_KEY[3..];
    let header = b"\x00\x53\x70\xc0\x02\x01\x41".as_slice();
    for front in [
        [header, b"\x00\x53\x71\xc1\x01\x00", b"\x00\x53\x72", key].concat(),
        [b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x72".as_slice(), key].concat(),
        [b"\x00\xa3\x1camqp:message-annotations:map".as_slice(), key].concat(),
    ] {
        assert_eq!(partition_key(&[&front, ONE].concat()), Ok(Some("k1")));
    }
    assert_eq!(partition_key(ONE), Ok(None));
    assert_eq!(partition_key(b""), Ok(None));
    for (value, key) in [(b"\x40".as_slice(), None), (b"\xa1\x00", None), (b"\xa3\x01s", Some("s"))] {
        let size = 22 + value.len() as u8;
        let front = [b"\x00\x53\x72\xc1", [size, 2].as_slice(), &ENVELOPE_KEY[6..27], value].concat();
        assert_eq!(partition_key(&front), Ok(key));
    }
    let front = [b"\x00\x53\x72\xc1\x18\x02".as_slice(), &ENVELOPE_KEY[6..27], b"\x54\x05"].concat();
    assert_eq!(partition_key(&front), Err(InvalidKeyType::NotText));
}

#[test]
fn a_batch_without_data_is_refused() {
    assert!(Envelope::open(b"").is_err());
    assert!(Envelope::open(b"\x00\x53\x77\x40").is_err());
    assert!(Envelope::open(b"\x00\x53\x75\xa0\x05a").is_err());
}

#[test]
fn a_packed_batch_is_what_the_service_expects() {
    let mut packer = Packer::new(1000, Some("k1"));
    assert_eq!(packer.take(), None);
    assert_eq!(packer.push(&NewEvent::new("a")), Ok(Push::Added));
    let packed = packer.take().unwrap();
    let inner = [ENVELOPE_KEY, ONE].concat();
    let expected = [ENVELOPE_KEY, b"\x00\x53\x75\xa0", &[inner.len() as u8], &inner].concat();
    assert_eq!(packed, Packed { format: MESSAGE_FORMAT, bytes: expected, events: 1 });
    assert!(packer.is_empty());
    assert_eq!(packer.push(&NewEvent::new("b")), Ok(Push::Added), "it may be filled again");
    let own = NewEvent { partition_key: Some("k2".into()), ..NewEvent::new("b") };
    assert_eq!(packer.push(&own), Ok(Push::Added));
    let packed = packer.take().unwrap();
    let batch = Envelope::open(&packed.bytes).unwrap();
    let keys: Vec<_> = batch.events().map(|event| partition_key(event).unwrap()).collect();
    assert_eq!((batch.key(), keys), (Some("k1"), vec![Some("k1"), Some("k2")]));
}

#[test]
fn a_batch_is_full_at_the_byte_and_what_never_fits_is_refused() {
    for length in [1, 200, 245, 246, 247, 248, 249, 250, 251, 300] {
        let event = NewEvent::new(vec![7; length]);
        let mut packer = Packer::new(usize::MAX, None);
        assert_eq!(packer.push(&event), Ok(Push::Added));
        let size = packer.size();
        let mut packer = Packer::new(2 * size, None);
        assert_eq!(packer.push(&event), Ok(Push::Added));
        assert_eq!(packer.push(&event), Ok(Push::Added));
        assert_eq!(packer.push(&event), Ok(Push::Full));
        assert_eq!((packer.len(), packer.size()), (2, 2 * size));
        assert_eq!(
            Packer::new(size - 1, None).push(&event),
            Err(Refused::TooLarge { size, limit: size - 1 }),
            "{length}"
        );
    }
    let refused = Packer::new(10, None).push(&NewEvent::new(vec![7; 11])).unwrap_err();
    assert_eq!(refused.to_string(), "the event takes 19 bytes as a message; this hub takes at most 10");
    let bad = NewEvent { system_properties: [("to", 5)].into_iter().collect(), ..NewEvent::default() };
    assert!(matches!(Packer::new(1000, None).push(&bad), Err(Refused::Unencodable(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_come_out_as_they_were_put_in_and_no_batch_is_too_large(
        bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..400), 1..20),
        key in proptest::option::of("[a-z]{1,20}"),
    ) {
        const LIMIT: usize = 1000;
        let mut packer = Packer::new(LIMIT, key.as_deref());
        let mut sent = Vec::new();
        for body in &bodies {
            let event = NewEvent::new(body.clone());
            while packer.push(&event).unwrap() == Push::Full {
                sent.extend(packer.take());
            }
        }
        sent.extend(packer.take());
        let mut seen = Vec::new();
        for packed in &sent {
            prop_assert!(packed.bytes.len() <= LIMIT);
            let batch = Envelope::open(&packed.bytes).unwrap();
            prop_assert_eq!(batch.len(), packed.events);
            prop_assert_eq!(batch.routing_key().unwrap(), key.as_deref());
            seen.extend(batch.events().map(|event| decode(&Bytes::copy_from_slice(event)).unwrap().body.to_vec()));
        }
        prop_assert_eq!(seen, bodies);
    }

    #[test]
    fn any_bytes_are_a_batch_or_refused(
        front in 0x70u8..=0x78,
        mut bytes in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        for _ in 0..2 {
            if let Ok(batch) = Envelope::open(&bytes) {
                prop_assert_eq!(batch.events().count(), batch.len());
                let _ = batch.routing_key();
                batch.events().for_each(|event| { let _ = batch.key_of(event); });
            }
            let _ = partition_key(&bytes);
            bytes.splice(0..0, [0x00, 0x53, front]);
        }
    }
}
