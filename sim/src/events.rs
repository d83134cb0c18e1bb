//! The events of the simulation. Each carries the generation of the hub's log (`life`) that it was sent to.

use bytes::Bytes;
use ephor::Event;
use ephor_core::event::{NewEvent, Value};

const LIFE: &str = "life";

/// A new event, marked with this generation of the log.
pub(crate) fn stamped(body: Bytes, life: usize) -> NewEvent {
    let properties = [(LIFE, Value::from(life as i64))].into_iter().collect();
    NewEvent { properties, ..NewEvent::new(body) }
}

/// The generation of the log that an event was sent to; the first one if it is not marked.
pub(crate) fn life_of(event: &Event) -> usize {
    match event.properties.get(LIFE) {
        Some(Value::Int(life)) => usize::try_from(*life).unwrap_or_default(),
        _ => 0,
    }
}
