//! The two ends of a link: where messages come from and where they go.

use super::descriptor;
use super::fields::{FieldWriter, Fields};
use crate::encode;
use crate::encoded::Encoded;
use crate::performative::BadPerformative;
use crate::value::Value;

/// Where messages come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The name of the node.
    pub address: Option<String>,
    /// What of it is kept: 0 nothing, 1 that it is, 2 also what is unsettled.
    pub durable: Option<u32>,
    /// When it is forgotten.
    pub expiry_policy: Option<String>,
    /// How many seconds after that.
    pub timeout: Option<u32>,
    /// Whether the peer is to make up a node and its name.
    pub dynamic: Option<bool>,
    /// What the node has to be like, a map.
    pub dynamic_node_properties: Option<Encoded>,
    /// Whether messages are moved or copied.
    pub distribution_mode: Option<String>,
    /// Which messages, a map from names to described filters; see [`Self::filter`].
    pub filter: Option<Encoded>,
    /// What becomes of a message of which nothing is said.
    pub default_outcome: Option<Encoded>,
    /// What may become of a message, symbols.
    pub outcomes: Option<Encoded>,
    /// Symbols.
    pub capabilities: Option<Encoded>,
}

impl Source {
    /// With this address.
    pub fn from(address: impl Into<String>) -> Self {
        Self { address: Some(address.into()), ..Self::default() }
    }

    /// The value of a filter, without the descriptor that should stand before it: peers disagree on it.
    pub fn filter(&self, name: &str) -> Option<Value<'_>> {
        let value = self.filter.as_ref()?.get(name)?;
        Some(value.described().map_or(value, |(_, inner)| inner))
    }

    pub(super) fn read(value: Value<'_>) -> Result<Option<Self>, BadPerformative> {
        let Some(mut fields) = fields(value, descriptor::SOURCE, "source")? else { return Ok(None) };
        Ok(Some(Self {
            address: fields.text("address")?,
            durable: fields.uint("durable")?,
            expiry_policy: fields.text("expiry-policy")?,
            timeout: fields.uint("timeout")?,
            dynamic: fields.bool("dynamic")?,
            dynamic_node_properties: fields.encoded()?,
            distribution_mode: fields.text("distribution-mode")?,
            filter: fields.encoded()?,
            default_outcome: fields.encoded()?,
            outcomes: fields.encoded()?,
            capabilities: fields.encoded()?,
        }))
    }

    pub(super) fn write(source: Option<&Self>, into: &mut Vec<u8>) {
        let Some(source) = source else { return encode::null(into) };
        FieldWriter::new(into, descriptor::SOURCE)
            .string(source.address.as_deref())
            .uint(source.durable)
            .symbol(source.expiry_policy.as_deref())
            .uint(source.timeout)
            .bool(source.dynamic)
            .encoded(source.dynamic_node_properties.as_ref())
            .symbol(source.distribution_mode.as_deref())
            .encoded(source.filter.as_ref())
            .encoded(source.default_outcome.as_ref())
            .encoded(source.outcomes.as_ref())
            .encoded(source.capabilities.as_ref())
            .end();
    }
}

/// Where messages go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The name of the node.
    pub address: Option<String>,
    /// What of it is kept: 0 nothing, 1 that it is, 2 also what is unsettled.
    pub durable: Option<u32>,
    /// When it is forgotten.
    pub expiry_policy: Option<String>,
    /// How many seconds after that.
    pub timeout: Option<u32>,
    /// Whether the peer is to make up a node and its name.
    pub dynamic: Option<bool>,
    /// What the node has to be like, a map.
    pub dynamic_node_properties: Option<Encoded>,
    /// Symbols.
    pub capabilities: Option<Encoded>,
}

impl Target {
    /// With this address.
    pub fn to(address: impl Into<String>) -> Self {
        Self { address: Some(address.into()), ..Self::default() }
    }

    pub(super) fn read(value: Value<'_>) -> Result<Option<Self>, BadPerformative> {
        let Some(mut fields) = fields(value, descriptor::TARGET, "target")? else { return Ok(None) };
        Ok(Some(Self {
            address: fields.text("address")?,
            durable: fields.uint("durable")?,
            expiry_policy: fields.text("expiry-policy")?,
            timeout: fields.uint("timeout")?,
            dynamic: fields.bool("dynamic")?,
            dynamic_node_properties: fields.encoded()?,
            capabilities: fields.encoded()?,
        }))
    }

    pub(super) fn write(target: Option<&Self>, into: &mut Vec<u8>) {
        let Some(target) = target else { return encode::null(into) };
        FieldWriter::new(into, descriptor::TARGET)
            .string(target.address.as_deref())
            .uint(target.durable)
            .symbol(target.expiry_policy.as_deref())
            .uint(target.timeout)
            .bool(target.dynamic)
            .encoded(target.dynamic_node_properties.as_ref())
            .encoded(target.capabilities.as_ref())
            .end();
    }
}

/// The fields of a source or a target; `None` for null.
///
/// A target may also be a coordinator of transactions. There are none here, and whoever asks for one is
/// told that its target is not understood.
fn fields<'a>(value: Value<'a>, wanted: u8, of: &'static str) -> Result<Option<Fields<'a>>, BadPerformative> {
    let wrong = BadPerformative::Field { performative: "attach", field: of, wanted: "a source or a target" };
    match value {
        Value::Null => Ok(None),
        Value::Encoded(bytes) => Fields::inside(bytes, wanted, of)?.ok_or(wrong).map(Some),
        _ => Err(wrong),
    }
}
