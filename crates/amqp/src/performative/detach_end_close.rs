//! `detach`, `end` and `close`: end a link, a session and the connection.

use super::descriptor;
use super::error::Error;
use super::fields::{FieldWriter, Fields};
use crate::performative::BadPerformative;

/// The end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detach {
    /// The handle of the link.
    pub handle: u32,
    /// True if the link is closed for good, and not only suspended.
    pub closed: bool,
    /// The reason, unless the end is regular.
    pub error: Option<Error>,
}

impl Detach {
    pub(super) fn read(mut fields: Fields<'_>) -> Result<Self, BadPerformative> {
        let handle = fields.uint("handle")?;
        Ok(Self {
            handle: fields.need(handle, "handle")?,
            closed: fields.bool("closed")?.unwrap_or(false),
            error: fields.error("error")?,
        })
    }

    /// Encodes it.
    pub fn write(&self, into: &mut Vec<u8>) {
        FieldWriter::new(into, descriptor::DETACH)
            .uint(self.handle)
            .bool(self.closed)
            .error(self.error.as_ref())
            .end();
    }
}

/// The end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The reason, unless the end is regular.
    pub error: Option<Error>,
}

impl End {
    /// Encodes it.
    pub fn write(&self, into: &mut Vec<u8>) {
        FieldWriter::new(into, descriptor::END).error(self.error.as_ref()).end();
    }
}

/// The end of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The reason, unless the end is regular.
    pub error: Option<Error>,
}

impl Close {
    /// Encodes it.
    pub fn write(&self, into: &mut Vec<u8>) {
        FieldWriter::new(into, descriptor::CLOSE).error(self.error.as_ref()).end();
    }
}
