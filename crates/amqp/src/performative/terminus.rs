//! The two ends of a link (termini): the source and the target of its messages.

use super::descriptor;
use super::fields::{FieldWriter, Fields};
use crate::encode;
use crate::encoded::Encoded;
use crate::performative::BadPerformative;
use crate::value::Value;

/// The node that messages come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The address of the node.
    pub address: Option<String>,
    /// The durability of the terminus: 0 none, 1 its configuration, 2 also its unsettled deliveries.
    pub durable: Option<u32>,
    /// The event that starts the expiry of the terminus.
    pub expiry_policy: Option<String>,
    /// The time from that event to the expiry, in seconds.
    pub timeout: Option<u32>,
    /// True if the peer is to create a node and choose its address.
    pub dynamic: Option<bool>,
    /// The properties that the created node should have, a map.
    pub dynamic_node_properties: Option<Encoded>,
    /// `move` or `copy`: what becomes of the messages of the node.
    pub distribution_mode: Option<String>,
    /// The filters for messages, a map from names to described filters; see [`Self::filter`].
    pub filter: Option<Encoded>,
    /// The outcome of a message that is settled without one.
    pub default_outcome: Option<Encoded>,
    /// The outcomes that are possible, an array of symbols.
    pub outcomes: Option<Encoded>,
    /// An array of symbols.
    pub capabilities: Option<Encoded>,
}

impl Source {
    /// A source with this address.
    pub fn from(address: impl Into<String>) -> Self {
        Self { address: Some(address.into()), ..Self::default() }
    }

    /// The value of a filter, without its descriptor: peers disagree on the descriptor.
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

/// The node that messages go to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The address of the node.
    pub address: Option<String>,
    /// The durability of the terminus: 0 none, 1 its configuration, 2 also its unsettled deliveries.
    pub durable: Option<u32>,
    /// The event that starts the expiry of the terminus.
    pub expiry_policy: Option<String>,
    /// The time from that event to the expiry, in seconds.
    pub timeout: Option<u32>,
    /// True if the peer is to create a node and choose its address.
    pub dynamic: Option<bool>,
    /// The properties that the created node should have, a map.
    pub dynamic_node_properties: Option<Encoded>,
    /// An array of symbols.
    pub capabilities: Option<Encoded>,
    /// True if this is a coordinator of transactions instead of a node. Nothing else of it is read or written:
    /// transactions are not supported, and the owner refuses the link.
    pub coordinator: bool,
}

impl Target {
    /// A target with this address.
    pub fn to(address: impl Into<String>) -> Self {
        Self { address: Some(address.into()), ..Self::default() }
    }

    pub(super) fn read(value: Value<'_>) -> Result<Option<Self>, BadPerformative> {
        if let Value::Encoded(bytes) = value
            && Fields::inside(bytes, descriptor::COORDINATOR, "target")?.is_some()
        {
            return Ok(Some(Self { coordinator: true, ..Self::default() }));
        }
        let Some(mut fields) = fields(value, descriptor::TARGET, "target")? else { return Ok(None) };
        Ok(Some(Self {
            address: fields.text("address")?,
            durable: fields.uint("durable")?,
            expiry_policy: fields.text("expiry-policy")?,
            timeout: fields.uint("timeout")?,
            dynamic: fields.bool("dynamic")?,
            dynamic_node_properties: fields.encoded()?,
            capabilities: fields.encoded()?,
            coordinator: false,
        }))
    }

    pub(super) fn write(target: Option<&Self>, into: &mut Vec<u8>) {
        let Some(target) = target else { return encode::null(into) };
        if target.coordinator {
            return FieldWriter::new(into, descriptor::COORDINATOR).end();
        }
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
fn fields<'a>(value: Value<'a>, wanted: u8, of: &'static str) -> Result<Option<Fields<'a>>, BadPerformative> {
    let wrong = BadPerformative::Field { performative: "attach", field: of, wanted: "a source or a target" };
    match value {
        Value::Null => Ok(None),
        Value::Encoded(bytes) => Fields::inside(bytes, wanted, of)?.ok_or(wrong).map(Some),
        _ => Err(wrong),
    }
}
