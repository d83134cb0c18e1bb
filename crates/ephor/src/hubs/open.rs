//! Opens the hub that a URL names.

use std::fmt;
use std::sync::Arc;

use ephor_host::memory::MemoryHub;
use ephor_host::{EventSource, Producer};

use super::url::{DEFAULT_PARTITIONS, HubUrl};

/// An open hub. Clones share it. It stays open until the last clone, source and producer of it is dropped.
#[derive(Clone)]
#[non_exhaustive]
pub struct OpenHub {
    /// The hub for readers: give it to [`EventProcessorHost::builder`](crate::EventProcessorHost::builder).
    pub source: Arc<dyn EventSource>,
    /// The hub for senders.
    pub producer: Arc<dyn Producer>,
}

impl OpenHub {
    pub(super) fn new(source: impl EventSource, producer: impl Producer) -> Self {
        Self { source: Arc::new(source), producer: Arc::new(producer) }
    }
}

impl fmt::Debug for OpenHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenHub({})", self.source.endpoint())
    }
}

/// Why a hub cannot be opened. It shows no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenHubError {
    /// The connection string is invalid, or the hub cannot be used with it.
    #[cfg(feature = "eventhubs")]
    #[error(transparent)]
    EventHubs(#[from] ephor_eventhubs::ConnectError),
    /// The embedded hub cannot be opened or created.
    #[cfg(feature = "hub")]
    #[error("{url}: {error}")]
    Embedded {
        /// The hub.
        url: HubUrl,
        /// The reason.
        #[source]
        error: ephor_hub::HubError,
    },
    /// The hub exists with another number of partitions.
    #[error(
        "{url}: the hub has {present} partitions; write partitions={present} or leave it out. To add partitions for \
         good, which changes the partitions of keys, call Hub::grow or `ephor dev --grow`"
    )]
    OtherPartitions {
        /// The hub.
        url: HubUrl,
        /// Its number of partitions.
        present: u32,
    },
    /// This program was built without the hub's feature.
    #[error("{url}: this program was built without the feature `{feature}` of ephor")]
    NotBuiltIn {
        /// The hub.
        url: HubUrl,
        /// The missing feature.
        feature: &'static str,
    },
}

/// Opens the hub that a URL names.
///
/// Over AMQP it connects, and reports a wrong address, key or name. The embedded hub and a hub in memory are created if
/// they do not exist, with [`DEFAULT_PARTITIONS`] unless the URL names a number; an existing hub never changes.
///
/// A data folder of the embedded hub can be open once at a time, on the whole machine, and every call for a hub in
/// memory creates another hub: open it once, and share the [`OpenHub`].
pub async fn open(url: &HubUrl) -> Result<OpenHub, OpenHubError> {
    match url {
        #[cfg(feature = "eventhubs")]
        HubUrl::EventHubs(text) => {
            let hub = ephor_eventhubs::EventHub::connect(text).await?;
            let producer = hub.producer();
            Ok(OpenHub::new(hub, producer))
        }
        #[cfg(not(feature = "eventhubs"))]
        HubUrl::EventHubs(_) => Err(OpenHubError::NotBuiltIn { url: url.clone(), feature: "eventhubs" }),
        #[cfg(feature = "hub")]
        HubUrl::Embedded { folder, hub, partitions } => {
            super::embedded::open(url, folder, hub, *partitions).await
        }
        #[cfg(not(feature = "hub"))]
        HubUrl::Embedded { .. } => Err(OpenHubError::NotBuiltIn { url: url.clone(), feature: "hub" }),
        HubUrl::Memory { hub, partitions } => {
            let partitions = partitions.unwrap_or(DEFAULT_PARTITIONS);
            let hub = MemoryHub::new(hub.as_str(), partitions).expect("it is the name of a hub");
            let producer = hub.producer();
            Ok(OpenHub::new(hub, producer))
        }
    }
}
