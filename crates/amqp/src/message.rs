//! Finds the sections of an encoded message without decoding their content.
//!
//! ```text
//! header? delivery-annotations? message-annotations? properties? application-properties? footer?
//! ( data+ | amqp-sequence+ | amqp-value )? footer? delivery-annotations?
//! ```
//!
//! That is the order of the specification (part 3, section 3.2), with three exceptions that occur in practice:
//! Azure's Python SDK writes the delivery annotations last, rhea, on which the JavaScript SDK is based, writes
//! the footer before the body, and generic clients leave the body out. A section that occurs twice is refused.

use std::ops::Range;

use crate::decode::{Malformed, Reader};
use crate::format_codes::{self as code, section};
use crate::value::Value;

/// The error of a section whose value has another type than the specification gives it.
pub(crate) const NOT_THE_TYPE: &str = "not the type of this section";

/// The place of a section: indexes into the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The index of its first byte, where the descriptor begins.
    pub start: usize,
    /// The index at which the described value begins.
    pub value: usize,
    /// The index after its last byte.
    pub end: usize,
}

impl Section {
    /// The section as it was sent, with its descriptor.
    pub fn whole(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// The kind of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// Bytes, in one or more sections.
    Data,
    /// Lists, in one or more sections.
    Sequence,
    /// One value of any type.
    Value,
}

/// The body of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// Its kind.
    pub kind: BodyKind,
    /// All its sections, which are contiguous. Without any, the place where they would be.
    pub whole: Range<usize>,
    /// The content of the first section: the bytes of a data section, without format code and length;
    /// otherwise the encoded value.
    pub content: Range<usize>,
    /// The number of its sections: 0 for a message without a body, which then counts as empty data.
    pub sections: usize,
}

/// The places of the sections of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sections {
    /// A list: durable, priority and the like.
    pub header: Option<Section>,
    /// A map for the next node only.
    pub delivery_annotations: Option<Section>,
    /// A map for all nodes on the way.
    pub message_annotations: Option<Section>,
    /// A list: message-id, content-type and the like.
    pub properties: Option<Section>,
    /// A map that only the application reads.
    pub application_properties: Option<Section>,
    /// The body.
    pub body: Body,
    /// A map that can only be computed after the body.
    pub footer: Option<Section>,
}

impl Sections {
    /// Finds the sections of a message. The size of each is checked, its content is not.
    pub fn scan(message: &[u8]) -> Result<Self, Malformed> {
        let mut found = Self {
            header: None,
            delivery_annotations: None,
            message_annotations: None,
            properties: None,
            application_properties: None,
            body: Body { kind: BodyKind::Data, whole: 0..0, content: 0..0, sections: 0 },
            footer: None,
        };
        let mut reader = Reader::new(message);
        if reader.is_empty() {
            return Err(Malformed::new(0, "an empty message"));
        }
        let (mut rank, mut before_body) = (0, 0);
        while !reader.is_empty() {
            rank = found.section(&mut reader, rank)?;
            if rank < rank::EARLY_FOOTER {
                before_body = reader.at();
            }
        }
        if found.body.sections == 0 {
            (found.body.whole, found.body.content) = (before_body..before_body, before_body..before_body);
        }
        Ok(found)
    }

    /// The footer, if it was written before the body. It ends where the body begins.
    pub fn early_footer(&self) -> Option<Section> {
        self.footer.filter(|footer| footer.start < self.body.whole.start)
    }

    /// The number of data sections of the body.
    pub fn data_sections(&self) -> usize {
        if self.body.kind == BodyKind::Data { self.body.sections } else { 0 }
    }

    /// The content of each data section. `message` has to be the one that was scanned.
    pub fn data<'a>(&self, message: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let sections = self.data_sections();
        let mut reader = Reader::starting(message, self.body.whole.start);
        // Another message may have fewer: that ends the iteration.
        (0..sections).map_while(move |_| {
            descriptor(&mut reader).ok()?;
            match reader.value() {
                Ok(Value::Binary(content)) => Some(content),
                _ => None,
            }
        })
    }
}

/// Ranks in the order of sections. Delivery annotations have two: their own, and the end. So has the footer: its
/// own, and before the body.
mod rank {
    pub(super) const HEADER: u8 = 1;
    pub(super) const DELIVERY_ANNOTATIONS: u8 = 2;
    pub(super) const MESSAGE_ANNOTATIONS: u8 = 3;
    pub(super) const PROPERTIES: u8 = 4;
    pub(super) const APPLICATION_PROPERTIES: u8 = 5;
    pub(super) const EARLY_FOOTER: u8 = 6;
    pub(super) const BODY: u8 = 7;
    pub(super) const FOOTER: u8 = 8;
    pub(super) const LATE_DELIVERY_ANNOTATIONS: u8 = 9;
}

impl Sections {
    /// Reads the next section, and returns its rank in the order of sections; `before` is the rank of the
    /// previous one.
    #[inline]
    fn section(&mut self, reader: &mut Reader<'_>, before: u8) -> Result<u8, Malformed> {
        let start = reader.at();
        let code = descriptor(reader)?;
        let value = reader.at();
        let format = reader.peek().unwrap_or(code::DESCRIBED);
        // A described value has no length of its own; only amqp-value may be one, and needs none.
        let content = if format == code::DESCRIBED { reader.skip()? } else { reader.undescribed()? };
        let place = Section { start, value, end: reader.at() };
        let is_list = matches!(format, code::LIST_0 | code::LIST_8 | code::LIST_32);
        let is_map = matches!(format, code::MAP_8 | code::MAP_32);
        let is_binary = matches!(format, code::BINARY_8 | code::BINARY_32);
        let whole = value..place.end;
        let (rank, fits) = match code {
            section::HEADER => (rank::HEADER, is_list),
            section::DELIVERY_ANNOTATIONS if before <= rank::DELIVERY_ANNOTATIONS => {
                (rank::DELIVERY_ANNOTATIONS, is_map)
            }
            section::DELIVERY_ANNOTATIONS => (rank::LATE_DELIVERY_ANNOTATIONS, is_map),
            section::MESSAGE_ANNOTATIONS => (rank::MESSAGE_ANNOTATIONS, is_map),
            section::PROPERTIES => (rank::PROPERTIES, is_list),
            section::APPLICATION_PROPERTIES => (rank::APPLICATION_PROPERTIES, is_map),
            section::DATA => (rank::BODY, is_binary),
            section::AMQP_SEQUENCE => (rank::BODY, is_list),
            section::AMQP_VALUE => (rank::BODY, true),
            section::FOOTER if before < rank::BODY => (rank::EARLY_FOOTER, is_map),
            section::FOOTER => (rank::FOOTER, is_map),
            _ => return Err(Malformed::new(start, "an unknown section")),
        };
        if rank < before {
            return Err(Malformed::new(start, "a section out of order"));
        }
        if !fits {
            return Err(Malformed::new(value, NOT_THE_TYPE));
        }
        let slot = match code {
            section::DATA => return self.add_body(BodyKind::Data, place, content).map(|()| rank),
            section::AMQP_SEQUENCE => return self.add_body(BodyKind::Sequence, place, whole).map(|()| rank),
            section::AMQP_VALUE => return self.add_body(BodyKind::Value, place, whole).map(|()| rank),
            section::HEADER => &mut self.header,
            section::DELIVERY_ANNOTATIONS => &mut self.delivery_annotations,
            section::MESSAGE_ANNOTATIONS => &mut self.message_annotations,
            section::PROPERTIES => &mut self.properties,
            section::APPLICATION_PROPERTIES => &mut self.application_properties,
            _ => &mut self.footer,
        };
        if slot.replace(place).is_some() {
            return Err(Malformed::new(start, "a duplicate section"));
        }
        Ok(rank)
    }

    #[inline]
    fn add_body(&mut self, kind: BodyKind, place: Section, content: Range<usize>) -> Result<(), Malformed> {
        let body = &mut self.body;
        if body.sections == 0 {
            *body = Body { kind, whole: place.whole(), content, sections: 1 };
            return Ok(());
        }
        if body.kind != kind {
            return Err(Malformed::new(place.start, "a body of two kinds"));
        }
        if kind == BodyKind::Value {
            return Err(Malformed::new(place.start, "a duplicate section"));
        }
        body.whole.end = place.end;
        body.sections += 1;
        Ok(())
    }
}

/// Reads the descriptor of the next section; `0` for an unknown one.
#[inline]
fn descriptor(reader: &mut Reader<'_>) -> Result<u8, Malformed> {
    let start = reader.at();
    if reader.byte()? != code::DESCRIBED {
        return Err(Malformed::new(start, "not a section"));
    }
    // Nearly all peers write it like this.
    if reader.peek() == Some(code::SMALL_ULONG) {
        reader.byte()?;
        return reader.byte();
    }
    named_otherwise(reader)
}

#[cold]
fn named_otherwise(reader: &mut Reader<'_>) -> Result<u8, Malformed> {
    Ok(match reader.value()? {
        Value::Ulong(number) => u8::try_from(number).unwrap_or(0),
        Value::Symbol(name) => match name {
            "amqp:header:list" => section::HEADER,
            "amqp:delivery-annotations:map" => section::DELIVERY_ANNOTATIONS,
            "amqp:message-annotations:map" => section::MESSAGE_ANNOTATIONS,
            "amqp:properties:list" => section::PROPERTIES,
            "amqp:application-properties:map" => section::APPLICATION_PROPERTIES,
            "amqp:data:binary" => section::DATA,
            "amqp:amqp-sequence:list" => section::AMQP_SEQUENCE,
            "amqp:amqp-value:*" => section::AMQP_VALUE,
            "amqp:footer:map" => section::FOOTER,
            _ => 0,
        },
        _ => 0,
    })
}
