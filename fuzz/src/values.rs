//! Fuzzes AMQP values: sequences of them, and all nested values.

use ephor_amqp::check::check;
use ephor_amqp::{Encoded, Malformed, Reader, Value, encode};

/// Runs one input.
pub fn run(data: &[u8]) {
    let well_formed = check(data).is_ok();
    let read = read_all(data);
    match Encoded::copy(data) {
        Ok(kept) => {
            assert!(well_formed && read.is_ok(), "well-formed inside but not outside: {read:?}");
            assert_eq!(kept.as_bytes(), data);
            assert!(kept.entries().count() <= data.len() && kept.names().count() <= data.len());
            read_to_the_leaves(kept.value(), data.len());
        }
        Err(malformed) => assert!(!well_formed && malformed.at <= data.len(), "{malformed}"),
    }
}

/// Reads values from the first byte to the last.
fn read_all(bytes: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let before = reader.at();
        for compound in [reader.clone().list(), reader.clone().map()] {
            let Ok(mut items) = compound else { continue };
            assert!(items.left() <= bytes.len(), "more items than bytes");
            while let Ok(Some(_)) = items.next() {}
        }
        let skipped = reader.clone().skip();
        let value = reader.value()?;
        assert_eq!(skipped, Ok(before..reader.at()), "skipping ends where reading ends");
        if let Value::Encoded(encoded) = value {
            assert_eq!(encoded, &bytes[before..reader.at()]);
        }
        rewrite(value, reader.at() - before);
    }
    Ok(())
}

/// Writes a value that took `took` bytes, and reads it again.
fn rewrite(value: Value<'_>, took: usize) {
    let mut written = Vec::new();
    encode::value(&mut written, value);
    assert!(written.len() <= took, "the shortest form of {value:?} is longer than its input");
    let mut again = Vec::new();
    encode::value(&mut again, Reader::new(&written).value().expect("a written value can be read"));
    assert_eq!(written, again);
}

/// Visits everything nested in a well-formed value, without recursion.
fn read_to_the_leaves(value: Value<'_>, most: usize) {
    let (mut waiting, mut seen) = (vec![value], 0);
    while let Some(value) = waiting.pop() {
        seen += 1;
        assert!(seen <= most, "more values than bytes");
        let Value::Encoded(encoded) = value else { continue };
        let reader = Reader::new(encoded);
        if encoded[0] == 0 {
            let (descriptor, held) = value.described().expect("a described value has both halves");
            waiting.extend([descriptor, held]);
        } else if let Ok(mut items) = reader.clone().list().or_else(|_| reader.clone().map()) {
            while let Some(item) = items.next().expect("a well-formed value can be read") {
                waiting.push(item);
            }
        }
    }
}
