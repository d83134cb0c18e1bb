//! Creates the client of the event hub that a command such as `send` or `tail` uses, from its connection
//! string and options; it connects on first use. Also reads connection strings and store URLs from files.

use std::path::Path;
use std::time::Duration;

use ephor_core::BoxError;
use ephor_eventhubs::{EventHub, EventHubOptions};
use ephor_wire::connection_string::MAX_CONNECTION_STRING_LENGTH;

use crate::arguments::Connection;
use crate::secret_file;

/// Creates a client of this hub. It connects on first use.
pub(crate) fn open(connection: &Connection, hub: &str) -> Result<EventHub, BoxError> {
    open_with(connection, hub, EventHubOptions::default())
}

/// Creates a client with one attempt and short timeouts, for requests that may remain unanswered.
pub(crate) fn open_impatiently(connection: &Connection, hub: &str) -> Result<EventHub, BoxError> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let options = EventHubOptions {
        attempts: 1,
        connect_time: PATIENCE,
        answer_time: PATIENCE,
        ..EventHubOptions::default()
    };
    open_with(connection, hub, options)
}

fn open_with(connection: &Connection, hub: &str, options: EventHubOptions) -> Result<EventHub, BoxError> {
    let mut builder = EventHub::builder(&connection.string()?).hub(hub).options(options);
    if connection.allow_insecure {
        builder = builder.allow_insecure();
    }
    if let Some(file) = &connection.trust {
        let pem = std::fs::read(file).map_err(|error| format!("--trust {}: {error}", file.display()))?;
        builder = builder.extra_root(pem);
    }
    Ok(builder.build()?)
}

impl Connection {
    /// The connection string. A file given as an option takes precedence over the environment.
    fn string(&self) -> Result<String, BoxError> {
        match &self.connection_file {
            Some(file) => in_file("--connection-file", file),
            None => Ok(self.connection.clone()),
        }
    }
}

/// Reads a file that an option names in place of a connection string or a URL.
pub(crate) fn in_file(option: &str, file: &Path) -> Result<String, BoxError> {
    let text = secret_file::read(file, MAX_CONNECTION_STRING_LENGTH);
    Ok(text.map_err(|error| format!("{option} {error}"))?.trim().to_owned())
}
