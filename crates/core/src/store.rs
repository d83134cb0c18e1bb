//! The store interface: a store keeps leases, checkpoints and host records.
//!
//! Every method is one atomic step. The rules of writing are in [`crate::record`]; a backend proves
//! that it keeps them with the conformance suite of `ephor-testkit`.
//!
//! A lost race is a value. `Err` means that the store has a fault, and then the outcome is unknown:
//! the caller reads before it acts.
//!
//! A store that wraps another one implements [`StoreLayer`].

mod error;
mod layer;
mod request;
mod shared;

use std::time::Duration;

use crate::BoxFuture;
use crate::checkpoint::{Checkpoint, Position};
use crate::epoch::Epoch;
use crate::history::OwnershipChange;
use crate::host_record::HostRecord;
use crate::ids::{GroupId, HostId, LogId, PartitionId};
use crate::lease::{ClaimRequest, Lease, LeaseToken, ReleaseRequest, TransferRequest};
use crate::time::Timestamp;

pub use self::error::{RefusalCause, StoreError, Throttling};
pub use self::layer::StoreLayer;
pub use self::request::{StoreMethod, StoreRequest};

/// The most changes of ownership that are kept for each partition, in every store that keeps them.
pub const MAX_HISTORY_PER_PARTITION: u16 = 100;

/// The time without a heartbeat after which the record of a host is removed.
pub const FORGET_HOSTS_AFTER: Duration = Duration::from_secs(60 * 60);

/// The time after which the record of a dead host that was asked to drain is removed. It is longer,
/// so that a host that was only paused still sees the drain request.
pub const FORGET_DRAINED_HOSTS_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The optional features of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// [`Store::changed`] wakes a host when something changed for it.
    pub wakes: bool,
    /// A late save of a former owner is refused (fencing).
    pub fences_checkpoints: bool,
    /// Changes of ownership are kept.
    pub keeps_history: bool,
    /// The resolution of the store's clock.
    pub clock_resolution: Duration,
    /// Processors of other SDKs share the same groups. They know no epochs and read with epoch 0.
    /// Ephor hosts then also read with epoch 0, and check their lease again before every attach,
    /// because the hub no longer fences readers.
    pub shared_with_other_sdks: bool,
}

/// The result of a call to a store.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// The origin of a group, written once when its first host starts: the partitions of that time.
/// Partitions that are added later start at the earliest event, whatever the options say.
/// Stored as `founding`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOrigin {
    /// The partitions of the hub at that time.
    pub partitions: Vec<PartitionId>,
    /// The log at that time.
    pub log: Option<LogId>,
}

/// A host record and its age by the store's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HostEntry {
    /// The record that the host wrote.
    pub record: HostRecord,
    /// The time since it was written.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::duration_setting::millis"))]
    pub age: Duration,
    /// True if `age` is known; see [`Lease::age_known`].
    pub age_known: bool,
}

/// All records of a group, read in one call.
///
/// Leases are read before checkpoints, so that a host that finds itself the owner here sees a
/// checkpoint that no earlier owner can still change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The store's time.
    pub at: Timestamp,
    /// All hosts with a record, in order of their ids.
    pub hosts: Vec<HostEntry>,
    /// All leases, in order of their partitions.
    pub leases: Vec<Lease>,
    /// All checkpoints, in order of their partitions.
    pub checkpoints: Vec<(PartitionId, Checkpoint)>,
    /// The origin of the group.
    pub origin: Option<GroupOrigin>,
    /// Descriptions of records that could not be read. All other records are here.
    pub damaged: Vec<String>,
}

impl View {
    /// The lease of a partition.
    pub fn lease(&self, partition: PartitionId) -> Option<&Lease> {
        let index = self.leases.binary_search_by_key(&partition, |lease| lease.partition).ok()?;
        Some(&self.leases[index])
    }

    /// The checkpoint of a partition.
    pub fn checkpoint(&self, partition: PartitionId) -> Option<&Checkpoint> {
        let index = self.checkpoints.binary_search_by_key(&partition, |(partition, _)| *partition).ok()?;
        Some(&self.checkpoints[index].1)
    }

    /// The record of a host.
    pub fn host(&self, id: &HostId) -> Option<&HostEntry> {
        let index = self.hosts.binary_search_by(|entry| entry.record.id.cmp(id)).ok()?;
        Some(&self.hosts[index])
    }
}

/// The outcome of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The partition is ours.
    Won {
        /// Our proof of ownership.
        token: LeaseToken,
        /// The lease as it is now.
        lease: Lease,
        /// The checkpoint, read after it was fenced.
        checkpoint: Option<Checkpoint>,
    },
    /// Another host was faster, or the owner renewed.
    Lost {
        /// The lease as it is now.
        holder: Option<Lease>,
    },
}

/// The outcome of the renewal of one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewalOutcome {
    /// It is ours for another duration.
    Renewed,
    /// It is no longer ours.
    Lost {
        /// The lease as it is now.
        holder: Option<Lease>,
    },
    /// This renewal failed, and its outcome is unknown. The others are valid.
    Unknown {
        /// The error.
        what: String,
        /// As [`StoreError::retry_after`].
        retry_after: Option<Duration>,
    },
}

/// The outcome of giving a lease up, by transfer or by release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GiveUpOutcome {
    /// Done.
    Done,
    /// It was no longer ours.
    NotOurs,
}

/// The outcome of a save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveOutcome {
    /// It is written.
    Saved(Checkpoint),
    /// The stored position is further ahead, and stays.
    Behind {
        /// The stored checkpoint.
        stored: Checkpoint,
    },
    /// The epoch was fenced off by a newer one.
    Fenced {
        /// The epoch that may write now.
        epoch: Epoch,
    },
}

/// A save of a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveRequest {
    /// Proof of ownership.
    pub token: LeaseToken,
    /// The new position.
    pub position: Position,
    /// The log to which it belongs.
    pub log: Option<LogId>,
    /// Allows the save to move back. The owner has proof that the stored position does not exist in
    /// this log, and has reported it. Otherwise reading would jump there once the log has grown
    /// that far.
    pub rewind: bool,
}

impl SaveRequest {
    /// A save that does not move back.
    pub fn new(token: &LeaseToken, position: &Position, log: Option<&LogId>) -> Self {
        Self { token: token.clone(), position: position.clone(), log: log.cloned(), rewind: false }
    }
}

/// A seek by an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeekRequest {
    /// The partition.
    pub partition: PartitionId,
    /// The new position.
    pub position: Position,
    /// The log to which it belongs.
    pub log: Option<LogId>,
    /// The name of the operator, for the history.
    pub by: String,
    /// Seeks even if the owner is another SDK's processor, which will not notice.
    pub force: bool,
}

/// The outcome of a seek.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeekOutcome {
    /// Done, in this epoch.
    Done {
        /// The epoch that the seek took.
        epoch: Epoch,
    },
    /// The owner is another SDK's processor, which will not notice.
    OtherSdkOwner {
        /// The id of the owner.
        owner: String,
    },
}

/// The state that an operator asks of a host. SQL stores keep it in a table `orders`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DesiredState {
    /// Hand all partitions over and take no new ones.
    pub drain: bool,
}

/// A store. Futures may be dropped at any time; the step is then either done or not.
pub trait Store: Send + Sync + 'static {
    /// The optional features of this store.
    fn capabilities(&self) -> Capabilities;

    /// The groups that have records here.
    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>>;

    /// Writes the origin of the group, unless there is one already; returns the stored one.
    fn init_group<'a>(&'a self, group: &'a GroupId, origin: &'a GroupOrigin) -> StoreFuture<'a, GroupOrigin>;

    /// Reads all records of the group.
    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View>;

    /// Writes a host's record with a new date, and returns the desired state of the host.
    /// Wakes the owners whom the record newly asks. Records of hosts that are long dead may be
    /// removed here.
    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, DesiredState>;

    /// Removes the record of a host that has stopped.
    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()>;

    /// Sets the desired state of a host, until it retires or its record is removed, and wakes
    /// it. False if there is no such host.
    fn set_desired_state<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        desired: DesiredState,
    ) -> StoreFuture<'a, bool>;

    /// Takes a partition in a new epoch, if its lease is in the state that was seen, and fences its
    /// checkpoint before reading it.
    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, ClaimOutcome>;

    /// Renews leases; returns one result for each token, in order.
    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<RenewalOutcome>>;

    /// The same for a caller that waits no longer than `limit`: a store that needs several requests
    /// returns the known results shortly before, and the rest as unknown. The most urgent tokens
    /// come first.
    fn renew_within<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
        _limit: Duration,
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        self.renew(group, duration, tokens)
    }

    /// Hands a lease over in a new epoch, fences its checkpoint, and wakes the new owner.
    fn transfer<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a TransferRequest,
    ) -> StoreFuture<'a, GiveUpOutcome>;

    /// Releases a lease and wakes the successor; without one, every host with a record.
    fn release<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a ReleaseRequest,
    ) -> StoreFuture<'a, GiveUpOutcome>;

    /// Saves a position under the epoch with which the checkpoint is fenced; backwards only for a
    /// rewind.
    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, SaveOutcome>;

    /// Moves a position for an operator: a new epoch, no owner, in one step. Wakes the owner.
    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, SeekOutcome>;

    /// The last changes of ownership, newest first, of one partition or of all.
    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>>;

    /// Returns when something changed for this host, and never if the store cannot wake hosts. A
    /// change between two calls is not missed: the second call returns at once. It is a hint;
    /// nothing relies on it.
    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Incarnation;
    use crate::position::StartPosition;

    #[test]
    fn a_view_finds_what_it_holds_and_nothing_else() {
        let checkpoint = |partition| {
            let position = Position::Start(StartPosition::Earliest);
            let saved_at = Timestamp(i64::from(partition));
            (PartitionId(partition), Checkpoint { position, log: None, epoch: Epoch::NONE, saved_at })
        };
        let view = View { checkpoints: vec![checkpoint(1), checkpoint(4)], ..View::default() };
        assert_eq!(view.checkpoint(PartitionId(4)).map(|found| found.saved_at), Some(Timestamp(4)));
        assert_eq!(view.checkpoint(PartitionId(2)), None);
        assert_eq!(view.lease(PartitionId(1)), None);
        let nobody = HostId { name: "nobody".parse().unwrap(), incarnation: Incarnation(0) };
        assert_eq!(view.host(&nobody), None);
    }
}
