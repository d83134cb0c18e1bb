//! Encodes AMQP values, each in its shortest form, and appends them to a byte vector.
//!
//! Lengths in AMQP have 32 bits. A caller that passes on values of others has to refuse those longer than
//! [`MAX_LENGTH`] first; a longer value panics here, because it cannot be encoded.

use crate::format_codes as code;
use crate::value::Value;

/// The most bytes of a binary, a string, or the content of a list or a map: the largest 32-bit length, less
/// the four bytes of a count.
pub const MAX_LENGTH: usize = (u32::MAX - 4) as usize;

/// Writes null.
pub fn null(into: &mut Vec<u8>) {
    into.push(code::NULL);
}

/// Writes true or false.
pub fn bool(into: &mut Vec<u8>, value: bool) {
    into.push(if value { code::TRUE } else { code::FALSE });
}

/// Writes an unsigned number of 8 bits.
pub fn ubyte(into: &mut Vec<u8>, value: u8) {
    into.extend_from_slice(&[code::UBYTE, value]);
}

/// Writes an unsigned number of 16 bits.
pub fn ushort(into: &mut Vec<u8>, value: u16) {
    fixed(into, code::USHORT, value.to_be_bytes());
}

/// Writes an unsigned number of 32 bits.
pub fn uint(into: &mut Vec<u8>, value: u32) {
    match u8::try_from(value) {
        Ok(0) => into.push(code::UINT_0),
        Ok(small) => into.extend_from_slice(&[code::SMALL_UINT, small]),
        Err(_) => fixed(into, code::UINT, value.to_be_bytes()),
    }
}

/// Writes an unsigned number of 64 bits.
pub fn ulong(into: &mut Vec<u8>, value: u64) {
    match u8::try_from(value) {
        Ok(0) => into.push(code::ULONG_0),
        Ok(small) => into.extend_from_slice(&[code::SMALL_ULONG, small]),
        Err(_) => fixed(into, code::ULONG, value.to_be_bytes()),
    }
}

/// Writes a signed number of 8 bits.
pub fn byte(into: &mut Vec<u8>, value: i8) {
    fixed(into, code::BYTE, value.to_be_bytes());
}

/// Writes a signed number of 16 bits.
pub fn short(into: &mut Vec<u8>, value: i16) {
    fixed(into, code::SHORT, value.to_be_bytes());
}

/// Writes a signed number of 32 bits.
pub fn int(into: &mut Vec<u8>, value: i32) {
    match i8::try_from(value) {
        Ok(small) => fixed(into, code::SMALL_INT, small.to_be_bytes()),
        Err(_) => fixed(into, code::INT, value.to_be_bytes()),
    }
}

/// Writes a signed number of 64 bits.
pub fn long(into: &mut Vec<u8>, value: i64) {
    match i8::try_from(value) {
        Ok(small) => fixed(into, code::SMALL_LONG, small.to_be_bytes()),
        Err(_) => fixed(into, code::LONG, value.to_be_bytes()),
    }
}

/// Writes a floating-point number of 32 bits.
pub fn float(into: &mut Vec<u8>, value: f32) {
    fixed(into, code::FLOAT, value.to_be_bytes());
}

/// Writes a floating-point number of 64 bits.
pub fn double(into: &mut Vec<u8>, value: f64) {
    fixed(into, code::DOUBLE, value.to_be_bytes());
}

/// Writes one character.
pub fn char(into: &mut Vec<u8>, value: char) {
    fixed(into, code::CHAR, u32::from(value).to_be_bytes());
}

/// Writes a time in milliseconds since 1970-01-01T00:00:00Z.
pub fn timestamp(into: &mut Vec<u8>, milliseconds: i64) {
    fixed(into, code::TIMESTAMP, milliseconds.to_be_bytes());
}

/// Writes a universally unique identifier.
pub fn uuid(into: &mut Vec<u8>, value: &[u8; 16]) {
    fixed(into, code::UUID, *value);
}

/// Writes bytes.
pub fn binary(into: &mut Vec<u8>, value: &[u8]) {
    variable(into, code::BINARY_8, code::BINARY_32, value);
}

/// Writes text.
pub fn string(into: &mut Vec<u8>, value: &str) {
    variable(into, code::STRING_8, code::STRING_32, value.as_bytes());
}

/// Writes a symbol, which has to be ASCII.
pub fn symbol(into: &mut Vec<u8>, value: &str) {
    variable(into, code::SYMBOL_8, code::SYMBOL_32, value.as_bytes());
}

/// Writes any value; [`Value::Encoded`] is written as it is.
pub fn value(into: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Null => null(into),
        Value::Bool(value) => bool(into, value),
        Value::Ubyte(value) => ubyte(into, value),
        Value::Ushort(value) => ushort(into, value),
        Value::Uint(value) => uint(into, value),
        Value::Ulong(value) => ulong(into, value),
        Value::Byte(value) => byte(into, value),
        Value::Short(value) => short(into, value),
        Value::Int(value) => int(into, value),
        Value::Long(value) => long(into, value),
        Value::Float(value) => float(into, value),
        Value::Double(value) => double(into, value),
        Value::Char(value) => char(into, value),
        Value::Timestamp(value) => timestamp(into, value),
        Value::Uuid(value) => uuid(into, &value),
        Value::Binary(value) => binary(into, value),
        Value::String(value) => string(into, value),
        Value::Symbol(value) => symbol(into, value),
        Value::Encoded(value) => into.extend_from_slice(value),
    }
}

/// Writes an array of symbols, each of at most 255 bytes.
///
/// # Panics
///
/// On a longer name.
pub fn symbols<'a>(into: &mut Vec<u8>, names: impl IntoIterator<Item = &'a str>) {
    let start = into.len();
    into.extend_from_slice(&[0; LONG_HEAD]);
    into.push(code::SYMBOL_8);
    let mut count = 0;
    for name in names {
        into.push(u8::try_from(name.len()).expect("no name is longer than 255 bytes"));
        into.extend_from_slice(name.as_bytes());
        count += 1;
    }
    end(into, Begun { start }, count, code::ARRAY_8, code::ARRAY_32);
}

/// Writes a descriptor; together with the value that is written next, it is one described value.
pub fn described(into: &mut Vec<u8>, descriptor: u64) {
    into.push(code::DESCRIBED);
    ulong(into, descriptor);
}

/// A list or a map that has begun. Its items are written after it, and then its end.
#[derive(Debug)]
#[must_use = "a list or a map has to be ended"]
pub struct Begun {
    start: usize,
}

/// The head of the long form; [`end`] removes the bytes that the short form does not need.
const LONG_HEAD: usize = 9;
const SHORT_HEAD: usize = 3;

/// Begins a list or a map.
pub fn begin(into: &mut Vec<u8>) -> Begun {
    let start = into.len();
    into.extend_from_slice(&[0; LONG_HEAD]);
    Begun { start }
}

/// Ends a list of this many items.
///
/// An empty list is written with its count, though a single byte would do, because Azure's Python SDK expects
/// a size and a count in every performative.
pub fn end_list(into: &mut Vec<u8>, begun: Begun, items: usize) {
    end(into, begun, items, code::LIST_8, code::LIST_32);
}

/// Ends a map of this many pairs.
pub fn end_map(into: &mut Vec<u8>, begun: Begun, pairs: usize) {
    end(into, begun, pairs * 2, code::MAP_8, code::MAP_32);
}

fn end(into: &mut Vec<u8>, Begun { start }: Begun, count: usize, short: u8, long: u8) {
    let content = start + LONG_HEAD..into.len();
    let length = content.len();
    if let (Ok(size), Ok(count)) = (u8::try_from(length + 1), u8::try_from(count)) {
        into.copy_within(content, start + SHORT_HEAD);
        into.truncate(start + SHORT_HEAD + length);
        into[start..start + SHORT_HEAD].copy_from_slice(&[short, size, count]);
    } else {
        into[start] = long;
        into[start + 1..start + 5].copy_from_slice(&length32(length + 4));
        into[start + 5..start + LONG_HEAD].copy_from_slice(&length32(count));
    }
}

fn fixed<const N: usize>(into: &mut Vec<u8>, code: u8, bytes: [u8; N]) {
    into.push(code);
    into.extend_from_slice(&bytes);
}

fn variable(into: &mut Vec<u8>, short: u8, long: u8, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(length) => into.extend_from_slice(&[short, length]),
        Err(_) => fixed(into, long, length32(bytes.len())),
    }
    into.extend_from_slice(bytes);
}

fn length32(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("no value is longer than its length can say").to_be_bytes()
}
