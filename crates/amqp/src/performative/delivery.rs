//! `disposition`: what became of deliveries.

use super::attach::Role;
use super::descriptor;
use super::error::Error;
use super::fields::{FieldWriter, Fields, read_descriptor};
use crate::decode::Reader;
use crate::encode;
use crate::performative::BadPerformative;
use crate::value::Value;

/// What became of a delivery in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was taken.
    Accepted,
    /// It is no good, and will not be taken by anybody.
    Rejected(Option<Error>),
    /// It was not looked at, and may be delivered again.
    Released,
    /// It may be delivered again, with changes.
    Modified {
        /// Whether this counts as a failed attempt.
        delivery_failed: bool,
        /// Whether it must not come back to the same receiver.
        undeliverable_here: bool,
    },
}

impl Outcome {
    /// Rejected, with this error.
    pub fn rejected(error: Error) -> Self {
        Self::Rejected(Some(error))
    }

    /// `None` for null, and for a state that is no outcome.
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

/// What became of a row of deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// What the sender of this frame is to those deliveries.
    pub role: Role,
    /// The first of them.
    pub first: u32,
    /// The last; without it, there is one.
    pub last: Option<u32>,
    /// Whether the sender of this frame has forgotten them.
    pub settled: bool,
    /// What became of them.
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

    /// Writes it.
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
