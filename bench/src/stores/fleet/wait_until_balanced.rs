//! Polls the leases until all are owned and balanced and no partition has moved for some scans, and
//! measures the time.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor::{BoxError, Monotonic, Store};
use ephor_core::ids::GroupId;
use ephor_core::store::View;
use ephor_stores::postgres::PostgresStore;

use super::events_read::EventsRead;
use super::options::Pace;
use crate::figures::time;
use crate::machine::{now, pause, since};

/// The interval between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// The number of leases after which the fleet counts as not settling.
const PATIENCE_LEASES: u32 = 18;
/// The number of slow scans without a change after which the fleet has balanced.
const STILL_SCANS: u32 = 4;

/// The time until the fleet has balanced, and the number of changes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Balanced {
    pub(super) owned: Option<Duration>,
    pub(super) read: Option<Duration>,
    pub(super) still: Duration,
    /// The number of changes of owner, including the first claim of a partition.
    pub(super) changes: u64,
}

pub(super) struct Watch<'a> {
    pub(super) store: &'a PostgresStore,
    pub(super) group: &'a GroupId,
    pub(super) events_read: &'a EventsRead,
    pub(super) partitions: usize,
    pub(super) pace: Pace,
}

impl Watch<'_> {
    async fn view(&self) -> Result<View, BoxError> {
        Ok(self.store.view(self.group).await?)
    }

    /// The number of changes of owner so far, and of partitions that a process owns.
    pub(super) async fn before_kill(&self, process: usize) -> Result<(u64, usize), BoxError> {
        let view = self.view().await?;
        let others: usize = self.shares(&view, Some(process)).values().sum();
        Ok((changes(&view), self.partitions - others))
    }

    /// Waits until the fleet without the hosts of `killed` has balanced.
    pub(super) async fn settle(
        &self,
        hosts: usize,
        began: Monotonic,
        changes_before: u64,
        killed: Option<usize>,
    ) -> Result<Balanced, BoxError> {
        let still_for = self.pace.manager().slow_scan * STILL_SCANS;
        let patience = self.pace.lease() * PATIENCE_LEASES;
        let mut balanced = Balanced::default();
        let mut last = (0, now());
        loop {
            let view = self.view().await?;
            let shares = self.shares(&view, killed);
            let owned: usize = shares.values().sum();
            if owned == self.partitions {
                balanced.owned.get_or_insert_with(|| since(began));
            }
            let reading = self.events_read.read_since(began, killed);
            if reading == self.partitions {
                balanced.read.get_or_insert_with(|| since(began));
            }
            balanced.changes = changes(&view) - changes_before;
            let is_even = self.is_even(&shares, hosts);
            if !is_even || balanced.changes != last.0 {
                last = (balanced.changes, now());
            }
            if since(last.1) >= still_for && balanced.read.is_some() {
                balanced.still = last.1.since(began);
                return Ok(balanced);
            }
            if since(began) > patience {
                return Err(format!(
                    "not balanced within {}: {owned} of {} owned, {reading} read, {} hosts own {:?} to {:?}, \
                     {} changes, {} errors",
                    time(patience),
                    self.partitions,
                    shares.len(),
                    shares.values().min(),
                    shares.values().max(),
                    balanced.changes,
                    self.events_read.errors()
                )
                .into());
            }
            pause(LOOK).await;
        }
    }

    /// The number of partitions that each host owns, without those of the killed process.
    fn shares(&self, view: &View, killed: Option<usize>) -> BTreeMap<String, usize> {
        let dead = killed.map(|process| format!("{}-", super::process_name(process)));
        let mut shares = BTreeMap::new();
        for owner in view.leases.iter().filter_map(|lease| lease.owner.as_ref()) {
            let name = owner.name.to_string();
            if dead.as_ref().is_none_or(|dead| !name.starts_with(dead)) {
                *shares.entry(name).or_default() += 1;
            }
        }
        shares
    }

    fn is_even(&self, shares: &BTreeMap<String, usize>, hosts: usize) -> bool {
        let (least, most) = (self.partitions / hosts, self.partitions.div_ceil(hosts));
        shares.len() == hosts
            && shares.values().sum::<usize>() == self.partitions
            && shares.values().all(|share| (least..=most).contains(share))
    }
}

/// The number of changes of owner: each of them takes an epoch.
fn changes(view: &View) -> u64 {
    view.leases.iter().map(|lease| lease.epoch.get()).sum()
}
