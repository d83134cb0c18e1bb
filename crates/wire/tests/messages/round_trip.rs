//! Tests that an event that is encoded and decoded again is the same event.

use bytes::Bytes;
use ephor_amqp::validate::validate;
use ephor_core::event::{NewEvent, Value};
use ephor_wire::message::{decode, encode, size_bound};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_event_comes_back_as_it_was_sent(event in crate::common::event()) {
        let mut bytes = Vec::new();
        encode(&event, &mut bytes).unwrap();
        prop_assert!(bytes.len() <= size_bound(&event), "no second allocation was needed");
        prop_assert!(validate(&bytes).is_ok(), "every section is valid, as if it came over the wire");
        let decoded = decode(&Bytes::from(bytes)).unwrap();
        prop_assert_eq!(decoded.body, event.body);
        prop_assert_eq!(decoded.properties, event.properties);
        prop_assert_eq!(decoded.system_properties, event.system_properties);
    }
}

#[test]
fn what_is_not_a_number_keeps_its_bits() {
    let bits = 0x7ff8_0000_dead_beef;
    let event = NewEvent {
        properties: [("n", Value::Float(f64::from_bits(bits)))].into_iter().collect(),
        ..NewEvent::default()
    };
    let mut bytes = Vec::new();
    encode(&event, &mut bytes).unwrap();
    let decoded = decode(&Bytes::from(bytes)).unwrap();
    assert!(matches!(decoded.properties.get("n"), Some(Value::Float(back)) if back.to_bits() == bits));
}
