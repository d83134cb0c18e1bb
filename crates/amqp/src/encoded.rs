//! AMQP values that are kept as encoded bytes: link properties, filters, capabilities.
//!
//! Performatives carry maps that only the application understands. They are checked when they are received,
//! kept as bytes, decoded on demand, and echoed without having been decoded.

use std::fmt;

use crate::check::check;
use crate::decode::{Malformed, Reader};
use crate::encode;
use crate::format_codes as code;
use crate::value::Value;

/// The bytes of exactly one well-formed value.
#[derive(Clone, PartialEq, Eq)]
pub struct Encoded(Box<[u8]>);

impl Encoded {
    /// Copies the encoding of one value, after a check of everything in it.
    pub fn copy(bytes: &[u8]) -> Result<Self, Malformed> {
        check(bytes)?;
        Ok(Self(bytes.into()))
    }

    /// The encoding of a value that is not [`Value::Encoded`], or of one whose bytes are well-formed.
    pub fn of(value: Value<'_>) -> Self {
        let mut bytes = Vec::new();
        encode::value(&mut bytes, value);
        Self(bytes.into())
    }

    /// A map whose keys are symbols.
    ///
    /// ```
    /// use ephor_amqp::{Encoded, Value};
    /// let properties = Encoded::map([("com.microsoft:epoch", Value::Long(7))]);
    /// assert_eq!(properties.get("com.microsoft:epoch"), Some(Value::Long(7)));
    /// ```
    pub fn map<'v>(entries: impl IntoIterator<Item = (&'v str, Value<'v>)>) -> Self {
        let mut bytes = Vec::new();
        let begun = encode::begin(&mut bytes);
        let mut pairs = 0;
        for (key, value) in entries {
            encode::symbol(&mut bytes, key);
            encode::value(&mut bytes, value);
            pairs += 1;
        }
        encode::end_map(&mut bytes, begun, pairs);
        Self(bytes.into())
    }

    /// An array of symbols: capabilities, mechanisms.
    pub fn symbols<'v>(names: impl IntoIterator<Item = &'v str>) -> Self {
        let mut bytes = Vec::new();
        encode::symbols(&mut bytes, names);
        Self(bytes.into())
    }

    /// A described value.
    pub fn described(descriptor: Value<'_>, value: Value<'_>) -> Self {
        let mut bytes = vec![code::DESCRIBED];
        encode::value(&mut bytes, descriptor);
        encode::value(&mut bytes, value);
        Self(bytes.into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The value.
    pub fn value(&self) -> Value<'_> {
        Reader::new(&self.0).value().unwrap_or(Value::Null)
    }

    /// The value of a key in a map; the key may be a symbol or a string there.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.entries().find(|(found, _)| found.text() == Some(key)).map(|(_, value)| value)
    }

    /// The keys and values of a map; empty if the value is not a map.
    pub fn entries(&self) -> impl Iterator<Item = (Value<'_>, Value<'_>)> {
        let mut items = Reader::new(&self.0).map().ok();
        std::iter::from_fn(move || {
            let items = items.as_mut()?;
            Some((items.next().ok()??, items.next().ok()??))
        })
    }

    /// The names in an array of symbols or strings, or the single name that some peers write instead of an
    /// array.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let single = self.value().text();
        let mut array = Names::of(&self.0);
        let mut single = single.into_iter();
        std::iter::from_fn(move || single.next().or_else(|| array.as_mut()?.next()))
    }

    /// True if a name is among [`Self::names`].
    pub fn has_name(&self, name: &str) -> bool {
        self.names().any(|found| found == name)
    }
}

impl fmt::Debug for Encoded {
    /// Shows only the size, because an application may put secrets in here.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Encoded({} bytes)", self.0.len())
    }
}

/// The elements of an array of symbols or strings.
struct Names<'a> {
    reader: Reader<'a>,
    bytes: &'a [u8],
    left: usize,
    wide: bool,
}

impl<'a> Names<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let left = match reader.byte().ok()? {
            code::ARRAY_8 => {
                reader.byte().ok()?;
                reader.byte().ok()?.into()
            }
            code::ARRAY_32 => {
                reader.four().ok()?;
                reader.four().ok()?
            }
            _ => return None,
        };
        let wide = match reader.byte().ok()? {
            code::SYMBOL_8 | code::STRING_8 => false,
            code::SYMBOL_32 | code::STRING_32 => true,
            _ => return None,
        };
        Some(Self { reader, bytes, left, wide })
    }

    fn next(&mut self) -> Option<&'a str> {
        self.left = self.left.checked_sub(1)?;
        let length = if self.wide { self.reader.four().ok()? } else { self.reader.byte().ok()?.into() };
        let start = self.reader.at();
        let end = start.checked_add(length)?;
        let text = std::str::from_utf8(self.bytes.get(start..end)?).ok()?;
        self.reader = Reader::starting(self.bytes, end);
        Some(text)
    }
}
