//! Encodes and decodes the events of the simulation. The property `life` of each is the generation of the
//! hub's log that it was sent to.

use bytes::Bytes;
use ephor::Event;
use ephor_core::event::{NewEvent, Value};

/// The name of the event property.
const LOG_GENERATION: &str = "life";

/// A new event, marked with this generation of the log.
pub(crate) fn stamped(body: Bytes, log_generation: usize) -> NewEvent {
    let properties = [(LOG_GENERATION, Value::from(log_generation as i64))].into_iter().collect();
    NewEvent { properties, ..NewEvent::new(body) }
}

/// The generation of the log that an event was sent to; the first one if it is not marked.
pub(crate) fn log_generation_of(event: &Event) -> usize {
    match event.properties.get(LOG_GENERATION) {
        Some(Value::Int(log_generation)) => usize::try_from(*log_generation).unwrap_or_default(),
        _ => 0,
    }
}
