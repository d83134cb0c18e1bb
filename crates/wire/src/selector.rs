//! Selector filters: the start position of a receiver, as SDKs write it in the filter of a link's source.
//!
//! ```text
//! amqp.annotation.x-opt-offset > '-1'                from the beginning
//! amqp.annotation.x-opt-offset > '@latest'           only events that come from now on
//! amqp.annotation.x-opt-sequence-number >= '12345'   at this event; with > after it
//! amqp.annotation.x-opt-enqueued-time > '1700000000000'     also by its older name, x-opt-enqueuedtimeutc
//! ```
//!
//! The value may have no quotes, and the operator no space after it. The filter map holds the selector as a
//! described string, and three descriptors are in use for it.

use ephor_amqp::{Malformed, Reader, Value, encode};
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::time::Timestamp;

use crate::annotations::{ENQUEUED_TIME, OFFSET, SEQUENCE_NUMBER};
use crate::peer_text::quoted;

/// The filter's name in the map, and one of its descriptors.
pub const FILTER: &str = "apache.org:selector-filter:string";

/// The descriptor that the JavaScript, Rust and Go SDKs write, and our client.
pub const DESCRIPTOR: u64 = 0x468C_0000_0004;

/// The descriptor that the .NET SDK writes.
pub const DESCRIPTOR_OF_NET: u64 = 0x0137_0000_000A;

/// The maximum length of a selector, in bytes. A longer one is refused before it is parsed.
pub const MAX_SELECTOR_LENGTH: usize = 1024;

const ANNOTATION: &str = "amqp.annotation.";
/// The older name of the enqueued time in selectors, which the service knows, too: npm azure-event-hubs 0.0.8,
/// azure-event-hubs-c and Microsoft's tutorials write it.
const ENQUEUED_TIME_UTC: &str = "x-opt-enqueuedtimeutc";
const EARLIEST: &str = "-1";
const LATEST: &str = "@latest";

/// The start position of a receiver. Unlike [`StartPosition`] it can express every selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest event.
    Earliest,
    /// At the end of the log at the moment of attaching.
    Latest {
        /// True if the receiver gets the newest existing event as well.
        inclusive: bool,
    },
    /// At an offset, or after it.
    Offset {
        /// The event's offset.
        offset: Offset,
        /// True if that event itself is received.
        inclusive: bool,
    },
    /// At a sequence number, or after it.
    Sequence {
        /// The event's sequence number.
        number: SequenceNumber,
        /// True if that event itself is received.
        inclusive: bool,
    },
    /// At a time, or after it.
    EnqueuedTime {
        /// The time.
        time: Timestamp,
        /// True if events of exactly this millisecond are received.
        inclusive: bool,
    },
}

/// The reason why a selector was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSelector {
    /// The selector cannot be parsed. The text is the service's.
    #[error("The filter '{0}' is not a valid amqp filter for EventHub entities")]
    Filter(String),
    /// The filter set is not a map, or is malformed.
    #[error("the filter set is malformed: {0}")]
    Malformed(#[from] Malformed),
}

impl Start {
    /// Parses a selector.
    pub fn parse(selector: &str) -> Result<Self, InvalidSelector> {
        let refuse = || InvalidSelector::Filter(quoted(selector));
        if selector.len() > MAX_SELECTOR_LENGTH {
            return Err(refuse());
        }
        Self::understood(selector).ok_or_else(refuse)
    }

    fn understood(selector: &str) -> Option<Self> {
        let expression = selector.trim().strip_prefix(ANNOTATION)?;
        let (name, rest) = expression.split_once('>')?;
        let (inclusive, rest) = match rest.strip_prefix('=') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let value = unquoted(rest.trim())?;
        match name.trim_end() {
            OFFSET | SEQUENCE_NUMBER if value == EARLIEST => Some(Self::Earliest),
            OFFSET | SEQUENCE_NUMBER if value.eq_ignore_ascii_case(LATEST) => {
                Some(Self::Latest { inclusive })
            }
            OFFSET => Some(Self::Offset { offset: Offset::new(value), inclusive }),
            SEQUENCE_NUMBER => {
                // Every event is after a negative number.
                match value.parse::<i64>() {
                    Ok(..0) => Some(Self::Earliest),
                    _ => Some(Self::Sequence { number: SequenceNumber(value.parse().ok()?), inclusive }),
                }
            }
            ENQUEUED_TIME | ENQUEUED_TIME_UTC => {
                Some(Self::EnqueuedTime { time: Timestamp(value.parse().ok()?), inclusive })
            }
            _ => None,
        }
    }

    /// The selector for this position.
    pub fn selector(&self) -> String {
        let (name, inclusive, value) = match self {
            Self::Earliest => (OFFSET, false, EARLIEST.to_owned()),
            Self::Latest { inclusive } => (OFFSET, *inclusive, LATEST.to_owned()),
            Self::Offset { offset, inclusive } => (OFFSET, *inclusive, offset.to_string()),
            Self::Sequence { number, inclusive } => (SEQUENCE_NUMBER, *inclusive, number.to_string()),
            Self::EnqueuedTime { time, inclusive } => (ENQUEUED_TIME, *inclusive, time.0.to_string()),
        };
        let operator = if inclusive { ">=" } else { ">" };
        format!("{ANNOTATION}{name} {operator} '{value}'")
    }

    /// Reads the filter set of a source: one encoded value, a map or null. Without a filter the position is
    /// the beginning. Unknown filters are ignored, as the specification requires.
    pub fn from_filter(set: &[u8]) -> Result<Self, InvalidSelector> {
        let mut reader = Reader::new(set);
        if reader.is_empty() || reader.clone().value()? == Value::Null {
            return Ok(Self::Earliest);
        }
        let mut items = reader.map()?;
        while let Some(key) = items.next()? {
            let Some(value) = items.next()? else { break };
            if let Some(selector) = selector_of(key, value)? {
                return Self::parse(selector);
            }
        }
        Ok(Self::Earliest)
    }

    /// Writes the filter set for this position: a map with one filter.
    pub fn write_filter(&self, into: &mut Vec<u8>) {
        let map = encode::begin(into);
        encode::symbol(into, FILTER);
        encode::described(into, DESCRIPTOR);
        encode::string(into, &self.selector());
        encode::end_map(into, map, 1);
    }

    /// The position to open a receiver at. `last` is the newest event at this moment, with which an inclusive
    /// `@latest` begins.
    pub fn position(self, last: Option<SequenceNumber>) -> StartPosition {
        match self {
            Self::Earliest => StartPosition::Earliest,
            Self::Latest { inclusive: true } => last.map_or(StartPosition::Latest, StartPosition::at),
            Self::Latest { inclusive: false } => StartPosition::Latest,
            Self::Offset { offset, inclusive } => StartPosition::Offset { offset, inclusive },
            Self::Sequence { number, inclusive } => StartPosition::Sequence { number, inclusive },
            Self::EnqueuedTime { time, inclusive } => {
                // A time is in whole milliseconds: after one means at the next.
                StartPosition::EnqueuedTime(Timestamp(time.0.saturating_add((!inclusive).into())))
            }
        }
    }
}

impl From<StartPosition> for Start {
    fn from(position: StartPosition) -> Self {
        match position {
            StartPosition::Earliest => Self::Earliest,
            StartPosition::Latest => Self::Latest { inclusive: false },
            StartPosition::Sequence { number, inclusive } => Self::Sequence { number, inclusive },
            StartPosition::Offset { offset, inclusive } => Self::Offset { offset, inclusive },
            StartPosition::EnqueuedTime(time) => Self::EnqueuedTime { time, inclusive: true },
        }
    }
}

/// The text without its single quotes, if it has any. None if it is empty or has other quotes.
fn unquoted(text: &str) -> Option<&str> {
    let inner = match text.strip_prefix('\'') {
        Some(rest) => rest.strip_suffix('\'')?,
        None => text,
    };
    (!inner.is_empty() && !inner.contains('\'')).then_some(inner)
}

/// The selector of a filter, if the filter is a selector by its name or by its descriptor.
fn selector_of<'a>(key: Value<'a>, value: Value<'a>) -> Result<Option<&'a str>, InvalidSelector> {
    let named = key.text() == Some(FILTER);
    let (known, held) = match value {
        Value::Encoded(bytes) if bytes.first() == Some(&ephor_amqp::format_codes::DESCRIBED) => {
            let mut reader = Reader::starting(bytes, 1);
            let descriptor = reader.value()?;
            let known = descriptor.text() == Some(FILTER)
                || matches!(descriptor, Value::Ulong(DESCRIPTOR | DESCRIPTOR_OF_NET));
            (known, reader.value()?)
        }
        other => (false, other),
    };
    match held.text() {
        Some(selector) if named || known => Ok(Some(selector)),
        None if named => Err(InvalidSelector::Filter("(not text)".into())),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
