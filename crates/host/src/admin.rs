//! Administration of a consumer group without a host of its own: list hosts, leases and checkpoints, seek,
//! and drain.
//!
//! Everything goes through the store. A seek is one atomic step for each partition, and its owner
//! notices it; a drain is a request that the host receives with its next heartbeat.

mod seek;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use ephor_core::checkpoint::Checkpoint;
use ephor_core::history::OwnershipChange;
use ephor_core::ids::{GroupId, HostId, LogId, PartitionId};
use ephor_core::lease::Lease;
use ephor_core::position::SequenceNumber;
use ephor_core::source::{EventSource, HubProperties, OpenError, OpenRequest, SourceError};
use ephor_core::store::{DesiredState, HostEntry, SeekOutcome, SeekRequest, Store, StoreError};

use seek::{distance, resolve};

pub use seek::{SeekMode, SeekStep, SeekStepOutcome, SeekTo};

/// The error of an administrative call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The store failed, and a change may or may not have taken effect; reading the group tells.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The hub failed. Nothing was changed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// There is no such partition.
    #[error("the hub has no partition {partition}; it has {partitions}, from 0 on")]
    UnknownPartition {
        /// The partition that was named.
        partition: PartitionId,
        /// The number of partitions of the hub.
        partitions: usize,
    },
    /// There is no such event.
    #[error("partition {partition} has no event {wanted}: {}", kept(*first, *end))]
    OutOfRange {
        /// The partition.
        partition: PartitionId,
        /// The event that was named.
        wanted: SequenceNumber,
        /// The oldest event kept.
        first: SequenceNumber,
        /// The next event to come.
        end: SequenceNumber,
    },
    /// A relative seek in a partition without a checkpoint.
    #[error(
        "partition {partition} has no checkpoint yet, so there is nothing to step from; name a sequence number, \
         a time, earliest or latest"
    )]
    NoCheckpoint {
        /// The partition.
        partition: PartitionId,
    },
    /// There is no such host.
    #[error(
        "no host {wanted:?} in this group; there {}",
        if known.is_empty() { "is none".into() } else { format!("are: {}", known.join(", ")) }
    )]
    UnknownHost {
        /// The name that was given.
        wanted: String,
        /// The known hosts.
        known: Vec<String>,
    },
}

/// The events that are kept, in words.
fn kept(first: SequenceNumber, end: SequenceNumber) -> String {
    match end.0.checked_sub(1) {
        Some(last) if end > first => format!("it keeps {first} to {last}, and {end} is the next to come"),
        _ => format!("it keeps none, and {end} is the next to come"),
    }
}

/// A group, seen from outside.
#[derive(Clone)]
pub struct Admin {
    store: Arc<dyn Store>,
    source: Arc<dyn EventSource>,
    group: GroupId,
    by: String,
}

impl Admin {
    /// The administration of `group`. `by` is written into the history of the changes.
    pub fn new(
        store: Arc<dyn Store>,
        source: Arc<dyn EventSource>,
        group: GroupId,
        by: impl Into<String>,
    ) -> Self {
        Self { store, source, group, by: by.into() }
    }

    /// All hosts with a record, and the age of the record.
    pub async fn hosts(&self) -> Result<Vec<HostEntry>, AdminError> {
        Ok(self.store.view(&self.group).await?.hosts)
    }

    /// All leases.
    pub async fn leases(&self) -> Result<Vec<Lease>, AdminError> {
        Ok(self.store.view(&self.group).await?.leases)
    }

    /// All checkpoints.
    pub async fn checkpoints(&self) -> Result<Vec<(PartitionId, Checkpoint)>, AdminError> {
        Ok(self.store.view(&self.group).await?.checkpoints)
    }

    /// The last changes of ownership, newest first, of one partition or of all.
    pub async fn history(
        &self,
        partition: Option<PartitionId>,
        max: usize,
    ) -> Result<Vec<OwnershipChange>, AdminError> {
        Ok(self.store.history(&self.group, partition, max).await?)
    }

    /// Moves the position of these partitions, each once, or of all if none is named. All positions
    /// are resolved before the first one is changed.
    pub async fn seek(
        &self,
        partitions: &[PartitionId],
        to: &SeekTo,
        mode: SeekMode,
    ) -> Result<Vec<SeekStep>, AdminError> {
        let hub = self.source.hub_properties().await?;
        self.group_exists(&hub).await?;
        for partition in partitions {
            if !hub.partitions.contains(partition) {
                let partitions = hub.partitions.len();
                return Err(AdminError::UnknownPartition { partition: *partition, partitions });
            }
        }
        let chosen: BTreeSet<PartitionId> =
            if partitions.is_empty() { &hub.partitions[..] } else { partitions }.iter().copied().collect();
        let view = self.store.view(&self.group).await?;
        let mut steps = vec![];
        for partition in chosen {
            let properties = self.source.partition_properties(partition).await?;
            let from = view.checkpoint(partition).map(|checkpoint| checkpoint.position.clone());
            let target = resolve(to, from.as_ref(), &properties)?;
            let distance = distance(from.as_ref(), &target, &properties);
            let owner = view.lease(partition).and_then(|lease| lease.owner.clone());
            steps.push(SeekStep { partition, from, to: target, distance, owner, outcome: None });
        }
        if mode != SeekMode::DryRun {
            for step in &mut steps {
                step.outcome = Some(self.carry_out(step, hub.log.clone(), mode == SeekMode::Force).await?);
            }
        }
        Ok(steps)
    }

    /// Checks that the group exists: a seek in one that does not would look as if it had worked.
    async fn group_exists(&self, hub: &HubProperties) -> Result<(), AdminError> {
        let Some(&partition) = hub.partitions.first() else { return Ok(()) };
        match self.source.open(OpenRequest::probe(&self.group.group, partition, &self.by)).await {
            Err(OpenError::Source(error)) => Err(error.into()),
            // Opened, or refused because another receiver reads it: it exists.
            _ => Ok(()),
        }
    }

    async fn carry_out(
        &self,
        step: &SeekStep,
        log: Option<LogId>,
        force: bool,
    ) -> Result<SeekStepOutcome, AdminError> {
        let request = SeekRequest {
            partition: step.partition,
            position: step.to.clone(),
            log,
            by: self.by.clone(),
            force,
        };
        Ok(match self.store.seek(&self.group, &request).await? {
            SeekOutcome::Done { epoch } => SeekStepOutcome::Done(epoch),
            SeekOutcome::OtherSdkOwner { owner } => SeekStepOutcome::OtherSdkOwner(owner),
        })
    }

    /// Asks a host to hand over all its partitions and take no new ones. The host is given by its
    /// name or by its full id.
    pub async fn drain(&self, host: &str) -> Result<Vec<HostId>, AdminError> {
        self.set_desired_state(host, DesiredState { drain: true }).await
    }

    /// Cancels a [`drain`](Self::drain).
    pub async fn undrain(&self, host: &str) -> Result<Vec<HostId>, AdminError> {
        self.set_desired_state(host, DesiredState { drain: false }).await
    }

    async fn set_desired_state(
        &self,
        wanted: &str,
        desired: DesiredState,
    ) -> Result<Vec<HostId>, AdminError> {
        set_desired_state(&*self.store, &self.group, wanted, desired).await
    }
}

/// Sets the desired state of a host, which is given by its name or by its full id. Needs no
/// hub.
pub async fn set_desired_state(
    store: &dyn Store,
    group: &GroupId,
    wanted: &str,
    desired: DesiredState,
) -> Result<Vec<HostId>, AdminError> {
    let hosts = store.view(group).await?.hosts;
    let ids = hosts.iter().map(|entry| &entry.record.id);
    let named = ids.clone().filter(|id| id.name.as_str() == wanted || id.to_string() == wanted);
    let mut found = vec![];
    for id in named {
        if store.set_desired_state(group, id, desired).await? {
            found.push(id.clone());
        }
    }
    if found.is_empty() {
        let known = ids.map(|id| id.name.to_string()).collect();
        return Err(AdminError::UnknownHost { wanted: wanted.into(), known });
    }
    Ok(found)
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Admin({})", self.group)
    }
}
