//! Opens the embedded hub in a folder, and keeps the folder open as long as the hub is used.

use std::path::Path;
use std::sync::Arc;

use ephor_host::producer::Sent;
use ephor_host::source::{
    HubProperties, OpenError, OpenRequest, PartitionProperties, Receiver, SourceCapabilities, SourceError,
};
use ephor_host::{
    BoxFuture, EventSource, HubName, Namespace, NewEvent, PartitionId, Producer, ProducerError, Target,
};
use ephor_hub::{Hub, HubConfig, HubError, HubProducer, LocalNamespace, NamespaceConfig};

use super::open::{OpenHub, OpenHubError};
use super::url::{DEFAULT_PARTITIONS, HubUrl};

/// A hub or its producer, and the namespace, which closes all its hubs when it is dropped.
struct Kept<T> {
    inner: T,
    _namespace: Arc<LocalNamespace>,
}

pub(super) async fn open(
    url: &HubUrl,
    folder: &Path,
    name: &HubName,
    partitions: Option<u32>,
) -> Result<OpenHub, OpenHubError> {
    let (folder, name) = (folder.to_owned(), name.clone());
    // Recovery reads the log from the disk.
    let opened = tokio::task::spawn_blocking(move || open_or_create(&folder, &name, partitions)).await;
    let opened = opened.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()));
    let (namespace, hub) = opened.map_err(|error| OpenHubError::Embedded { url: url.clone(), error })?;
    let present = hub.partition_count();
    if partitions.is_some_and(|wanted| wanted != present) {
        return Err(OpenHubError::OtherPartitions { url: url.clone(), present });
    }
    let producer = Kept { inner: hub.producer(), _namespace: namespace.clone() };
    Ok(OpenHub::new(Kept { inner: hub, _namespace: namespace }, producer))
}

fn open_or_create(
    folder: &Path,
    name: &HubName,
    partitions: Option<u32>,
) -> Result<(Arc<LocalNamespace>, Hub), HubError> {
    let namespace = LocalNamespace::open(folder, NamespaceConfig::default())?;
    let hub = match namespace.hub(name.as_str()) {
        Err(HubError::NotFound { .. }) => {
            let partitions = partitions.unwrap_or(DEFAULT_PARTITIONS);
            namespace.create_hub(HubConfig::new(name.as_str(), partitions)?)?
        }
        found => found?,
    };
    Ok((Arc::new(namespace), hub))
}

impl EventSource for Kept<Hub> {
    fn namespace(&self) -> &Namespace {
        self.inner.namespace()
    }

    fn hub(&self) -> &HubName {
        self.inner.hub()
    }

    fn endpoint(&self) -> String {
        self.inner.endpoint()
    }

    fn capabilities(&self) -> SourceCapabilities {
        self.inner.capabilities()
    }

    fn hub_properties(&self) -> BoxFuture<'_, Result<HubProperties, SourceError>> {
        self.inner.hub_properties()
    }

    fn partition_properties(
        &self,
        partition: PartitionId,
    ) -> BoxFuture<'_, Result<PartitionProperties, SourceError>> {
        self.inner.partition_properties(partition)
    }

    fn received_bytes(&self) -> u64 {
        self.inner.received_bytes()
    }

    fn open(&self, request: OpenRequest) -> BoxFuture<'_, Result<Box<dyn Receiver>, OpenError>> {
        self.inner.open(request)
    }
}

impl Producer for Kept<HubProducer> {
    fn send_batch<'a>(
        &'a self,
        target: Target<'a>,
        events: Vec<NewEvent>,
    ) -> BoxFuture<'a, Result<Sent, ProducerError>> {
        Producer::send_batch(&self.inner, target, events)
    }
}
