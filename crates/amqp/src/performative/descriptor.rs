//! The descriptors of performatives, outcomes, errors, termini and SASL frames, as numbers and as names
//! (AMQP 1.0, parts 2 to 5).

#![allow(missing_docs, reason = "the names are those of the specification and say all there is")]

pub const OPEN: u8 = 0x10;
pub const BEGIN: u8 = 0x11;
pub const ATTACH: u8 = 0x12;
pub const FLOW: u8 = 0x13;
pub const TRANSFER: u8 = 0x14;
pub const DISPOSITION: u8 = 0x15;
pub const DETACH: u8 = 0x16;
pub const END: u8 = 0x17;
pub const CLOSE: u8 = 0x18;
pub const ERROR: u8 = 0x1d;
pub const RECEIVED: u8 = 0x23;
pub const ACCEPTED: u8 = 0x24;
pub const REJECTED: u8 = 0x25;
pub const RELEASED: u8 = 0x26;
pub const MODIFIED: u8 = 0x27;
pub const SOURCE: u8 = 0x28;
pub const TARGET: u8 = 0x29;
pub const COORDINATOR: u8 = 0x30;
pub const SASL_MECHANISMS: u8 = 0x40;
pub const SASL_INIT: u8 = 0x41;
pub const SASL_CHALLENGE: u8 = 0x42;
pub const SASL_RESPONSE: u8 = 0x43;
pub const SASL_OUTCOME: u8 = 0x44;

/// The number for a name; `None` for an unknown name.
pub(super) fn of_name(name: &str) -> Option<u8> {
    Some(match name {
        "amqp:open:list" => OPEN,
        "amqp:begin:list" => BEGIN,
        "amqp:attach:list" => ATTACH,
        "amqp:flow:list" => FLOW,
        "amqp:transfer:list" => TRANSFER,
        "amqp:disposition:list" => DISPOSITION,
        "amqp:detach:list" => DETACH,
        "amqp:end:list" => END,
        "amqp:close:list" => CLOSE,
        "amqp:error:list" => ERROR,
        "amqp:received:list" => RECEIVED,
        "amqp:accepted:list" => ACCEPTED,
        "amqp:rejected:list" => REJECTED,
        "amqp:released:list" => RELEASED,
        "amqp:modified:list" => MODIFIED,
        "amqp:source:list" => SOURCE,
        "amqp:target:list" => TARGET,
        "amqp:coordinator:list" => COORDINATOR,
        "amqp:sasl-mechanisms:list" => SASL_MECHANISMS,
        "amqp:sasl-init:list" => SASL_INIT,
        "amqp:sasl-challenge:list" => SASL_CHALLENGE,
        "amqp:sasl-response:list" => SASL_RESPONSE,
        "amqp:sasl-outcome:list" => SASL_OUTCOME,
        _ => return None,
    })
}
