//! Tests that decoding arbitrary bytes terminates, without a panic and without reading out of bounds.

use ephor_amqp::check::check;
use ephor_amqp::decode::MAX_NESTING;
use ephor_amqp::{Malformed, Reader, Sections, Value};
use proptest::prelude::*;

/// Bytes that look like AMQP more often than random ones.
fn almost_amqp() -> impl Strategy<Value = Vec<u8>> {
    const CODES: &[u8] = &[
        0x00, 0x40, 0x45, 0x53, 0x56, 0x70, 0x73, 0x74, 0x75, 0x77, 0x80, 0x98, 0xa0, 0xa1, 0xa3, 0xb0, 0xb1,
        0xc0, 0xc1, 0xd0, 0xd1, 0xe0, 0xf0, 0x01, 0x02, 0x03, 0x05, 0xff,
    ];
    let byte = prop_oneof![4 => proptest::sample::select(CODES), 1 => any::<u8>()];
    proptest::collection::vec(byte, 0..64)
}

/// Decodes everything that can be reached.
fn read_all(bytes: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let before = reader.at();
        for compound in [reader.clone().list(), reader.clone().map()] {
            let Ok(mut items) = compound else { continue };
            assert!(items.left() <= bytes.len());
            while let Ok(Some(_)) = items.next() {}
        }
        let range = reader.clone().skip();
        let value = reader.value()?;
        assert_eq!(range, Ok(before..reader.at()), "skipping goes as far as reading");
        if let Value::Encoded(encoded) = value {
            assert_eq!(encoded, &bytes[before..reader.at()]);
        }
    }
    Ok(())
}

#[test]
fn descriptors_in_one_another_are_followed_so_far_and_no_descriptors_to_a_check() {
    for depth in 0..100 {
        // `depth` descriptors, each of which is described itself, and their values.
        let bytes = [vec![0x00; depth], vec![0x44; depth + 1]].concat();
        assert_eq!(read_all(&bytes).is_ok(), depth < MAX_NESTING, "{depth}");
        assert_eq!(check(&bytes).is_ok(), depth < 2, "{depth}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_reading_panic(bytes in prop_oneof![
        almost_amqp(),
        proptest::collection::vec(any::<u8>(), 0..64),
    ]) {
        let read = read_all(&bytes);
        if check(&bytes).is_ok() {
            prop_assert_eq!(read, Ok(()), "what is well-formed inside is so outside");
        }
    }

    #[test]
    fn no_bytes_make_scanning_panic(mut bytes in almost_amqp(), section in 0x70u8..=0x78) {
        bytes.splice(0..0, [0x00, 0x53, section]);
        if let Ok(found) = Sections::scan(&bytes) {
            prop_assert!(found.body.whole.end <= bytes.len());
            prop_assert!(found.body.content.end <= found.body.whole.end);
            prop_assert_eq!(found.data(&bytes).count(), found.data_sections());
        }
    }
}
