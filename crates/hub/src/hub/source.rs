//! Implements `EventSource` for a hub in the same process, so that hosts can read from it.

use ephor_core::BoxFuture;
use ephor_core::ids::{HubName, Namespace, PartitionId};
use ephor_core::source::{
    EventSource, HubProperties, OpenError, OpenRequest, PartitionProperties, Receiver, SourceCapabilities,
    SourceError,
};

use super::Hub;

impl EventSource for Hub {
    fn namespace(&self) -> &Namespace {
        &self.0.namespace
    }

    fn hub(&self) -> &HubName {
        &self.0.name
    }

    fn endpoint(&self) -> String {
        format!("{}/{} in {}", self.0.namespace, self.0.name, self.0.files.shown(&self.0.folder))
    }

    fn capabilities(&self) -> SourceCapabilities {
        SourceCapabilities::EVENT_HUBS
    }

    fn hub_properties(&self) -> BoxFuture<'_, Result<HubProperties, SourceError>> {
        Box::pin(async move {
            let partitions = self.partitions().iter().map(|partition| partition.id).collect();
            Ok(HubProperties { partitions, log: Some(self.0.log_id.clone()) })
        })
    }

    fn partition_properties(
        &self,
        partition: PartitionId,
    ) -> BoxFuture<'_, Result<PartitionProperties, SourceError>> {
        Box::pin(async move { Ok(self.partition(partition)?.properties()) })
    }

    fn open(&self, request: OpenRequest) -> BoxFuture<'_, Result<Box<dyn Receiver>, OpenError>> {
        Box::pin(async move { Ok(Box::new(self.receiver(request).await?) as Box<dyn Receiver>) })
    }
}
