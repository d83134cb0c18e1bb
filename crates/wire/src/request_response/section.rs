//! Iterates over the sections of a request message, which may have no body and any order of sections,
//! unlike an event.

use std::ops::Range;

use ephor_amqp::format_codes::section;
use ephor_amqp::{Malformed, Reader, Value};

/// Calls `take` with the descriptor of each section and the range of its value. Unknown descriptors are `0`.
pub(super) fn each(
    message: &[u8],
    mut take: impl FnMut(u8, Range<usize>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut reader = Reader::new(message);
    while !reader.is_empty() {
        let at = reader.at();
        if reader.peek() != Some(ephor_amqp::format_codes::DESCRIBED) {
            return Err(Malformed::new(at, "not a section"));
        }
        let end = reader.skip()?.end;
        let mut inside = Reader::starting(&message[..end], at + 1);
        let code = match inside.value()? {
            Value::Ulong(number) => u8::try_from(number).unwrap_or(0),
            Value::Symbol("amqp:properties:list") => section::PROPERTIES,
            Value::Symbol("amqp:application-properties:map") => section::APPLICATION_PROPERTIES,
            Value::Symbol("amqp:amqp-value:*") => section::AMQP_VALUE,
            _ => 0,
        };
        take(code, inside.at()..end)?;
    }
    Ok(())
}

/// Calls `take` with the index of each field that is not null, and its range.
pub(super) fn fields(
    message: &[u8],
    value: Range<usize>,
    mut take: impl FnMut(usize, Range<usize>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut items = Reader::starting(&message[..value.end], value.start).list()?;
    for index in 0.. {
        let at = items.at();
        match items.next()? {
            Some(Value::Null) => {}
            Some(_) => take(index, at..items.at())?,
            None => break,
        }
    }
    Ok(())
}

/// Calls `take` with each pair whose name is text.
pub(super) fn pairs<'a>(
    message: &'a [u8],
    value: Range<usize>,
    mut take: impl FnMut(&'a str, Value<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut items = Reader::starting(&message[..value.end], value.start).map()?;
    while let Some(name) = items.next()? {
        let Some(held) = items.next()? else { break };
        if let Some(name) = name.text() {
            take(name, held)?;
        }
    }
    Ok(())
}
