//! Event hubs that are chosen by a URL, so that a program can switch between them by its configuration.
//!
//! | URL | feature | the hub |
//! |---|---|---|
//! | `Endpoint=sb://HOST/;SharedAccessKeyName=…;SharedAccessKey=…;EntityPath=HUB` | `eventhubs` | Azure Event Hubs, or an Ephor hub that another process serves (`ephor dev`) |
//! | `hub:FOLDER/HUB?partitions=16` | `hub` | the embedded hub, on disk in this folder |
//! | `memory:HUB?partitions=16` | – | a hub in memory, for trying things out |
//!
//! ```
//! use ephor::hubs::{self, HubUrl};
//! use ephor::{EventSource, NewEvent, Producer};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! // Usually from the environment or a file.
//! let url: HubUrl = "memory:homes?partitions=4".parse()?;
//! let hub = hubs::open(&url).await?;
//! hub.producer.send(NewEvent::new("the door opened")).await?;
//! assert_eq!(hub.source.hub_properties().await?.partitions.len(), 4);
//! // Give `hub.source` to `EventProcessorHost::builder`.
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?; Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "hub")]
mod embedded;
mod open;
#[cfg(test)]
mod tests;
mod url;

pub use open::{OpenHub, OpenHubError, open};
pub use url::{DEFAULT_PARTITIONS, HubUrl, InvalidHubUrl, MAX_PARTITIONS};
