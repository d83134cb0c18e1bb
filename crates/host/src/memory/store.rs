//! A store in memory: the rules of [`ephor_core::record`] under one lock.
//!
//! Every method is one step under that lock, so it is atomic by construction, and all times are
//! read inside it, so they agree with the order of the steps. The records of a group are in
//! `records.rs`.

mod records;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::checkpoint::Checkpoint;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};
use ephor_core::record::{self, Change, NoEpochLeft, SaveVerdict};
use ephor_core::rules::Rules;
use ephor_core::store::{
    Capabilities, ClaimOutcome, DesiredState, GiveUpOutcome, GroupOrigin, RenewalOutcome, SaveOutcome,
    SaveRequest, SeekOutcome, SeekRequest, Store, StoreFuture, View,
};
use ephor_core::time::{Clock, Timestamp};

use self::records::Records;
use crate::environment::SystemClock;

/// [`Timestamp`] counts milliseconds, and so does this store.
const CLOCK_RESOLUTION: Duration = Duration::from_millis(1);

/// A step that a [`MemoryStore`] has carried out, for its observer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// A partition changed its owner. After a seek the position has changed, too.
    Changed {
        /// The entry of the history.
        change: OwnershipChange,
        /// True if its owner gave it away with all finished events saved.
        checkpoint_saved: bool,
    },
    /// An owner saved a position.
    Saved {
        /// The proof of ownership that it presented.
        token: LeaseToken,
        /// The stored checkpoint.
        checkpoint: Checkpoint,
    },
    /// An owner renewed its lease.
    Renewed {
        /// The proof of ownership that it presented.
        token: LeaseToken,
    },
}

/// A backup: the records of a [`MemoryStore`] at one moment.
#[derive(Clone, Debug)]
pub struct StoreCopy(BTreeMap<GroupId, Records>);

type Observer = Arc<dyn Fn(&GroupId, &StoreEvent) + Send + Sync>;

/// A store in memory. Clones share the same records.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # use ephor_host as ephor;
/// use ephor::memory::MemoryStore;
/// use ephor_core::ids::{ConsumerGroup, GroupId};
/// use ephor_core::store::Store;
///
/// let store = MemoryStore::default();
/// let group = GroupId {
///     namespace: "contoso.servicebus.windows.net".parse()?,
///     hub: "homes".parse()?,
///     group: ConsumerGroup::default_group(),
/// };
/// assert!(store.view(&group).await?.leases.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    rules: Rules,
    wakes: bool,
    other_sdks: bool,
    observer: Option<Observer>,
    groups: Arc<Mutex<BTreeMap<GroupId, Records>>>,
}

impl MemoryStore {
    /// An empty store whose time is this clock's [`Clock::wall`].
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            rules: Rules::default(),
            wakes: true,
            other_sdks: false,
            observer: None,
            groups: Arc::default(),
        }
    }

    /// Sets the rules, for a simulation with a mutation.
    #[cfg(feature = "mutations")]
    pub fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// Makes it unable to wake hosts, as a blob store is: [`Store::changed`] never returns.
    pub fn without_wakes(self) -> Self {
        Self { wakes: false, ..self }
    }

    /// Makes it shared with processors that know no epochs, as a blob store may be: see
    /// [`Capabilities::shared_with_other_sdks`].
    pub fn with_other_sdks(self) -> Self {
        Self { other_sdks: true, ..self }
    }

    /// A backup of all records, to be restored later.
    pub fn copy(&self) -> StoreCopy {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        StoreCopy(groups.iter().map(|(group, records)| (group.clone(), records.copy())).collect())
    }

    /// Replaces all records by an old backup. The observer is not called; all waiting hosts are
    /// woken.
    pub fn restore(&self, copy: &StoreCopy) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        for (group, old) in &copy.0 {
            groups.entry(group.clone()).or_default().restore(old);
        }
        groups.retain(|group, _| copy.0.contains_key(group));
    }

    /// Calls `observer` with every step once it is carried out, in order and under the store's
    /// lock: it must not call the store.
    pub fn with_observer(self, observer: Observer) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Runs one atomic step on the records of a group.
    fn step<T>(&self, group: &GroupId, act: impl FnOnce(&mut Records, Timestamp) -> T) -> T {
        // Only an observer panics under the lock, and the step that it was called with is applied
        // already.
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let records = groups.entry(group.clone()).or_default();
        let answer = act(records, self.clock.wall());
        if records.is_unused() {
            // A read of a group does not create it.
            groups.remove(group);
        }
        answer
    }

    fn notify_observer(&self, group: &GroupId, event: impl FnOnce() -> StoreEvent) {
        if let Some(observer) = &self.observer {
            observer(group, &event());
        }
    }

    fn apply(&self, group: &GroupId, records: &mut Records, change: Change, checkpoint_saved: bool) {
        let observed = self.observer.is_some().then(|| change.history.clone());
        records.apply(change);
        if let Some(change) = observed {
            self.notify_observer(group, || StoreEvent::Changed { change, checkpoint_saved });
        }
    }
}

impl Default for MemoryStore {
    /// An empty store on the machine's own clock.
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("rules", &self.rules).field("wakes", &self.wakes).finish()
    }
}

/// A future that runs its step when it is first polled.
fn at_once<'a, T>(step: impl FnOnce() -> T + Send + 'a) -> StoreFuture<'a, T> {
    Box::pin(async move { Ok(step()) })
}

/// The same for a step that takes an epoch, which may fail because none is left.
fn try_at_once<'a, T>(step: impl FnOnce() -> Result<T, NoEpochLeft> + Send + 'a) -> StoreFuture<'a, T> {
    Box::pin(async move { Ok(step()?) })
}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            wakes: self.wakes,
            fences_checkpoints: self.rules.checkpoints_are_fenced(),
            keeps_history: true,
            clock_resolution: CLOCK_RESOLUTION,
            shared_with_other_sdks: self.other_sdks,
        }
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        at_once(move || {
            let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
            groups.iter().filter(|(_, records)| records.any()).map(|(group, _)| group.clone()).collect()
        })
    }

    fn init_group<'a>(&'a self, group: &'a GroupId, origin: &'a GroupOrigin) -> StoreFuture<'a, GroupOrigin> {
        at_once(move || {
            self.step(group, |records, _| records.origin.get_or_insert_with(|| origin.clone()).clone())
        })
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        at_once(move || self.step(group, |records, now| records.view(now)))
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, DesiredState> {
        at_once(move || {
            self.step(group, |records, now| {
                if self.wakes {
                    records.waker(&record.id);
                }
                records.heartbeat(record, now)
            })
        })
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        at_once(move || self.step(group, |records, _| records.retire(host)))
    }

    fn set_desired_state<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        desired: DesiredState,
    ) -> StoreFuture<'a, bool> {
        at_once(move || self.step(group, |records, _| records.set_desired_state(host, desired)))
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, ClaimOutcome> {
        try_at_once(move || {
            self.step(group, |records, now| {
                let old = records.leases.get(&request.partition);
                let fence = records.fence(request.partition);
                let Some(change) = record::claim(old, fence, request, now, &self.rules)? else {
                    return Ok(ClaimOutcome::Lost { holder: old.map(|lease| lease.seen_at(now)) });
                };
                let lease = change.lease.seen_at(now);
                self.apply(group, records, change, false);
                let token = LeaseToken {
                    partition: request.partition,
                    owner: request.host.clone(),
                    epoch: lease.epoch,
                };
                Ok(ClaimOutcome::Won { token, lease, checkpoint: records.checkpoint(request.partition) })
            })
        })
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        at_once(move || {
            self.step(group, |records, now| {
                let mut renew_one = |token: &LeaseToken| {
                    let old = records.leases.get(&token.partition);
                    let Some(lease) = record::renew(old, token, duration, now) else {
                        return RenewalOutcome::Lost { holder: old.map(|lease| lease.seen_at(now)) };
                    };
                    records.leases.insert(token.partition, lease);
                    self.notify_observer(group, || StoreEvent::Renewed { token: token.clone() });
                    RenewalOutcome::Renewed
                };
                tokens.iter().map(&mut renew_one).collect()
            })
        })
    }

    fn transfer<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a TransferRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        try_at_once(move || {
            self.step(group, |records, now| {
                let partition = request.token.partition;
                let old = records.leases.get(&partition);
                let Some(change) = record::transfer(old, records.fence(partition), request, now)? else {
                    return Ok(GiveUpOutcome::NotOurs);
                };
                self.apply(group, records, change, request.checkpoint_saved);
                records.wake(&request.to);
                Ok(GiveUpOutcome::Done)
            })
        })
    }

    fn release<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a ReleaseRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        at_once(move || {
            self.step(group, |records, now| {
                let partition = request.token.partition;
                let old = records.leases.get(&partition);
                let Some(change) = record::release(old, records.fence(partition), request, now) else {
                    return GiveUpOutcome::NotOurs;
                };
                self.apply(group, records, change, request.checkpoint_saved);
                match &request.successor {
                    Some(successor) => records.wake(successor),
                    None => records.wake_all(),
                }
                GiveUpOutcome::Done
            })
        })
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, SaveOutcome> {
        let token = &request.token;
        at_once(move || {
            self.step(group, |records, now| {
                let old = records.checkpoints.get(&token.partition).cloned().unwrap_or_default();
                match record::save(&old, request, now, &self.rules) {
                    SaveVerdict::Write(checkpoint) => {
                        records.write_position(token.partition, checkpoint.clone());
                        self.notify_observer(group, || StoreEvent::Saved {
                            token: token.clone(),
                            checkpoint: checkpoint.clone(),
                        });
                        SaveOutcome::Saved(checkpoint)
                    }
                    SaveVerdict::Behind(stored) => SaveOutcome::Behind { stored },
                    SaveVerdict::Fenced { epoch } => SaveOutcome::Fenced { epoch },
                }
            })
        })
    }

    /// Every owner here is a host of Ephor and notices a seek, so none needs `force`.
    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, SeekOutcome> {
        try_at_once(move || {
            self.step(group, |records, now| {
                let partition = request.partition;
                let old = records.leases.get(&partition);
                let fence = records.fence(partition);
                let change = record::seek(old, fence, partition, &request.by, now, &self.rules)?;
                let (epoch, owner) = (change.lease.epoch, change.history.from.clone());
                let (position, log) = (request.position.clone(), request.log.clone());
                records.write_position(partition, Checkpoint { position, log, epoch, saved_at: now });
                self.apply(group, records, change, false);
                if let Some(owner) = owner {
                    records.wake(&owner);
                }
                Ok(SeekOutcome::Done { epoch })
            })
        })
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        at_once(move || self.step(group, |records, _| records.history(partition, max)))
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if !self.wakes {
                return std::future::pending().await;
            }
            let waker = self.step(group, |records, _| records.waker(host));
            waker.notified().await;
        })
    }
}
