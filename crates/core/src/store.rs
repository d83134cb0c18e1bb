//! The seam to a store: where leases, checkpoints and host records live.
//!
//! Every method is one atomic step. The rules of who may write what are in
//! [`crate::record`]; a backend proves that it keeps them by running the
//! conformance suite of `ephor-testkit`.
//!
//! Losing a race is a value. `Err` means that the store is unwell, and then the
//! outcome is unknown: the caller looks before it acts.

use std::time::Duration;

use crate::BoxError;
use crate::BoxFuture;
use crate::checkpoint::{Checkpoint, Position};
use crate::epoch::Epoch;
use crate::history::OwnershipChange;
use crate::host_record::HostRecord;
use crate::ids::{GroupId, HostId, LogId, PartitionId};
use crate::lease::{ClaimRequest, Lease, LeaseToken, ReleaseRequest, TransferRequest};
use crate::time::Timestamp;

/// So many changes of ownership are remembered for each partition, in every store that remembers them.
pub const HISTORY_PER_PARTITION: u16 = 100;

/// A host that has not been heard of for this long is forgotten.
pub const FORGET_HOSTS_AFTER: Duration = Duration::from_secs(60 * 60);

/// One that shall drain is remembered for this long, and its orders with it: if it was only paused, it must still
/// learn of them.
pub const FORGET_DRAINED_HOSTS_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// What a store can do beyond the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// [`Store::changed`] wakes a host when something is up for it.
    pub wakes: bool,
    /// A late save of an earlier owner is refused.
    pub fences_checkpoints: bool,
    /// Changes of ownership are remembered.
    pub keeps_history: bool,
    /// How finely the store's clock counts.
    pub clock_resolution: Duration,
    /// Processors of other SDKs own partitions of the same groups, and they know no epochs: they read with epoch 0.
    /// So a host does, and has its lease confirmed before every attach, for the hub then lets everybody in.
    pub epochless_neighbours: bool,
}

/// A store that cannot do what it was asked. The outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, or answered with a fault that may pass.
    #[error("the store is not available: {0}")]
    Unavailable(#[source] BoxError),
    /// It asks for fewer calls.
    #[error("the store is throttling: {0}")]
    Throttled(#[source] BoxError),
    /// A record cannot be read.
    #[error("a record in the store is damaged: {what}")]
    Damaged {
        /// Which record, and what is wrong with it.
        what: String,
    },
    /// The store refuses to serve at all: wrong credentials, wrong kind of place.
    #[error("the store refuses: {message}")]
    Refused {
        /// What it said.
        message: String,
    },
}

/// Why a store throttles, for [`StoreError::Throttled`], where it says how long it wants to be left alone.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Throttling {
    /// What it said.
    pub message: String,
    /// The pause that it asks for.
    pub retry_after: Duration,
}

impl StoreError {
    /// The pause that a throttling store asks for: zero if it does not say how long, none if it does not throttle.
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Throttled(cause) = self else { return None };
        Some(cause.downcast_ref::<Throttling>().map_or(Duration::ZERO, |throttling| throttling.retry_after))
    }
}

/// The result of a call to a store.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Written once, when a group is first seen: which partitions there were.
/// Partitions that came later start at the earliest, whatever the options say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founding {
    /// The partitions of the hub at that time.
    pub partitions: Vec<PartitionId>,
    /// The log at that time.
    pub log: Option<LogId>,
}

/// A host's record, and how old it is by the store's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    /// What the host wrote.
    pub record: HostRecord,
    /// How long ago.
    pub age: Duration,
    /// Whether that is so; see [`Lease::age_known`].
    pub age_known: bool,
}

/// Everything a group keeps, read in one call.
///
/// Leases are read before checkpoints, so that whoever finds itself an owner
/// here sees a checkpoint that no earlier owner can still change.
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
    /// How the group began.
    pub founding: Option<Founding>,
    /// Records that could not be read, in words; all others are here.
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

/// How a claim ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The partition is ours.
    Won {
        /// Our proof.
        token: LeaseToken,
        /// The lease as it is now.
        lease: Lease,
        /// The checkpoint, read after the fence was up.
        checkpoint: Option<Checkpoint>,
    },
    /// Somebody was faster, or its owner renewed.
    Lost {
        /// The lease as it is now.
        holder: Option<Lease>,
    },
}

/// How the renewal of one lease ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It is ours for another while.
    Renewed,
    /// It is no longer ours.
    Lost {
        /// The lease as it is now.
        holder: Option<Lease>,
    },
    /// This one failed; whether it is renewed is unknown. The others count.
    Unknown {
        /// What went wrong.
        what: String,
        /// As [`StoreError::retry_after`].
        retry_after: Option<Duration>,
    },
}

/// How giving a lease away ended: by transfer or by release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GiveAway {
    /// Done.
    Done,
    /// It was no longer ours.
    NotOurs,
}

/// How a save ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Save {
    /// It is written.
    Saved(Checkpoint),
    /// What is stored is further ahead, and stays.
    Behind {
        /// What is stored.
        stored: Checkpoint,
    },
    /// The epoch is over.
    Fenced {
        /// The one that may write now.
        epoch: Epoch,
    },
}

/// A save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveRequest {
    /// Proof of ownership.
    pub token: LeaseToken,
    /// The new position.
    pub position: Position,
    /// The log it belongs to.
    pub log: Option<LogId>,
    /// Also backwards: the owner found that the stored position does not exist in this log, and
    /// has said so. Otherwise reading would jump there once the log has grown that far.
    pub rewind: bool,
}

impl SaveRequest {
    /// A save that does not move back.
    pub fn new(token: &LeaseToken, position: &Position, log: Option<&LogId>) -> Self {
        Self { token: token.clone(), position: position.clone(), log: log.cloned(), rewind: false }
    }
}

/// A seek, by a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeekRequest {
    /// The partition.
    pub partition: PartitionId,
    /// The new position.
    pub position: Position,
    /// The log it belongs to.
    pub log: Option<LogId>,
    /// Who seeks, for the history.
    pub by: String,
    /// Also if the owner is another SDK's, which will not notice.
    pub force: bool,
}

/// How a seek ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Done, in this epoch.
    Done {
        /// The epoch that the seek took.
        epoch: Epoch,
    },
    /// The owner is another SDK's, which will not notice.
    ForeignOwner {
        /// Its id.
        owner: String,
    },
}

/// What a person wants of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostOrders {
    /// Give all partitions away and take no new ones.
    pub drain: bool,
}

/// A store. Futures may be dropped at any time; the step is then either done or not.
pub trait Store: Send + Sync + 'static {
    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// The groups that have records here.
    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>>;

    /// Writes how the group began, unless that is written already; gives back what is written.
    fn found<'a>(&'a self, group: &'a GroupId, founding: &'a Founding) -> StoreFuture<'a, Founding>;

    /// Reads everything the group keeps.
    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View>;

    /// Writes a host's record, makes it fresh, and gives back what is wanted of the host.
    /// Wakes the owners that the record newly asks. Records long dead may be forgotten here.
    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, HostOrders>;

    /// Removes the record of a host that has stopped.
    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()>;

    /// Says what is wanted of a host, until it retires or is forgotten; false if there is no such host. Wakes it.
    fn order<'a>(&'a self, group: &'a GroupId, host: &'a HostId, orders: HostOrders)
    -> StoreFuture<'a, bool>;

    /// Takes a partition in a new epoch, if its lease is as it was seen, and
    /// seals its checkpoint before reading it.
    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, Claim>;

    /// Renews leases; one answer for each token, in order.
    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<Renewal>>;

    /// The same for a caller who waits no longer than `limit`: a store that renews by several requests returns what is
    /// known shortly before, and the rest as unknown. The tokens that matter most come first.
    fn renew_within<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
        _limit: Duration,
    ) -> StoreFuture<'a, Vec<Renewal>> {
        self.renew(group, duration, tokens)
    }

    /// Hands a lease over in a new epoch, seals its checkpoint, and wakes the new owner.
    fn transfer<'a>(&'a self, group: &'a GroupId, request: &'a TransferRequest) -> StoreFuture<'a, GiveAway>;

    /// Gives a lease back and wakes the heir; without one, every host with a record.
    fn release<'a>(&'a self, group: &'a GroupId, request: &'a ReleaseRequest) -> StoreFuture<'a, GiveAway>;

    /// Saves a position under the epoch that the checkpoint is sealed with; backwards only if the
    /// request says why it may.
    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, Save>;

    /// Moves a position by a person's will: a new epoch, no owner, in one step. Wakes the owner.
    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, Seek>;

    /// The last changes of ownership, newest first, of one partition or of all.
    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>>;

    /// Returns when something is up for this host, and never if the store
    /// cannot tell. A change between two calls is not missed: the second
    /// returns at once. It is a hint; nothing relies on it.
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
