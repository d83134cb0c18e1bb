//! How `send` and `tail` find a hub.

use ephor_core::BoxError;
use ephor_eventhubs::EventHubs;

use crate::arguments::Connection;

/// A client of this hub. It connects when it is first used.
pub(crate) fn open(connection: &Connection, hub: &str) -> Result<EventHubs, BoxError> {
    let mut builder = EventHubs::builder(&connection.connection).hub(hub);
    if let Some(file) = &connection.trust {
        let pem = std::fs::read(file).map_err(|error| format!("--trust {}: {error}", file.display()))?;
        builder = builder.extra_root(pem);
    }
    Ok(builder.build()?)
}
