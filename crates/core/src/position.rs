//! Positions in a partition's log: sequence numbers, offsets and start positions.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::time::Timestamp;

/// The number of an event in its partition: 0, 1, 2 …
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct SequenceNumber(pub u64);

impl SequenceNumber {
    /// The number after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The place of an event in its log: an opaque string to everyone but the hub.
///
/// Most offsets are plain numbers. Those are stored without an allocation, so that an event can be
/// passed on cheaply.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Offset(Inner);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Inner {
    Number(u64),
    Text(Arc<str>),
}

impl Offset {
    /// The offset that is written as this number.
    pub const fn number(number: u64) -> Self {
        Self(Inner::Number(number))
    }

    /// The offset with exactly this text.
    pub fn new(text: &str) -> Self {
        match text.parse::<u64>() {
            Ok(number) if number.to_string() == text => Self(Inner::Number(number)),
            _ => Self(Inner::Text(Arc::from(text))),
        }
    }

    /// The number, if the offset is one.
    pub fn as_number(&self) -> Option<u64> {
        match self.0 {
            Inner::Number(number) => Some(number),
            Inner::Text(_) => None,
        }
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Number(number) => number.fmt(f),
            Inner::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{self}")
    }
}

impl FromStr for Offset {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::new(text))
    }
}

/// The position at which a receiver starts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
pub enum StartPosition {
    /// At the oldest event that is kept.
    Earliest,
    /// After the newest event: only events that arrive from now on.
    Latest,
    /// At an event, or right after it.
    Sequence {
        /// The event.
        number: SequenceNumber,
        /// True if that event itself is received.
        inclusive: bool,
    },
    /// At an event, or right after it, given by its offset.
    Offset {
        /// The event's offset.
        offset: Offset,
        /// True if that event itself is received.
        inclusive: bool,
    },
    /// At the first event enqueued at this time or later.
    EnqueuedTime(Timestamp),
}

impl StartPosition {
    /// At this event.
    pub fn at(number: SequenceNumber) -> Self {
        Self::Sequence { number, inclusive: true }
    }

    /// Right after this event.
    pub fn after(number: SequenceNumber) -> Self {
        Self::Sequence { number, inclusive: false }
    }
}

impl fmt::Display for StartPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |inclusive: &bool| if *inclusive { "at" } else { "after" };
        match self {
            Self::Earliest => f.write_str("earliest"),
            Self::Latest => f.write_str("latest"),
            Self::Sequence { number, inclusive } => write!(f, "{} sequence number {number}", side(inclusive)),
            Self::Offset { offset, inclusive } => write!(f, "{} offset {offset}", side(inclusive)),
            Self::EnqueuedTime(time) => write!(f, "enqueued at {time} or later"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_keeps_its_text_to_the_letter() {
        for text in ["0", "42", "007", "-1", "12:34:56", "18446744073709551616", ""] {
            assert_eq!(Offset::new(text).to_string(), text);
        }
        assert_eq!(Offset::new("42"), Offset::number(42));
        assert_eq!("42".parse::<Offset>().unwrap().as_number(), Some(42));
        assert_eq!(Offset::new("042").as_number(), None);
        assert_eq!(format!("{:?}", Offset::number(3)), "@3");
    }

    #[test]
    fn positions_read_as_sentences() {
        let n = SequenceNumber(7);
        assert_eq!(StartPosition::at(n).to_string(), "at sequence number 7");
        assert_eq!(StartPosition::after(n).to_string(), "after sequence number 7");
        assert_eq!(StartPosition::Earliest.to_string(), "earliest");
        assert_eq!(StartPosition::Latest.to_string(), "latest");
        let offset = StartPosition::Offset { offset: Offset::number(9), inclusive: false };
        assert_eq!(offset.to_string(), "after offset 9");
        let time = StartPosition::EnqueuedTime(Timestamp(0));
        assert_eq!(time.to_string(), "enqueued at 1970-01-01T00:00:00.000Z or later");
        assert_eq!(format!("{n} {n:?} {}", n.next()), "7 #7 8");
    }
}
