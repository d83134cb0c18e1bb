//! What all calls share: the container, the names, and what is known of the records that are ours to write.
//!
//! What is known is used as a condition: whoever writes by it and is wrong is refused by the service, reads and decides
//! again. So nothing here must be kept up to date, and nothing is lost with it. Only of a lease that is renewed on a roll more is
//! asked: that it is ours until somebody strikes it (`shelf.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{GroupId, PartitionId};
use ephor_core::store::StoreError;

use super::container::{Blob, Container, NOTHING, Write};
use super::failure;
use super::metadata::{escape, pairs, unescape};
use super::names::{Case, Names};
use super::options::{BlobOptions, Neighbours};
use super::ownership::Ownership;
use super::shelf::Shelf;
use super::strikes::Rolls;

/// So often somebody may be faster before a call gives up.
pub(super) const MOST_ATTEMPTS: usize = 40;

/// So long requests may take that nobody needs an answer to, together.
pub(super) const ADVISORY_LIMIT: Duration = Duration::from_secs(1);

/// What comes within this time.
#[expect(clippy::disallowed_methods, reason = "requests to a service take real time")]
pub(super) async fn within<T>(limit: Duration, step: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, step).await.ok()
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the container may be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Making {
    /// It is created if it is missing.
    Allowed,
    /// For tools: it is used as it is.
    Never,
}

pub(super) struct Session {
    pub(super) container: Container,
    pub(super) prefix: String,
    pub(super) options: BlobOptions,
    making: Making,
    ready: tokio::sync::OnceCell<()>,
    /// Groups whose names are written down.
    known: Mutex<BTreeSet<GroupId>>,
    pub(super) leases: Shelf<Ownership>,
    pub(super) rolls: Rolls,
    pub(super) checkpoints: Shelf<Blob>,
    /// Under which epochs no checkpoint was found under a name of another case.
    nothing_elsewhere: Mutex<BTreeMap<(Names, PartitionId), Epoch>>,
    /// Our hosts' records.
    pub(super) hosts: Mutex<BTreeMap<String, Blob>>,
    /// Records of hosts that are long dead, and rolls that nobody needs, with their state, by group.
    pub(super) dead: Mutex<BTreeMap<Names, Vec<(String, String)>>>,
}

impl Session {
    pub(super) fn new(container: Container, prefix: String, options: BlobOptions, making: Making) -> Self {
        Self {
            container,
            prefix,
            options,
            making,
            ready: tokio::sync::OnceCell::new(),
            known: Mutex::default(),
            leases: Shelf::default(),
            rolls: Rolls::default(),
            checkpoints: Shelf::default(),
            nothing_elsewhere: Mutex::default(),
            hosts: Mutex::default(),
            dead: Mutex::default(),
        }
    }

    pub(super) fn shared_with_others(&self) -> bool {
        self.options.neighbours == Neighbours::Sdk
    }

    pub(super) fn is_for_tools(&self) -> bool {
        self.making == Making::Never
    }

    /// The container is there, or is made, before anything else.
    pub(super) async fn ready(&self) -> Result<(), StoreError> {
        self.ready.get_or_try_init(|| self.prepare()).await.map(|_| ())
    }

    async fn prepare(&self) -> Result<(), StoreError> {
        if self.making == Making::Never {
            return Ok(());
        }
        if !self.container.exists().await? {
            self.make_container().await?;
            tracing::info!(store = self.container.place, "created the container");
        }
        // It is only good to know: it holds nobody up for long.
        for advice in within(ADVISORY_LIMIT, self.advice()).await.unwrap_or_default() {
            tracing::warn!(store = self.container.place, "{advice}");
        }
        Ok(())
    }

    async fn make_container(&self) -> Result<(), StoreError> {
        self.container.make().await.map_err(|error| match failure::lacks_right(&error) {
            true => StoreError::Refused {
                message: format!(
                    "{}: the container is missing, and what opens the account may not create one: create it, or \
                     correct its name ({error})",
                    self.container.place
                ),
            },
            false => error,
        })
    }

    /// Whether the container can be used at all.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        self.ready().await?;
        // A tool is told here that there is none, and everybody that the rights are too few to list.
        self.container.list(NOTHING).await.map(|_| ())
    }

    pub(super) fn names(&self, group: &GroupId) -> Result<Names, StoreError> {
        self.names_in(group, self.options.case)
    }

    fn names_in(&self, group: &GroupId, case: Case) -> Result<Names, StoreError> {
        let too_long = || StoreError::Refused {
            message: format!(
                "{}: the names of {group} are too long for a blob: use a shorter prefix",
                self.container.place
            ),
        };
        Names::of(&self.prefix, group, case).ok_or_else(too_long)
    }

    /// Where SDKs that write names in the other case have their records, if that is elsewhere.
    pub(super) fn names_elsewhere(&self, group: &GroupId) -> Option<Names> {
        let other = match self.options.case {
            Case::Small => Case::AsGiven,
            Case::AsGiven => Case::Small,
        };
        let theirs = self.names_in(group, other).ok()?;
        (self.names(group).ok()? != theirs).then_some(theirs)
    }

    /// Whether this epoch, or a later one, has looked for a checkpoint under a name of another case, in vain.
    pub(super) fn nothing_elsewhere(&self, names: &Names, partition: PartitionId, epoch: Epoch) -> bool {
        let looked = locked(&self.nothing_elsewhere);
        looked.get(&(names.clone(), partition)).is_some_and(|looked| *looked >= epoch)
    }

    pub(super) fn note_nothing_elsewhere(&self, names: &Names, partition: PartitionId, epoch: Epoch) {
        locked(&self.nothing_elsewhere).insert((names.clone(), partition), epoch);
    }

    /// Before the first write: the group's names are written down, and they are these. Two groups that differ
    /// only in case have the same blobs.
    pub(super) async fn introduced(&self, group: &GroupId) -> Result<Names, StoreError> {
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
            self.must_be(group, &blob)?;
        }
        locked(&self.known).insert(group.clone());
        Ok(names)
    }

    /// Refuses to take another group's blobs for this one's.
    pub(super) fn must_be(&self, group: &GroupId, blob: &Blob) -> Result<(), StoreError> {
        match written_group(blob) {
            Some(written) if written != *group => Err(StoreError::Refused {
                message: format!(
                    "{}: {written} is here already, and {group} would have the same blobs, for they are named in small \
                     letters: write the name as it was written first, or use another prefix",
                    self.container.place
                ),
            }),
            _ => Ok(()),
        }
    }
}

/// The names as they were given.
pub(super) fn written_group(blob: &Blob) -> Option<GroupId> {
    let text = |name: &str| blob.metadata.get(name).map(|value| unescape(value));
    Some(GroupId {
        namespace: text("namespace")?.parse().ok()?,
        hub: text("hub")?.parse().ok()?,
        group: text("group")?.parse().ok()?,
    })
}
