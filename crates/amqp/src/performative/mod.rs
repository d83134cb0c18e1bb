//! Performatives: the bodies of frames, one for each frame (AMQP 1.0, part 2, section 2.7).
//!
//! | performative | content | fields |
//! |---|---|---|
//! | [`Open`] | the peer's name, and its largest frame | 10 |
//! | [`Begin`] | a session on this channel | 8 |
//! | [`Attach`] | a link on this handle, with its [`Source`] and [`Target`] | 14 |
//! | [`Flow`] | the windows of a session, and the credit of a link | 11 |
//! | [`Transfer`] | a message, or a part of it | 11 |
//! | [`Disposition`] | the outcome of deliveries | 6 |
//! | [`Detach`], [`End`], [`Close`] | the end of a link, a session, the connection | 3, 1, 1 |
//!
//! All fields are written. Performatives with fewer fields can be read.

mod attach;
mod begin;
pub mod descriptor;
mod detach_end_close;
mod disposition;
mod error;
mod fields;
mod flow;
mod open;
mod sasl;
mod terminus;
mod transfer;

pub use attach::{Attach, ReceiverSettles, Role, SenderSettles};
pub use begin::Begin;
pub use detach_end_close::{Close, Detach, End};
pub use disposition::{Disposition, Outcome};
pub use error::{Error, condition};
pub use flow::Flow;
pub use open::Open;
pub use sasl::{Sasl, SaslCode, SaslInit, SaslMechanisms, SaslOutcome, Secret};
pub use terminus::{Source, Target};
pub use transfer::Transfer;
pub(crate) use transfer::{MAX_TRANSFER_HEAD, TransferHead, write_transfer_head};

use crate::decode::{Malformed, Reader};
use fields::{Fields, read_descriptor};

/// Bytes that are not a performative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPerformative {
    /// The bytes are not even AMQP values.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The value has no descriptor.
    #[error("a frame's body has to begin with a described list")]
    NotDescribed,
    /// The descriptor is unknown, or not allowed here.
    #[error("not the descriptor of a performative that is allowed here")]
    Unknown,
    /// A field has the wrong type or value.
    #[error("{performative}: {field} has to be {wanted}")]
    Field {
        /// The performative.
        performative: &'static str,
        /// The field.
        field: &'static str,
        /// The type or value that it has to have.
        wanted: &'static str,
    },
    /// A mandatory field is missing.
    #[error("{performative}: {field} is missing")]
    Missing {
        /// The performative.
        performative: &'static str,
        /// The field.
        field: &'static str,
    },
}

/// Any performative except those of SASL.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is documented as the type that it holds")]
pub enum Performative<'a> {
    Open(Box<Open>),
    Begin(Box<Begin>),
    Attach(Box<Attach>),
    Flow(Flow),
    Transfer(Transfer<'a>),
    Disposition(Disposition),
    Detach(Detach),
    End(End),
    Close(Close),
}

impl<'a> Performative<'a> {
    /// Decodes the performative at the start of a frame's body, and returns the index after it: the payload
    /// of a transfer follows there.
    pub fn read(body: &'a [u8]) -> Result<(Self, usize), BadPerformative> {
        let mut reader = Reader::new(body);
        let found = read_descriptor(&mut reader)?.ok_or(BadPerformative::Unknown)?;
        let end = reader.clone().skip()?.end;
        let read = &mut reader;
        let performative = match found {
            descriptor::OPEN => Self::Open(Box::new(Open::read(Fields::of(read, "open")?)?)),
            descriptor::BEGIN => Self::Begin(Box::new(Begin::read(Fields::of(read, "begin")?)?)),
            descriptor::ATTACH => Self::Attach(Box::new(Attach::read(Fields::of(read, "attach")?)?)),
            descriptor::FLOW => Self::Flow(Flow::read(Fields::of(read, "flow")?)?),
            descriptor::TRANSFER => Self::Transfer(Transfer::read(Fields::of(read, "transfer")?)?),
            descriptor::DISPOSITION => {
                Self::Disposition(Disposition::read(Fields::of(read, "disposition")?)?)
            }
            descriptor::DETACH => Self::Detach(Detach::read(Fields::of(read, "detach")?)?),
            descriptor::END => Self::End(End { error: Fields::of(read, "end")?.error("error")? }),
            descriptor::CLOSE => Self::Close(Close { error: Fields::of(read, "close")?.error("error")? }),
            _ => return Err(BadPerformative::Unknown),
        };
        Ok((performative, end))
    }

    /// The name, for error descriptions.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Open(_) => "open",
            Self::Begin(_) => "begin",
            Self::Attach(_) => "attach",
            Self::Flow(_) => "flow",
            Self::Transfer(_) => "transfer",
            Self::Disposition(_) => "disposition",
            Self::Detach(_) => "detach",
            Self::End(_) => "end",
            Self::Close(_) => "close",
        }
    }
}
