//! Format codes: the byte that precedes every AMQP value and gives its type (AMQP 1.0, part 1, section
//! 1.6), and the descriptors of a message's sections (part 3, section 3.2).

#![allow(missing_docs, reason = "the names are those of the specification and say all there is")]

pub const DESCRIBED: u8 = 0x00;

pub const NULL: u8 = 0x40;
pub const TRUE: u8 = 0x41;
pub const FALSE: u8 = 0x42;
pub const UINT_0: u8 = 0x43;
pub const ULONG_0: u8 = 0x44;
pub const LIST_0: u8 = 0x45;

pub const UBYTE: u8 = 0x50;
pub const BYTE: u8 = 0x51;
pub const SMALL_UINT: u8 = 0x52;
pub const SMALL_ULONG: u8 = 0x53;
pub const SMALL_INT: u8 = 0x54;
pub const SMALL_LONG: u8 = 0x55;
pub const BOOLEAN: u8 = 0x56;

pub const USHORT: u8 = 0x60;
pub const SHORT: u8 = 0x61;

pub const UINT: u8 = 0x70;
pub const INT: u8 = 0x71;
pub const FLOAT: u8 = 0x72;
pub const CHAR: u8 = 0x73;
pub const DECIMAL_32: u8 = 0x74;

pub const ULONG: u8 = 0x80;
pub const LONG: u8 = 0x81;
pub const DOUBLE: u8 = 0x82;
pub const TIMESTAMP: u8 = 0x83;
pub const DECIMAL_64: u8 = 0x84;

pub const DECIMAL_128: u8 = 0x94;
pub const UUID: u8 = 0x98;

pub const BINARY_8: u8 = 0xa0;
pub const STRING_8: u8 = 0xa1;
pub const SYMBOL_8: u8 = 0xa3;
pub const BINARY_32: u8 = 0xb0;
pub const STRING_32: u8 = 0xb1;
pub const SYMBOL_32: u8 = 0xb3;

pub const LIST_8: u8 = 0xc0;
pub const MAP_8: u8 = 0xc1;
pub const LIST_32: u8 = 0xd0;
pub const MAP_32: u8 = 0xd1;
pub const ARRAY_8: u8 = 0xe0;
pub const ARRAY_32: u8 = 0xf0;

/// Descriptors of the sections of a message.
pub mod section {
    pub const HEADER: u8 = 0x70;
    pub const DELIVERY_ANNOTATIONS: u8 = 0x71;
    pub const MESSAGE_ANNOTATIONS: u8 = 0x72;
    pub const PROPERTIES: u8 = 0x73;
    pub const APPLICATION_PROPERTIES: u8 = 0x74;
    pub const DATA: u8 = 0x75;
    pub const AMQP_SEQUENCE: u8 = 0x76;
    pub const AMQP_VALUE: u8 = 0x77;
    pub const FOOTER: u8 = 0x78;
}

/// The length of the data after a format code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// This many bytes.
    Fixed(usize),
    /// The value of the one-byte length before it.
    Length8,
    /// The value of the four-byte length before it.
    Length32,
    /// The value of a one-byte size, which includes a one-byte count.
    Compound8,
    /// The value of a four-byte size, which includes a four-byte count.
    Compound32,
}

impl Width {
    /// The width for a format code; `None` for a code that is not in the specification.
    #[inline]
    pub(crate) fn of(code: u8) -> Option<Self> {
        Some(match code {
            NULL | TRUE | FALSE | UINT_0 | ULONG_0 | LIST_0 => Self::Fixed(0),
            UBYTE | BYTE | SMALL_UINT | SMALL_ULONG | SMALL_INT | SMALL_LONG | BOOLEAN => Self::Fixed(1),
            USHORT | SHORT => Self::Fixed(2),
            UINT | INT | FLOAT | CHAR | DECIMAL_32 => Self::Fixed(4),
            ULONG | LONG | DOUBLE | TIMESTAMP | DECIMAL_64 => Self::Fixed(8),
            DECIMAL_128 | UUID => Self::Fixed(16),
            BINARY_8 | STRING_8 | SYMBOL_8 => Self::Length8,
            BINARY_32 | STRING_32 | SYMBOL_32 => Self::Length32,
            LIST_8 | MAP_8 | ARRAY_8 => Self::Compound8,
            LIST_32 | MAP_32 | ARRAY_32 => Self::Compound32,
            _ => return None,
        })
    }
}
