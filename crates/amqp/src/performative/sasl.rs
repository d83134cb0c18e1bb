//! The frames of the SASL layer, except challenge and response (AMQP 1.0, part 5, section 5.3); and a type
//! for bytes that no log shows.

use std::fmt;

use super::descriptor;
use super::fields::{FieldWriter, Fields, read_descriptor};
use crate::decode::Reader;
use crate::encoded::Encoded;
use crate::performative::BadPerformative;

/// Bytes that never appear in a log.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Wraps these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

/// The mechanisms that a server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslMechanisms {
    /// Their names.
    pub names: Vec<String>,
}

/// The mechanism that a client chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslInit {
    /// Its name.
    pub mechanism: String,
    /// The first message of the mechanism, such as name and password.
    pub initial_response: Option<Secret>,
    /// The host name that the client wants to reach.
    pub hostname: Option<String>,
}

/// The result of the authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SaslCode {
    /// Authenticated.
    Ok = 0,
    /// The credentials were refused.
    Auth = 1,
    /// The server failed; the credentials are not the reason.
    System = 2,
}

/// The result of the authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslOutcome {
    /// Any code that is neither 0 nor 1 is read as [`SaslCode::System`].
    pub code: SaslCode,
    /// Data for the mechanism. Event Hubs sends a word of welcome, which no client uses.
    pub additional_data: Option<Vec<u8>>,
}

/// A frame of the SASL layer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is documented as the type that it holds")]
pub enum Sasl {
    Mechanisms(SaslMechanisms),
    Init(SaslInit),
    Outcome(SaslOutcome),
}

impl Sasl {
    /// Decodes a frame. Challenges and responses are not supported, because no mechanism of the service needs
    /// them.
    pub fn read(body: &[u8]) -> Result<Self, BadPerformative> {
        let mut reader = Reader::new(body);
        match read_descriptor(&mut reader)? {
            Some(descriptor::SASL_MECHANISMS) => {
                let mut fields = Fields::of(&mut reader, "sasl-mechanisms")?;
                let names = fields.encoded()?;
                let names = fields.need(names, "sasl-server-mechanisms")?;
                let names = names.names().map(str::to_owned).collect();
                Ok(Self::Mechanisms(SaslMechanisms { names }))
            }
            Some(descriptor::SASL_INIT) => {
                let mut fields = Fields::of(&mut reader, "sasl-init")?;
                let mechanism = fields.text("mechanism")?;
                Ok(Self::Init(SaslInit {
                    mechanism: fields.need(mechanism, "mechanism")?,
                    initial_response: fields.binary("initial-response")?.map(Secret::new),
                    hostname: fields.text("hostname")?,
                }))
            }
            Some(descriptor::SASL_OUTCOME) => {
                let mut fields = Fields::of(&mut reader, "sasl-outcome")?;
                let code = fields.ubyte("code")?;
                let code = match fields.need(code, "code")? {
                    0 => SaslCode::Ok,
                    1 => SaslCode::Auth,
                    _ => SaslCode::System,
                };
                let additional_data = fields.binary("additional-data")?.map(<[u8]>::to_vec);
                Ok(Self::Outcome(SaslOutcome { code, additional_data }))
            }
            _ => Err(BadPerformative::Unknown),
        }
    }

    /// Encodes it.
    pub fn write(&self, into: &mut Vec<u8>) {
        match self {
            Self::Mechanisms(SaslMechanisms { names }) => {
                let names = Encoded::symbols(names.iter().map(String::as_str));
                FieldWriter::new(into, descriptor::SASL_MECHANISMS).encoded(Some(&names)).end();
            }
            Self::Init(SaslInit { mechanism, initial_response, hostname }) => {
                FieldWriter::new(into, descriptor::SASL_INIT)
                    .symbol(&**mechanism)
                    .binary(initial_response.as_ref().map(Secret::expose))
                    .string(hostname.as_deref())
                    .end();
            }
            Self::Outcome(SaslOutcome { code, additional_data }) => {
                FieldWriter::new(into, descriptor::SASL_OUTCOME)
                    .ubyte(*code as u8)
                    .binary(additional_data.as_deref())
                    .end();
            }
        }
    }
}
