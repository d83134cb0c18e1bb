//! Decodes and encodes the fields of a performative in their order.
//!
//! Decoding is lenient where that costs nothing: fields that are left out at the end are null, fields that
//! the specification does not have are ignored, and a number may be encoded wider than necessary. Encoding is
//! not: every field is written, null or not, because Azure's Python SDK finds fields by their position and
//! fails on a list that is cut short.

use crate::decode::{Items, Reader};
use crate::encode::{self, Begun};
use crate::encoded::Encoded;
use crate::performative::{BadPerformative, Error, descriptor};
use crate::value::Value;

/// The fields of a performative that is being decoded.
pub(crate) struct Fields<'a> {
    items: Items<'a>,
    of: &'static str,
}

impl<'a> Fields<'a> {
    /// The fields of the next list in `reader`.
    pub(crate) fn of(reader: &mut Reader<'a>, of: &'static str) -> Result<Self, BadPerformative> {
        Ok(Self { items: reader.list()?, of })
    }

    /// The fields of a described list inside of a field.
    pub(crate) fn inside(
        encoded: &'a [u8],
        wanted: u8,
        of: &'static str,
    ) -> Result<Option<Self>, BadPerformative> {
        let mut reader = Reader::new(encoded);
        match read_descriptor(&mut reader)? {
            Some(found) if found == wanted => Ok(Some(Self::of(&mut reader, of)?)),
            _ => Ok(None),
        }
    }

    /// The next field, of any type.
    pub(crate) fn any(&mut self) -> Result<Value<'a>, BadPerformative> {
        Ok(self.items.next()?.unwrap_or(Value::Null))
    }

    pub(crate) fn ubyte(&mut self, field: &'static str) -> Result<Option<u8>, BadPerformative> {
        self.unsigned(field, "a ubyte")
    }

    pub(crate) fn ushort(&mut self, field: &'static str) -> Result<Option<u16>, BadPerformative> {
        self.unsigned(field, "a ushort")
    }

    pub(crate) fn uint(&mut self, field: &'static str) -> Result<Option<u32>, BadPerformative> {
        self.unsigned(field, "a uint")
    }

    pub(crate) fn ulong(&mut self, field: &'static str) -> Result<Option<u64>, BadPerformative> {
        self.unsigned(field, "a ulong")
    }

    pub(crate) fn bool(&mut self, field: &'static str) -> Result<Option<bool>, BadPerformative> {
        match self.any()? {
            Value::Null => Ok(None),
            Value::Bool(value) => Ok(Some(value)),
            _ => Err(self.wrong(field, "a boolean")),
        }
    }

    pub(crate) fn text(&mut self, field: &'static str) -> Result<Option<String>, BadPerformative> {
        match self.any()? {
            Value::Null => Ok(None),
            Value::String(text) | Value::Symbol(text) => Ok(Some(text.to_owned())),
            _ => Err(self.wrong(field, "a string")),
        }
    }

    pub(crate) fn binary(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, BadPerformative> {
        match self.any()? {
            Value::Null => Ok(None),
            Value::Binary(bytes) => Ok(Some(bytes)),
            _ => Err(self.wrong(field, "a binary")),
        }
    }

    /// A field that is kept in its encoding, after a check of everything in it.
    pub(crate) fn encoded(&mut self) -> Result<Option<Encoded>, BadPerformative> {
        match self.any()? {
            Value::Null => Ok(None),
            Value::Encoded(bytes) => Ok(Some(Encoded::copy(bytes)?)),
            value => Ok(Some(Encoded::of(value))),
        }
    }

    pub(crate) fn error(&mut self, field: &'static str) -> Result<Option<Error>, BadPerformative> {
        match self.any()? {
            Value::Null => Ok(None),
            Value::Encoded(bytes) => match Fields::inside(bytes, descriptor::ERROR, "error")? {
                Some(fields) => Error::read(fields).map(Some),
                None => Err(self.wrong(field, "an error")),
            },
            _ => Err(self.wrong(field, "an error")),
        }
    }

    pub(crate) fn wrong(&self, field: &'static str, wanted: &'static str) -> BadPerformative {
        BadPerformative::Field { performative: self.of, field, wanted }
    }

    pub(crate) fn need<T>(&self, value: Option<T>, field: &'static str) -> Result<T, BadPerformative> {
        value.ok_or(BadPerformative::Missing { performative: self.of, field })
    }

    fn unsigned<T: TryFrom<u64>>(
        &mut self,
        field: &'static str,
        wanted: &'static str,
    ) -> Result<Option<T>, BadPerformative> {
        let value = match self.any()? {
            Value::Null => return Ok(None),
            Value::Ubyte(value) => value.into(),
            Value::Ushort(value) => value.into(),
            Value::Uint(value) => value.into(),
            Value::Ulong(value) => value,
            _ => return Err(self.wrong(field, wanted)),
        };
        T::try_from(value).map(Some).map_err(|_| self.wrong(field, wanted))
    }
}

/// Reads a descriptor; `None` for an unknown one.
pub(crate) fn read_descriptor(reader: &mut Reader<'_>) -> Result<Option<u8>, BadPerformative> {
    if reader.byte()? != crate::format_codes::DESCRIBED {
        return Err(BadPerformative::NotDescribed);
    }
    Ok(match reader.value()? {
        Value::Ulong(number) => u8::try_from(number).ok(),
        Value::Symbol(name) => descriptor::of_name(name),
        _ => None,
    })
}

/// Encodes the fields of a performative.
pub(crate) struct FieldWriter<'a> {
    into: &'a mut Vec<u8>,
    begun: Begun,
    count: usize,
}

impl<'a> FieldWriter<'a> {
    pub(crate) fn new(into: &'a mut Vec<u8>, descriptor: u8) -> Self {
        encode::described(into, descriptor.into());
        let begun = encode::begin(into);
        Self { into, begun, count: 0 }
    }

    /// Writes the next field; `write` has to write exactly one value.
    pub(crate) fn one(mut self, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        write(self.into);
        self.count += 1;
        self
    }

    fn maybe<T>(self, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) -> Self {
        self.one(|into| match value {
            Some(value) => write(into, value),
            None => encode::null(into),
        })
    }

    pub(crate) fn nulls(self, count: usize) -> Self {
        (0..count).fold(self, |fields, _| fields.one(encode::null))
    }

    pub(crate) fn ubyte(self, value: impl Into<Option<u8>>) -> Self {
        self.maybe(value.into(), encode::ubyte)
    }

    pub(crate) fn ushort(self, value: impl Into<Option<u16>>) -> Self {
        self.maybe(value.into(), encode::ushort)
    }

    pub(crate) fn uint(self, value: impl Into<Option<u32>>) -> Self {
        self.maybe(value.into(), encode::uint)
    }

    pub(crate) fn ulong(self, value: impl Into<Option<u64>>) -> Self {
        self.maybe(value.into(), encode::ulong)
    }

    pub(crate) fn bool(self, value: impl Into<Option<bool>>) -> Self {
        self.maybe(value.into(), encode::bool)
    }

    pub(crate) fn string<'s>(self, value: impl Into<Option<&'s str>>) -> Self {
        self.maybe(value.into(), encode::string)
    }

    pub(crate) fn symbol<'s>(self, value: impl Into<Option<&'s str>>) -> Self {
        self.maybe(value.into(), encode::symbol)
    }

    pub(crate) fn binary<'s>(self, value: impl Into<Option<&'s [u8]>>) -> Self {
        self.maybe(value.into(), encode::binary)
    }

    pub(crate) fn encoded(self, value: Option<&Encoded>) -> Self {
        self.maybe(value, |into, value| into.extend_from_slice(value.as_bytes()))
    }

    pub(crate) fn error(self, value: Option<&Error>) -> Self {
        self.maybe(value, |into, error| error.write(into))
    }

    pub(crate) fn end(self) {
        encode::end_list(self.into, self.begun, self.count);
    }
}
