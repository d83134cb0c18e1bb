//! `disposition`: the outcome of deliveries.

use super::attach::Role;
use super::descriptor;
use super::error::Error;
use super::fields::{FieldWriter, Fields, read_descriptor};
use crate::decode::Reader;
use crate::encode;
use crate::performative::BadPerformative;
use crate::value::Value;

/// The final outcome of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was processed.
    Accepted,
    /// It is invalid, and cannot be processed.
    Rejected(Option<Error>),
    /// It was not processed, and may be delivered again.
    Released,
    /// It may be delivered again, with changes.
    Modified {
        /// True if this counts as a failed attempt.
        delivery_failed: bool,
        /// True if it must not be delivered to the same receiver again.
        undeliverable_here: bool,
    },
}

impl Outcome {
    /// A rejection with this error.
    pub fn rejected(error: Error) -> Self {
        Self::Rejected(Some(error))
    }

    /// `None` for null, and for a state that is not an outcome.
    pub(super) fn read(value: Value<'_>) -> Result<Option<Self>, BadPerformative> {
        let Value::Encoded(bytes) = value else { return Ok(None) };
        let mut reader = Reader::new(bytes);
        Ok(Some(match read_descriptor(&mut reader)? {
            Some(descriptor::ACCEPTED) => Self::Accepted,
            Some(descriptor::REJECTED) => {
                Self::Rejected(Fields::of(&mut reader, "rejected")?.error("error")?)
            }
            Some(descriptor::RELEASED) => Self::Released,
            Some(descriptor::MODIFIED) => {
                let mut fields = Fields::of(&mut reader, "modified")?;
                Self::Modified {
                    delivery_failed: fields.bool("delivery-failed")?.unwrap_or(false),
                    undeliverable_here: fields.bool("undeliverable-here")?.unwrap_or(false),
                }
            }
            _ => return Ok(None),
        }))
    }

    pub(super) fn write(outcome: Option<&Self>, into: &mut Vec<u8>) {
        match outcome {
            None => encode::null(into),
            Some(Self::Accepted) => FieldWriter::new(into, descriptor::ACCEPTED).end(),
            Some(Self::Rejected(error)) => {
                FieldWriter::new(into, descriptor::REJECTED).error(error.as_ref()).end();
            }
            Some(Self::Released) => FieldWriter::new(into, descriptor::RELEASED).end(),
            Some(Self::Modified { delivery_failed, undeliverable_here }) => {
                FieldWriter::new(into, descriptor::MODIFIED)
                    .bool(*delivery_failed)
                    .bool(*undeliverable_here)
                    .nulls(1)
                    .end();
            }
        }
    }
}

/// The outcome of a range of deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// The role of the sender of this frame for those deliveries.
    pub role: Role,
    /// The first of them.
    pub first: u32,
    /// The last of them; `None` if there is only one.
    pub last: Option<u32>,
    /// True if the sender of this frame has settled them.
    pub settled: bool,
    /// Their outcome.
    pub outcome: Option<Outcome>,
}

impl Disposition {
    pub(super) fn read(mut fields: Fields<'_>) -> Result<Self, BadPerformative> {
        let role = fields.bool("role")?;
        let first = fields.uint("first")?;
        Ok(Self {
            role: Role::read(fields.need(role, "role")?),
            first: fields.need(first, "first")?,
            last: fields.uint("last")?,
            settled: fields.bool("settled")?.unwrap_or(false),
            outcome: Outcome::read(fields.any()?)?,
        })
    }

    /// Encodes it.
    pub fn write(&self, into: &mut Vec<u8>) {
        FieldWriter::new(into, descriptor::DISPOSITION)
            .bool(self.role == Role::Receiver)
            .uint(self.first)
            .uint(self.last)
            .bool(self.settled)
            .one(|into| Outcome::write(self.outcome.as_ref(), into))
            .nulls(1)
            .end();
    }
}
