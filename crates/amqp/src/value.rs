//! One decoded AMQP value, borrowed from the encoded bytes.

use crate::decode::Reader;
use crate::format_codes as code;

/// A value of a primitive type, or the encoding of any other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// Unsigned, 8 bits.
    Ubyte(u8),
    /// Unsigned, 16 bits.
    Ushort(u16),
    /// Unsigned, 32 bits.
    Uint(u32),
    /// Unsigned, 64 bits.
    Ulong(u64),
    /// Signed, 8 bits.
    Byte(i8),
    /// Signed, 16 bits.
    Short(i16),
    /// Signed, 32 bits.
    Int(i32),
    /// Signed, 64 bits.
    Long(i64),
    /// Floating point, 32 bits.
    Float(f32),
    /// Floating point, 64 bits.
    Double(f64),
    /// One character.
    Char(char),
    /// Milliseconds since 1970-01-01T00:00:00Z.
    Timestamp(i64),
    /// A universally unique identifier.
    Uuid([u8; 16]),
    /// Bytes.
    Binary(&'a [u8]),
    /// Text.
    String(&'a str),
    /// A name. The specification allows only ASCII; any UTF-8 is read, since some SDKs write it.
    Symbol(&'a str),
    /// A decimal number, a list, a map, an array or a described value: its whole encoding, of which
    /// only the outer size has been checked.
    Encoded(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The text of a string or a symbol.
    pub fn text(self) -> Option<&'a str> {
        match self {
            Self::String(text) | Self::Symbol(text) => Some(text),
            _ => None,
        }
    }

    /// The descriptor and the value of a described value.
    pub fn described(self) -> Option<(Value<'a>, Value<'a>)> {
        let Self::Encoded(bytes @ [code::DESCRIBED, ..]) = self else { return None };
        let mut reader = Reader::starting(bytes, 1);
        Some((reader.value().ok()?, reader.value().ok()?))
    }

    /// The value of an integer of any width.
    pub fn integer(self) -> Option<i64> {
        match self {
            Self::Ubyte(value) => Some(value.into()),
            Self::Ushort(value) => Some(value.into()),
            Self::Uint(value) => Some(value.into()),
            Self::Ulong(value) => value.try_into().ok(),
            Self::Byte(value) => Some(value.into()),
            Self::Short(value) => Some(value.into()),
            Self::Int(value) => Some(value.into()),
            Self::Long(value) => Some(value),
            _ => None,
        }
    }
}
