//! Test helper of `faults.rs`: hosts that claim, renew, save, hand over and release as fast as they can, and
//! checks that the ownership rules held.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ephor_core::ids::PartitionId;
use ephor_core::lease::{ClaimCause, LeaseToken, ReleaseCause, ReleaseRequest, TransferRequest};
use ephor_core::store::{ClaimOutcome, GiveUpOutcome, RenewalOutcome, SaveOutcome, Store};
use ephor_stores::postgres::PostgresStore;

use crate::fixture::{LEASE, group, host, save, try_claim};

pub(crate) const PARTITIONS: u32 = 3;

/// The acknowledged changes of all hosts.
#[derive(Default)]
pub(crate) struct AcknowledgedChanges {
    /// The epochs that were won, by partition and epoch.
    won: Mutex<BTreeMap<(PartitionId, u64), String>>,
    /// Positions are handed out once, so that each is higher than all before.
    next: [AtomicU64; PARTITIONS as usize],
    /// The highest that was acknowledged.
    saved: [AtomicU64; PARTITIONS as usize],
    pub(crate) acknowledged: AtomicUsize,
    pub(crate) failed: AtomicUsize,
    over: AtomicBool,
}

impl AcknowledgedChanges {
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Waits until so many more calls have succeeded.
    pub(crate) async fn progress(&self, calls: usize) {
        let until = self.acknowledged.load(Ordering::SeqCst) + calls;
        while self.acknowledged.load(Ordering::SeqCst) < until {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    fn win(&self, token: &LeaseToken) {
        let key = (token.partition, token.epoch.get());
        let owner = token.owner.to_string();
        let before = self.won.lock().unwrap().insert(key, owner.clone());
        assert_eq!(before, None, "{key:?} was won by {owner} as well");
    }
}

/// Starts hosts on these stores, one after the other.
pub(crate) fn hosts(
    stores: &[PostgresStore],
    count: usize,
    changes: &Arc<AcknowledgedChanges>,
) -> tokio::task::JoinSet<()> {
    let mut hosts = tokio::task::JoinSet::new();
    for index in 0..count {
        let (store, changes) = (stores[index % stores.len()].clone(), changes.clone());
        hosts.spawn(async move {
            let name = format!("host-{index}");
            let mut random = fastrand::Rng::with_seed(index as u64);
            while !changes.over.load(Ordering::SeqCst) {
                let partition = PartitionId(random.u32(..PARTITIONS));
                let outcome = live(&store, &name, partition, &changes, &mut random).await;
                let counter = if outcome.is_ok() { &changes.acknowledged } else { &changes.failed };
                counter.fetch_add(1, Ordering::SeqCst);
                if outcome.is_err() {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            }
        });
    }
    hosts
}

/// Claims a partition, works a little, and gives it away or forgets it.
async fn live(
    store: &PostgresStore,
    name: &str,
    partition: PartitionId,
    changes: &AcknowledgedChanges,
    random: &mut fastrand::Rng,
) -> Result<(), ephor_core::store::StoreError> {
    let index = partition.0 as usize;
    let known = changes.saved[index].load(Ordering::SeqCst);
    let ClaimOutcome::Won { token, checkpoint, .. } =
        try_claim(store, partition, name, ClaimCause::Unresponsive).await?
    else {
        return Ok(());
    };
    changes.win(&token);
    let read = checkpoint.and_then(|checkpoint| checkpoint.position.finished()).map_or(0, |last| last.0);
    assert!(read >= known, "{known} was acknowledged, and the claim read {read}");
    for _ in 0..random.usize(1..4) {
        let next = changes.next[index].fetch_add(1, Ordering::SeqCst) + 1;
        if let SaveOutcome::Saved(checkpoint) = save(store, &token, next).await? {
            let last = checkpoint.position.finished().unwrap().0;
            assert!(last > read, "{last} is not after {read}, which the claim had read");
            changes.saved[index].fetch_max(last, Ordering::SeqCst);
        }
        if !matches!(
            store.renew(&group(), LEASE, std::slice::from_ref(&token)).await?[0],
            RenewalOutcome::Renewed
        ) {
            return Ok(());
        }
    }
    match random.u8(..3) {
        0 => {
            let to = host(&format!("{name}-heir"));
            let request = TransferRequest { token, to, duration: LEASE, checkpoint_saved: true };
            store.transfer(&group(), &request).await.map(|_: GiveUpOutcome| ())
        }
        1 => {
            let cause = ReleaseCause::Shutdown;
            let request = ReleaseRequest { token, cause, successor: None, checkpoint_saved: true };
            store.release(&group(), &request).await.map(|_| ())
        }
        _ => Ok(()),
    }
}

/// Looks on, over a way that nothing goes wrong on, until it is over: nothing ever goes back.
pub(crate) async fn look_on(store: PostgresStore, changes: Arc<AcknowledgedChanges>) {
    let mut seen: BTreeMap<PartitionId, (u64, u64)> = BTreeMap::new();
    while !changes.over.load(Ordering::SeqCst) {
        // The server may be away.
        let Ok(view) = store.view(&group()).await else { continue };
        for lease in &view.leases {
            let finished = view.checkpoint(lease.partition).and_then(|found| found.position.finished());
            let now = (lease.epoch.get(), finished.map_or(0, |last| last.0));
            let before = seen.insert(lease.partition, now).unwrap_or_default();
            assert!(now.0 >= before.0 && now.1 >= before.1, "{before:?}, then {now:?}");
        }
    }
}

/// Checks what must hold once all calls have ended.
pub(crate) async fn settle(store: &PostgresStore, changes: &AcknowledgedChanges) {
    let view = store.view(&group()).await.unwrap();
    for partition in (0..PARTITIONS).map(PartitionId) {
        let stored =
            view.checkpoint(partition).and_then(|found| found.position.finished()).map_or(0, |last| last.0);
        let acknowledged = changes.saved[partition.0 as usize].load(Ordering::SeqCst);
        assert!(stored >= acknowledged, "{partition:?}: {acknowledged} was acknowledged, {stored} is stored");
        let history = store.history(&group(), Some(partition), 100).await.unwrap();
        for pair in history.windows(2) {
            let taken = !matches!(pair[0].reason, ephor_core::history::ChangeReason::Released(_));
            let (new, old) = (pair[0].epoch, pair[1].epoch);
            assert!(if taken { new > old } else { new == old }, "{:?}, then {:?}", pair[1], pair[0]);
            assert_eq!(pair[0].from, pair[1].to, "{pair:?}");
        }
        assert_eq!(history.first().map(|change| &change.to), view.lease(partition).map(|lease| &lease.owner));
    }
    let won = changes.won.lock().unwrap().len();
    let (acknowledged, failed) =
        (changes.acknowledged.load(Ordering::SeqCst), changes.failed.load(Ordering::SeqCst));
    println!("{won} claims won, {acknowledged} lives in good order, {failed} cut short");
}
