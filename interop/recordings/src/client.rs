//! Encodes the client's frames of a recording, with new tokens in place of the redacted ones.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ephor_amqp::format_codes::section;
use ephor_amqp::frame::{HEADER_SIZE, TYPE_AMQP, TYPE_SASL};
use ephor_amqp::performative::{
    Attach, Begin, Close, Detach, End, Flow, Open, ReceiverSettles, Role, Sasl, SaslInit, SenderSettles,
    Source, Target, descriptor,
};
use ephor_amqp::{Encoded, Value, encode};
use ephor_core::time::Timestamp;
use ephor_wire::connection_string::{DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME};
use ephor_wire::sas::{Key, sign};
use serde_json::Value as Json;

use crate::recording::Frame;

/// The time for which tokens are valid, in milliseconds.
const TOKEN_LIFETIME: i64 = 24 * 60 * 60 * 1000;
const SELECTOR: &str = "apache.org:selector-filter:string";

/// A frame with this body.
pub(crate) fn framed(kind: u8, channel: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_SIZE + body.len());
    let size = u32::try_from(HEADER_SIZE + body.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&size.to_be_bytes());
    bytes.extend_from_slice(&[2, kind]);
    bytes.extend_from_slice(&channel.to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The frame of the SASL layer that a client sent.
pub(crate) fn sasl_init(body: &Json) -> Vec<u8> {
    let mut bytes = Vec::new();
    let init = SaslInit {
        mechanism: text(body, "Mechanism").unwrap_or_default(),
        initial_response: None,
        hostname: text(body, "Hostname"),
    };
    Sasl::Init(init).write(&mut bytes);
    framed(TYPE_SASL, 0, &bytes)
}

/// The `open` of a client.
pub(crate) fn open(body: &Json) -> Vec<u8> {
    let open = Open {
        container_id: text(body, "ContainerID").unwrap_or_default(),
        hostname: text(body, "Hostname"),
        max_frame_size: number(body, "MaxFrameSize"),
        channel_max: number(body, "ChannelMax"),
        idle_time_out: body["IdleTimeout"]
            .as_u64()
            .and_then(|nanoseconds| u32::try_from(nanoseconds / 1_000_000).ok())
            .filter(|milliseconds| *milliseconds > 0),
        offered_capabilities: None,
        desired_capabilities: None,
        properties: map(&body["Properties"]),
    };
    written(0, |into| open.write(into))
}

/// The `begin` of a client.
pub(crate) fn begin(frame: &Frame) -> Vec<u8> {
    let body = &frame.body;
    let begin = Begin {
        remote_channel: None,
        next_outgoing_id: number(body, "NextOutgoingID").unwrap_or(0),
        incoming_window: number(body, "IncomingWindow").unwrap_or(0),
        outgoing_window: number(body, "OutgoingWindow").unwrap_or(0),
        handle_max: number(body, "HandleMax"),
        offered_capabilities: None,
        desired_capabilities: None,
        properties: None,
    };
    written(frame.channel, |into| begin.write(into))
}

/// The `attach` of a client; `translate` replaces positions that depend on the run in its filter.
pub(crate) fn attach(frame: &Frame, translate: impl Fn(&str) -> String) -> Vec<u8> {
    let body = &frame.body;
    let role = if body["Role"] == Json::Bool(true) { Role::Receiver } else { Role::Sender };
    let filter = body["Source"]["Filter"][SELECTOR]["Value"].as_str().map(|selector| {
        let value = Encoded::described(Value::Symbol(SELECTOR), Value::String(&translate(selector)));
        Encoded::map([(SELECTOR, Value::Encoded(value.as_bytes()))])
    });
    let attach = Attach {
        handle: number(body, "Handle").unwrap_or(0),
        sender_settles: match body["SenderSettleMode"].as_u64() {
            Some(0) => Some(SenderSettles::Unsettled),
            Some(1) => Some(SenderSettles::Settled),
            Some(_) => Some(SenderSettles::Mixed),
            None => None,
        },
        receiver_settles: match body["ReceiverSettleMode"].as_u64() {
            Some(0) => Some(ReceiverSettles::First),
            Some(_) => Some(ReceiverSettles::Second),
            None => None,
        },
        source: body["Source"].is_object().then(|| Source {
            filter,
            durable: number(&body["Source"], "Durable"),
            expiry_policy: text(&body["Source"], "ExpiryPolicy"),
            timeout: number(&body["Source"], "Timeout"),
            ..Source::from(text(&body["Source"], "Address").unwrap_or_default())
        }),
        target: body["Target"].is_object().then(|| Target {
            durable: number(&body["Target"], "Durable"),
            expiry_policy: text(&body["Target"], "ExpiryPolicy"),
            timeout: number(&body["Target"], "Timeout"),
            ..Target::to(text(&body["Target"], "Address").unwrap_or_default())
        }),
        initial_delivery_count: number(body, "InitialDeliveryCount"),
        max_message_size: body["MaxMessageSize"].as_u64().filter(|size| *size > 0),
        desired_capabilities: body["DesiredCapabilities"]
            .as_array()
            .map(|names| Encoded::symbols(names.iter().filter_map(Json::as_str))),
        properties: map(&body["Properties"]),
        ..Attach::new(text(body, "Name").unwrap_or_default(), role)
    };
    written(frame.channel, |into| attach.write(into))
}

/// The `flow` of a client. Its own counters replace the recorded ones: they depend on what has come.
pub(crate) fn flow(frame: &Frame, next_incoming: u32, delivery_count: Option<u32>) -> Vec<u8> {
    let body = &frame.body;
    let flow = Flow {
        next_incoming_id: Some(next_incoming),
        incoming_window: number(body, "IncomingWindow").unwrap_or(0),
        next_outgoing_id: number(body, "NextOutgoingID").unwrap_or(0),
        outgoing_window: number(body, "OutgoingWindow").unwrap_or(0),
        handle: number(body, "Handle"),
        delivery_count: delivery_count.or_else(|| number(body, "DeliveryCount")),
        link_credit: number(body, "LinkCredit"),
        available: number(body, "Available"),
        drain: body["Drain"].as_bool(),
        echo: body["Echo"].as_bool().unwrap_or(false),
    };
    written(frame.channel, |into| flow.write(into))
}

/// A transfer on this link: the recorded fields, or the usual ones of a redacted frame.
pub(crate) fn transfer(frame: &Frame, channel: u16, handle: u32, delivery: u32, payload: &[u8]) -> Vec<u8> {
    let body = &frame.body;
    written(channel, |into| {
        encode::described(into, descriptor::TRANSFER.into());
        let list = encode::begin(into);
        encode::uint(into, handle);
        encode::uint(into, number(body, "DeliveryID").unwrap_or(delivery));
        match text(body, "DeliveryTag").and_then(|tag| BASE64.decode(tag).ok()) {
            Some(tag) => encode::binary(into, &tag),
            None => encode::binary(into, &delivery.to_be_bytes()),
        }
        encode::uint(into, number(body, "MessageFormat").unwrap_or(0));
        encode::bool(into, body["Settled"].as_bool().unwrap_or(false));
        encode::bool(into, body["More"].as_bool().unwrap_or(false));
        encode::end_list(into, list, 6);
        into.extend_from_slice(payload);
    })
}

/// The payload of a recorded transfer.
pub(crate) fn payload(frame: &Frame) -> Vec<u8> {
    frame.body["Payload"].as_str().and_then(|payload| BASE64.decode(payload).ok()).unwrap_or_default()
}

/// The end of a link, a session or the connection; `None` for any other frame.
pub(crate) fn ending(frame: &Frame) -> Option<Vec<u8>> {
    let handle = number(&frame.body, "Handle").unwrap_or(0);
    let closed = frame.body["Closed"].as_bool().unwrap_or(false);
    Some(match frame.kind.as_str() {
        "Detach" => written(frame.channel, |into| Detach { handle, closed, error: None }.write(into)),
        "End" => written(frame.channel, |into| End { error: None }.write(into)),
        "Close" => written(0, |into| Close { error: None }.write(into)),
        _ => return None,
    })
}

/// An attach of our own: a sender to one partition.
pub(crate) fn partition_sender(channel: u16, name: &str, handle: u32, address: &str) -> Vec<u8> {
    let attach = Attach { handle, ..Attach::sender(name, address) };
    written(channel, |into| attach.write(into))
}

/// The signature of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signature {
    /// By the development key.
    Valid,
    /// By another key, under the name of the development key.
    WrongKey,
    /// Under a name that no key has.
    UnknownName,
}

/// A redacted request, with a new token: `put-token`, or a question to `$management`.
pub(crate) fn request(frame: &Frame, host: &str, now: Timestamp, signature: Signature) -> Vec<u8> {
    let expires_at = Timestamp(now.0.saturating_add(TOKEN_LIFETIME));
    let token = |resource: &str| {
        let (name, key) = match signature {
            Signature::Valid => (DEVELOPMENT_KEY_NAME, DEVELOPMENT_KEY),
            Signature::WrongKey => (DEVELOPMENT_KEY_NAME, "another key"),
            Signature::UnknownName => ("another name", DEVELOPMENT_KEY),
        };
        sign(resource, name, &Key::new(key), expires_at)
    };
    let (properties, puts_token) = match &frame.message["CBSData"]["ApplicationProperties"] {
        Json::Object(properties) => (Some(properties), true),
        _ => (frame.message["Message"]["ApplicationProperties"].as_object(), false),
    };
    let mut message = Vec::new();
    write_id(frame, &mut message);
    encode::described(&mut message, section::APPLICATION_PROPERTIES.into());
    let map = encode::begin(&mut message);
    let mut name = String::new();
    let mut pairs = 0;
    for (key, value) in properties.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        encode::string(&mut message, key);
        match key.as_str() {
            "expiration" => encode::timestamp(&mut message, expires_at.0),
            "security_token" => encode::string(&mut message, &token(&format!("sb://{host}/{name}"))),
            // Tokens of Entra ID cannot be made here; a signature stands in for them.
            "type" if puts_token => encode::string(&mut message, "servicebus.windows.net:sastoken"),
            _ => encode::string(&mut message, value),
        }
        if key == "name" {
            value.clone_into(&mut name);
        }
        pairs += 1;
    }
    encode::end_map(&mut message, map, pairs);
    if puts_token {
        encode::described(&mut message, section::AMQP_VALUE.into());
        encode::string(&mut message, &token(&name));
    }
    message
}

/// Properties with a message id that is a UUID, as the recorded client has them.
fn write_id(frame: &Frame, into: &mut Vec<u8>) {
    encode::described(into, section::PROPERTIES.into());
    let list = encode::begin(into);
    encode::uuid(into, &frame.time.to_be_bytes());
    encode::end_list(into, list, 1);
}

fn written(channel: u16, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = Vec::new();
    write(&mut body);
    framed(TYPE_AMQP, channel, &body)
}

fn text(body: &Json, name: &str) -> Option<String> {
    body[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn number<T: TryFrom<u64>>(body: &Json, name: &str) -> Option<T> {
    body[name].as_u64().and_then(|number| T::try_from(number).ok())
}

/// A map of symbols to texts and numbers. Recordings do not tell the types of numbers: an epoch is a long, others are
/// unsigned.
fn map(properties: &Json) -> Option<Encoded> {
    let properties = properties.as_object()?;
    Some(Encoded::map(properties.iter().map(|(key, value)| {
        let value = match (value.as_str(), value.as_i64()) {
            (Some(text), _) => Value::String(text),
            (None, Some(number)) if key.ends_with("epoch") => Value::Long(number),
            (None, number) => Value::Uint(number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0)),
        };
        (key.as_str(), value)
    })))
}
