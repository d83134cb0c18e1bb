//! Decodes AMQP values from untrusted bytes.
//!
//! A [`Reader`] moves forward over a slice. Compound values carry their size, so skipping one reads only its
//! first bytes; entering one ([`Reader::list`], [`Reader::map`]) returns [`Items`] that cannot read beyond
//! it. Positions in errors count from the start of the slice, also inside of compound values.

use std::ops::Range;

use crate::format_codes::{self as code, Width};
use crate::value::Value;

/// The deepest nesting of values, where the nesting has to be followed.
pub const MAX_NESTING: usize = 32;

const TOO_SHORT: &str = "ends too early";

/// The error of text that cannot be read as such.
pub(crate) const NOT_UTF_8: &str = "text that is not UTF-8";

/// Bytes that violate the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed AMQP at byte {at}: {what}")]
pub struct Malformed {
    /// The index into the bytes that were read.
    pub at: usize,
    /// The error at that place.
    pub what: &'static str,
}

impl Malformed {
    /// An error at this place.
    pub fn new(at: usize, what: &'static str) -> Self {
        Self { at, what }
    }
}

/// A cursor over bytes, from which values are decoded.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// A reader at byte `at`; positions still count from the start of `bytes`.
    pub fn starting(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at: at.min(bytes.len()) }
    }

    /// The current position.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// True if everything is read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// The next byte, which is not consumed.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Decodes the next value. A compound or described value stays encoded.
    pub fn value(&mut self) -> Result<Value<'a>, Malformed> {
        let start = self.at;
        match self.byte()? {
            code::DESCRIBED => {
                self.at = start;
                self.skip().map(|range| Value::Encoded(&self.bytes[range]))
            }
            code => self.primitive(code, start),
        }
    }

    /// Skips the next value, and returns its range.
    pub fn skip(&mut self) -> Result<Range<usize>, Malformed> {
        let start = self.at;
        // A described value is two values in a row, and so may a descriptor be.
        let mut pending = 1;
        while pending > 0 {
            let at = self.at;
            match self.byte()? {
                code::DESCRIBED if pending == MAX_NESTING => {
                    return Err(Malformed::new(at, "descriptors nested too deeply"));
                }
                code::DESCRIBED => pending += 1,
                code => {
                    self.data(code)?;
                    pending -= 1;
                }
            }
        }
        Ok(start..self.at)
    }

    /// Enters the next value, which has to be a list.
    pub fn list(&mut self) -> Result<Items<'a>, Malformed> {
        match self.peek() {
            Some(code::LIST_0 | code::LIST_8 | code::LIST_32) => self.compound(),
            _ => Err(Malformed::new(self.at, "not a list")),
        }
    }

    /// Enters the next value, which has to be a map: keys and values alternate.
    pub fn map(&mut self) -> Result<Items<'a>, Malformed> {
        match self.peek() {
            Some(code::MAP_8 | code::MAP_32) => self.compound(),
            _ => Err(Malformed::new(self.at, "not a map")),
        }
    }

    /// Enters the next value, which has to be a list or a map.
    pub(crate) fn compound(&mut self) -> Result<Items<'a>, Malformed> {
        let start = self.at;
        let code = self.byte()?;
        let data = self.data(code)?;
        let narrow = match code {
            code::LIST_0 => {
                return Ok(Items { reader: Self::starting(&self.bytes[..self.at], self.at), left: 0 });
            }
            code::LIST_8 | code::MAP_8 => true,
            code::LIST_32 | code::MAP_32 => false,
            _ => return Err(Malformed::new(start, "neither a list nor a map")),
        };
        let mut reader = Self { bytes: &self.bytes[..data.end], at: data.start };
        let left = if narrow { reader.byte()?.into() } else { reader.four()? };
        if left > data.end - reader.at {
            return Err(Malformed::new(start, "more items than bytes"));
        }
        if left % 2 != 0 && matches!(code, code::MAP_8 | code::MAP_32) {
            return Err(Malformed::new(start, "a key without a value"));
        }
        Ok(Items { reader, left })
    }

    /// The value whose format code, at `start`, has just been read.
    pub(crate) fn primitive(&mut self, code: u8, start: usize) -> Result<Value<'a>, Malformed> {
        let data = &self.bytes[self.data(code)?];
        let at = self.at - data.len();
        let text = || std::str::from_utf8(data).map_err(|_| Malformed::new(at, NOT_UTF_8));
        Ok(match code {
            code::NULL => Value::Null,
            code::TRUE => Value::Bool(true),
            code::FALSE => Value::Bool(false),
            code::BOOLEAN => match data {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                _ => return Err(Malformed::new(at, "neither true nor false")),
            },
            code::UBYTE => Value::Ubyte(u8::from_be_bytes(fixed(data))),
            code::USHORT => Value::Ushort(u16::from_be_bytes(fixed(data))),
            code::UINT_0 | code::SMALL_UINT | code::UINT => Value::Uint(u32::from_be_bytes(widened(data))),
            code::ULONG_0 | code::SMALL_ULONG | code::ULONG => {
                Value::Ulong(u64::from_be_bytes(widened(data)))
            }
            code::BYTE => Value::Byte(i8::from_be_bytes(fixed(data))),
            code::SHORT => Value::Short(i16::from_be_bytes(fixed(data))),
            code::SMALL_INT => Value::Int(i8::from_be_bytes(fixed(data)).into()),
            code::INT => Value::Int(i32::from_be_bytes(fixed(data))),
            code::SMALL_LONG => Value::Long(i8::from_be_bytes(fixed(data)).into()),
            code::LONG => Value::Long(i64::from_be_bytes(fixed(data))),
            code::FLOAT => Value::Float(f32::from_be_bytes(fixed(data))),
            code::DOUBLE => Value::Double(f64::from_be_bytes(fixed(data))),
            code::CHAR => match char::from_u32(u32::from_be_bytes(fixed(data))) {
                Some(character) => Value::Char(character),
                None => return Err(Malformed::new(at, "not a character")),
            },
            code::TIMESTAMP => Value::Timestamp(i64::from_be_bytes(fixed(data))),
            code::UUID => Value::Uuid(fixed(data)),
            code::BINARY_8 | code::BINARY_32 => Value::Binary(data),
            code::STRING_8 | code::STRING_32 => Value::String(text()?),
            code::SYMBOL_8 | code::SYMBOL_32 => Value::Symbol(text()?),
            _ => Value::Encoded(&self.bytes[start..self.at]),
        })
    }

    /// Skips the data of a value whose format code has just been read, and returns its range: after the
    /// length of a variable-width value, and from the count on of a compound one.
    #[inline]
    pub(crate) fn data(&mut self, code: u8) -> Result<Range<usize>, Malformed> {
        let at = self.at.saturating_sub(1);
        let width = Width::of(code).ok_or(Malformed::new(at, "unknown format code"))?;
        let (length, least) = match width {
            Width::Fixed(length) => (length, 0),
            Width::Length8 => (usize::from(self.byte()?), 0),
            Width::Length32 => (self.four()?, 0),
            Width::Compound8 => (usize::from(self.byte()?), 1),
            Width::Compound32 => (self.four()?, 4),
        };
        if length < least {
            return Err(Malformed::new(at, "a size that leaves no room for the count"));
        }
        if length > self.bytes.len() - self.at {
            return Err(Malformed::new(self.at, TOO_SHORT));
        }
        let start = self.at;
        self.at += length;
        Ok(start..self.at)
    }

    /// Skips a value that is not described, and returns the range of its data; see [`Self::data`].
    #[inline]
    pub(crate) fn undescribed(&mut self) -> Result<Range<usize>, Malformed> {
        let code = self.byte()?;
        self.data(code)
    }

    /// The next byte.
    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = self.peek().ok_or(Malformed::new(self.at, TOO_SHORT))?;
        self.at += 1;
        Ok(byte)
    }

    /// The next four bytes as a number.
    #[inline]
    pub(crate) fn four(&mut self) -> Result<usize, Malformed> {
        let four = self.bytes[self.at..].first_chunk().ok_or(Malformed::new(self.at, TOO_SHORT))?;
        self.at += four.len();
        Ok(u32::from_be_bytes(*four) as usize)
    }
}

/// The items of a list or a map.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl<'a> Items<'a> {
    /// The number of items that are left. There is at least a byte for each of them.
    pub fn left(&self) -> usize {
        self.left
    }

    /// The position of the next item.
    #[inline]
    pub fn at(&self) -> usize {
        self.reader.at()
    }

    /// The first byte of the next item: its format code.
    pub(crate) fn peek(&self) -> Option<u8> {
        if self.left == 0 { None } else { self.reader.peek() }
    }

    /// Skips the next item, whatever it contains; false after the last.
    pub(crate) fn skip(&mut self) -> Result<bool, Malformed> {
        if self.left == 0 {
            return self.next().map(|_| false);
        }
        self.left -= 1;
        self.reader.skip().map(|_| true)
    }

    /// The next item; `None` after the last, if the last one ends where the list or map does. An item that
    /// cannot be read as what it says it is has been consumed, if its size is known.
    // Not an iterator, because that would go on after an error.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Value<'a>>, Malformed> {
        if self.left == 0 {
            return match self.reader.is_empty() {
                true => Ok(None),
                false => Err(Malformed::new(self.reader.at(), "bytes after the last item")),
            };
        }
        self.left -= 1;
        self.reader.value().map(Some)
    }
}

/// `data` as exactly `N` bytes; the format code guarantees the length.
fn fixed<const N: usize>(data: &[u8]) -> [u8; N] {
    debug_assert_eq!(data.len(), N);
    widened(data)
}

/// `data`, padded with zeros in front to `N` bytes.
#[inline]
fn widened<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let length = data.len().min(N);
    bytes[N - length..].copy_from_slice(&data[..length]);
    bytes
}
