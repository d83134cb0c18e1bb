//! The state that all calls of an Azure Blob store share: the container, the names, and the cached records.
//! It creates a missing container, and stores and checks the names of groups.
//!
//! A cached record is used as a condition: if it is outdated, the service refuses the write, and the call
//! reads and decides again. So the cache need not be kept up to date, and losing it is harmless. Only a
//! lease that is renewed in a batch needs more: that it is ours until a process revokes it
//! (`records/record_cache.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{GroupId, PartitionId};
use ephor_core::store::{RefusalCause, StoreError};

use crate::azblob::layout::blob_names::{Case, Names};
use crate::azblob::layout::metadata::{escape, pairs, unescape};
use crate::azblob::options::{BlobOptions, SharedWith};
use crate::azblob::records::ownership::Ownership;
use crate::azblob::records::record_cache::RecordCache;
use crate::azblob::renewal::revocations::KnownBatches;
use crate::azblob::service::container::{Blob, Container, NOTHING, Write};

/// The number of lost races after which a call fails.
pub(super) const MAX_ATTEMPTS: usize = 40;

/// The limit for requests whose answer no caller needs, together.
pub(super) const ADVISORY_LIMIT: Duration = Duration::from_secs(1);

/// The result of a step; none if it takes longer than the limit.
#[expect(clippy::disallowed_methods, reason = "requests to a service take real time")]
pub(super) async fn within<T>(limit: Duration, step: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, step).await.ok()
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a missing container is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerCreation {
    /// Create it.
    Allowed,
    /// Never create it: for tools.
    Never,
}

pub(super) struct Session {
    pub(super) container: Container,
    pub(super) prefix: String,
    pub(super) options: BlobOptions,
    creation: ContainerCreation,
    ready: tokio::sync::OnceCell<()>,
    /// Groups whose names are stored.
    known: Mutex<BTreeSet<GroupId>>,
    pub(super) leases: RecordCache<Ownership>,
    pub(super) batches: KnownBatches,
    pub(super) checkpoints: RecordCache<Blob>,
    /// The epochs under which no checkpoint was found under a name in the other case.
    no_checkpoint_in_other_case: Mutex<BTreeMap<(Names, PartitionId), Epoch>>,
    /// The records of this process's hosts.
    pub(super) hosts: Mutex<BTreeMap<String, Blob>>,
    /// Records of long dead hosts and unneeded batches, with their ETags, by group.
    pub(super) deletable: Mutex<BTreeMap<Names, Vec<(String, String)>>>,
}

impl Session {
    pub(super) fn new(
        container: Container,
        prefix: String,
        options: BlobOptions,
        creation: ContainerCreation,
    ) -> Self {
        Self {
            container,
            prefix,
            options,
            creation,
            ready: tokio::sync::OnceCell::new(),
            known: Mutex::default(),
            leases: RecordCache::default(),
            batches: KnownBatches::default(),
            checkpoints: RecordCache::default(),
            no_checkpoint_in_other_case: Mutex::default(),
            hosts: Mutex::default(),
            deletable: Mutex::default(),
        }
    }

    pub(super) fn shared_with_other_sdks(&self) -> bool {
        self.options.shared_with == SharedWith::OtherSdks
    }

    pub(super) fn is_for_tools(&self) -> bool {
        self.creation == ContainerCreation::Never
    }

    /// Checks or creates the container before the first request.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        self.ready.get_or_try_init(|| self.prepare()).await.map(|_| ())
    }

    async fn prepare(&self) -> Result<(), StoreError> {
        if self.creation == ContainerCreation::Never {
            return Ok(());
        }
        if !self.container.exists().await? {
            self.make_container().await?;
            tracing::info!(store = self.container.place, "created the container");
        }
        // A hint for operators: it must not delay the caller for long.
        for warning in within(ADVISORY_LIMIT, self.account_warnings()).await.unwrap_or_default() {
            tracing::warn!(store = self.container.place, "{warning}");
        }
        Ok(())
    }

    async fn make_container(&self) -> Result<(), StoreError> {
        self.container.make().await.map_err(|error| match error.refusal_cause() {
            Some(RefusalCause::AccessDenied) => {
                let message = format!(
                    "{}: the container does not exist, and these credentials may not create one: create it, or \
                     correct its name ({error})",
                    self.container.place
                );
                StoreError::refused(RefusalCause::NotFound, message)
            }
            _ => error,
        })
    }

    /// Fails unless the container can be used.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        self.ready().await?;
        // Reports a missing container to a tool, and missing rights to every caller.
        self.container.list(NOTHING).await.map(|_| ())
    }

    pub(super) fn names(&self, group: &GroupId) -> Result<Names, StoreError> {
        self.names_in(group, self.options.case)
    }

    fn names_in(&self, group: &GroupId, case: Case) -> Result<Names, StoreError> {
        let too_long = || {
            let place = &self.container.place;
            let message =
                format!("{place}: the names of {group} are too long for a blob: use a shorter prefix");
            StoreError::refused(RefusalCause::Other, message)
        };
        Names::of(&self.prefix, group, case).ok_or_else(too_long)
    }

    /// The names in the other case, if they differ from ours. SDKs that use that case keep their records there.
    pub(super) fn names_in_other_case(&self, group: &GroupId) -> Option<Names> {
        let other = match self.options.case {
            Case::Lower => Case::AsGiven,
            Case::AsGiven => Case::Lower,
        };
        let theirs = self.names_in(group, other).ok()?;
        (self.names(group).ok()? != theirs).then_some(theirs)
    }

    /// Whether this or a later epoch has found no checkpoint under a name in the other case.
    pub(super) fn no_checkpoint_in_other_case(
        &self,
        names: &Names,
        partition: PartitionId,
        epoch: Epoch,
    ) -> bool {
        let looked = locked(&self.no_checkpoint_in_other_case);
        looked.get(&(names.clone(), partition)).is_some_and(|looked| *looked >= epoch)
    }

    pub(super) fn note_no_checkpoint_in_other_case(
        &self,
        names: &Names,
        partition: PartitionId,
        epoch: Epoch,
    ) {
        locked(&self.no_checkpoint_in_other_case).insert((names.clone(), partition), epoch);
    }

    /// Returns the names of a group, and before its first write stores them or compares them with the stored
    /// ones: two groups that differ only in case would share their blobs.
    pub(super) async fn ensure_group(&self, group: &GroupId) -> Result<Names, StoreError> {
        self.ready().await?;
        let names = self.names(group)?;
        if locked(&self.known).contains(group) {
            return Ok(names);
        }
        let metadata = pairs([
            ("namespace", escape(group.namespace.as_str())),
            ("hub", escape(group.hub.as_str())),
            ("group", escape(group.group.as_str())),
        ]);
        if self.container.create(&names.group(), &metadata, "").await? == Write::Refused
            && let Some(blob) = self.container.head(&names.group()).await?.blob
        {
            self.check_group(group, &blob)?;
        }
        locked(&self.known).insert(group.clone());
        Ok(names)
    }

    /// Refuses the blobs of another group.
    pub(super) fn check_group(&self, group: &GroupId, blob: &Blob) -> Result<(), StoreError> {
        match written_group(blob) {
            Some(written) if written != *group => {
                let message = format!(
                    "{}: {written} exists already, and {group} would share its blobs, because their names are in lower \
                     case: write the name as it was written first, or use another prefix",
                    self.container.place
                );
                Err(StoreError::refused(RefusalCause::Other, message))
            }
            _ => Ok(()),
        }
    }
}

/// The group's names in their original case.
pub(super) fn written_group(blob: &Blob) -> Option<GroupId> {
    let text = |name: &str| blob.metadata.get(name).map(|value| unescape(value));
    Some(GroupId {
        namespace: text("namespace")?.parse().ok()?,
        hub: text("hub")?.parse().ok()?,
        group: text("group")?.parse().ok()?,
    })
}
