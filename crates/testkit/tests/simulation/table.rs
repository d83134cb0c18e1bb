//! Test helper: a table in memory, into which a user's processor writes events.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ephor::Event;
use ephor::environment::Environment;

/// The user's table, by the text of the events. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Table(Arc<Mutex<BTreeSet<String>>>);

impl Table {
    pub(crate) fn contains(&self, event: &Event) -> bool {
        self.0.lock().unwrap().contains(event.text().unwrap())
    }

    /// Writes an event. It is visible only when this returns.
    pub(crate) async fn write(&self, environment: &dyn Environment, event: &Event) {
        environment.sleep_until(environment.now() + Duration::from_millis(20)).await;
        self.0.lock().unwrap().insert(event.text().unwrap().to_owned());
    }
}
