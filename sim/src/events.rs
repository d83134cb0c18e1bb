//! The events of the simulation: each knows which life of the hub's log it was sent to.

use bytes::Bytes;
use ephor::Event;
use ephor_core::event::{NewEvent, Value};

const LIFE: &str = "life";

/// An event of a run, sent to this life of the log.
pub(crate) fn stamped(body: Bytes, life: usize) -> NewEvent {
    let properties = [(LIFE, Value::from(life as i64))].into_iter().collect();
    NewEvent { properties, ..NewEvent::new(body) }
}

/// Which life of the log an event was sent to; the first one if nobody stamped it.
pub(crate) fn life_of(event: &Event) -> usize {
    match event.properties.get(LIFE) {
        Some(Value::Int(life)) => usize::try_from(*life).unwrap_or_default(),
        _ => 0,
    }
}
