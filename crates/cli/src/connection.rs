//! How commands find a hub.

use std::time::Duration;

use ephor_core::BoxError;
use ephor_eventhubs::{EventHubs, Options};

use crate::arguments::Connection;

/// A client of this hub. It connects when it is first used.
pub(crate) fn open(connection: &Connection, hub: &str) -> Result<EventHubs, BoxError> {
    open_with(connection, hub, Options::default())
}

/// For a question that can go without an answer: asked once, and not for long.
pub(crate) fn open_impatiently(connection: &Connection, hub: &str) -> Result<EventHubs, BoxError> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let options =
        Options { attempts: 1, connect_time: PATIENCE, answer_time: PATIENCE, ..Options::default() };
    open_with(connection, hub, options)
}

fn open_with(connection: &Connection, hub: &str, options: Options) -> Result<EventHubs, BoxError> {
    let mut builder = EventHubs::builder(&connection.connection).hub(hub).options(options);
    if let Some(file) = &connection.trust {
        let pem = std::fs::read(file).map_err(|error| format!("--trust {}: {error}", file.display()))?;
        builder = builder.extra_root(pem);
    }
    Ok(builder.build()?)
}
