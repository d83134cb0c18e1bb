//! The manager: the loop that reads the state of the fleet and carries out this host's part of the
//! plan.
//!
//! ```text
//!   heartbeat ─► view ─► judge liveness ─► plan ─► reconcile, answer, ask, claim ─► wait
//!      ▲                                                                             │
//!      └── a change in the store, a pump's end, or the time of the next scan ◄───────┘
//! ```
//!
//! No error of the store or the hub ends this loop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ephor_core::balance::{self, Fleet, Plan};
use ephor_core::epoch::Epoch;
use ephor_core::expiry::{Liveness, LivenessTracker, Tolerance};
use ephor_core::handover::Ask;
use ephor_core::host_record::{Answer, HostRecord, HostState, Want};
use ephor_core::ids::{HostId, LogId, PartitionId};
use ephor_core::same_hub::{HUB_REFRESH, HubTracker};
use ephor_core::store::{GroupOrigin, View};
use ephor_core::time::Monotonic;
use tokio::sync::{mpsc, watch};

use super::changes::{OwnershipEvent, OwnershipReason};
use super::foreign::Foreign;
use super::health::Health;
use super::hub_refresh::HubAnswer;
use super::namesakes::Namesakes;
use super::planted;
use super::same_hub;
use super::shared::HostShared;
use crate::error::HostError;
use crate::metric_names as names;
use crate::pump::PumpEnd;
use crate::stop_report::StopReport;

/// The time for which a stop waits for the current scan before it stops the pumps all the same: the
/// store may hang.
const MAX_SCAN_TIME_AT_STOP: Duration = Duration::from_secs(1);
/// The minimum time between two scans, however often the store wakes us.
const MIN_SCAN_INTERVAL: Duration = Duration::from_millis(50);

/// The cooldown of a partition, during which this host does not claim it.
#[derive(Clone, Debug)]
pub(super) struct Cooldown {
    pub(super) until: Monotonic,
    /// The foreign reader that took it, if one did.
    pub(super) foreign: Option<Foreign>,
    /// The number of times in a row that its processor did not open here.
    pub(super) unopened: u32,
}

pub(crate) struct Manager {
    pub(super) shared: Arc<HostShared>,
    /// Receives the report once the host has stopped. Closed when the manager ends.
    ended: watch::Sender<Option<StopReport>>,
    pub(super) ends: mpsc::UnboundedReceiver<PumpEnd>,
    pub(super) end_sender: mpsc::UnboundedSender<PumpEnd>,
    pub(super) liveness_tracker: LivenessTracker,
    pub(super) partitions: Vec<PartitionId>,
    pub(super) log: Option<LogId>,
    pub(super) refresh_at: Monotonic,
    pub(super) lag_at: Monotonic,
    /// True if the hub did not answer the last request.
    pub(super) hub_away: bool,
    pub(super) origin: Option<GroupOrigin>,
    pub(super) asks: BTreeMap<PartitionId, Ask>,
    pub(super) answers: BTreeMap<PartitionId, Answer>,
    /// The highest epoch that a pump of ours has served: none is served twice.
    pub(super) served: BTreeMap<PartitionId, Epoch>,
    /// The highest epoch that was ever seen. Claims go above it, even if the store has forgotten it
    /// (after a restore from a backup).
    pub(super) known: BTreeMap<PartitionId, Epoch>,
    pub(super) cooldowns: BTreeMap<PartitionId, Cooldown>,
    pub(super) health: Health,
    pub(super) draining: bool,
    /// The results of the partitions since the stop began.
    pub(super) report: StopReport,
    /// Partitions that were given away since then without a confirmation of the store.
    pub(super) unconfirmed: Vec<(PartitionId, Epoch, bool)>,
    beat: u64,
    written: Option<(Monotonic, HostRecord)>,
    namesakes: Namesakes,
    /// Tracks the hubs that the other hosts read, since we know which one is ours.
    pub(super) hub_tracker: HubTracker,
    /// The hosts that read another hub, and were reported.
    pub(super) elsewhere: BTreeSet<HostId>,
    unplaced: usize,
    /// Damaged records that were reported.
    damaged: Vec<String>,
    /// Partitions that never had an owner, and the time since which they are seen so.
    unclaimed: BTreeMap<PartitionId, Monotonic>,
    last_scan: Monotonic,
}

/// The state of the fleet, as a scan reads it.
pub(super) struct ScanView {
    pub(super) view: View,
    pub(super) fleet: Fleet,
    pub(super) plan: Plan,
    pub(super) me: usize,
    /// True if hosts count as alive only because of the grace period after an outage.
    grace_after_outage: bool,
    /// Leases that may be older than they look.
    pub(super) ages_unknown: Vec<PartitionId>,
    pub(super) sent: Monotonic,
    pub(super) received: Monotonic,
}

impl Manager {
    pub(super) fn new(
        shared: Arc<HostShared>,
        ended: watch::Sender<Option<StopReport>>,
        answer: Option<HubAnswer>,
    ) -> Self {
        let resolution = shared.store.store().capabilities().clock_resolution;
        let default = Tolerance::default();
        let tolerance = Tolerance { fixed: default.fixed + resolution, ..default };
        let (end_sender, ends) = mpsc::unbounded_channel();
        let now = shared.now();
        let refresh_at = answer.as_ref().filter(|answer| !answer.hub.partitions.is_empty());
        let refresh_at = refresh_at.map_or(now, |answer| answer.asked + HUB_REFRESH);
        let (mut partitions, log) =
            answer.map_or((vec![], None), |answer| (answer.hub.partitions, answer.hub.log));
        partitions.sort_unstable();
        let hub_tracker = same_hub::hub_tracker(&shared);
        Self {
            liveness_tracker: LivenessTracker::new(tolerance, shared.manager.foreign_expiry),
            shared,
            ended,
            ends,
            end_sender,
            partitions,
            log,
            refresh_at,
            lag_at: now,
            hub_away: false,
            origin: None,
            asks: BTreeMap::new(),
            answers: BTreeMap::new(),
            served: BTreeMap::new(),
            known: BTreeMap::new(),
            cooldowns: BTreeMap::new(),
            health: Health::default(),
            draining: false,
            report: StopReport::default(),
            unconfirmed: vec![],
            beat: 0,
            written: None,
            namesakes: Namesakes::default(),
            hub_tracker,
            elsewhere: BTreeSet::new(),
            unplaced: 0,
            damaged: vec![],
            unclaimed: BTreeMap::new(),
            last_scan: now,
        }
    }

    /// Runs until the host is stopped or dropped. Nothing else ends it, not even a panic.
    pub(crate) async fn run(mut self) {
        let shared = self.shared.clone();
        while shared.reporter.catch_panics("manager", self.run_loop()).await.is_none() {
            shared.environment.sleep_until(shared.now() + shared.manager.fast_scan).await;
        }
    }

    /// Scans, and handles events in between, until the host is stopped or dropped.
    async fn run_loop(&mut self) {
        let shared = self.shared.clone();
        let mut next = shared.now();
        let mut woken = false;
        loop {
            tokio::select! {
                biased;
                () = shared.stop_requested() => {
                    // Boxed, because it is large and runs once.
                    let report = Box::pin(self.stop()).await;
                    // The callers may have gone away; the host is stopped all the same.
                    self.ended.send_replace(Some(report));
                    return;
                }
                end = self.ends.recv() => {
                    if let Some(end) = end {
                        self.pump_ended(end);
                    }
                    next = next.min(shared.now() + MIN_SCAN_INTERVAL);
                }
                () = shared.environment.sleep_until(next) => {
                    let busy = self.scan_unless_stopped().await;
                    woken = false;
                    let interval = if busy { shared.manager.fast_scan } else { shared.manager.slow_scan };
                    next = self.last_scan + self.jitter(interval);
                }
                // Awaited once for each scan, so that a store that wakes us all the time does not
                // prevent scans.
                change = shared.reporter.catch_panics("manager", shared.store.changed(&shared.me)), if !woken => {
                    woken = true;
                    // If it panicked, it is not called again before the next scan, which comes at
                    // its usual time.
                    if change.is_some() {
                        // It may be a new desired state, which only a heartbeat returns.
                        self.written = None;
                        next = shared.now().max(self.last_scan + MIN_SCAN_INTERVAL);
                    }
                }
            }
        }
    }

    /// Runs one scan to its end. If the host is stopped meanwhile, its pumps learn of it soon,
    /// however long the store takes.
    async fn scan_unless_stopped(&mut self) -> bool {
        let shared = self.shared.clone();
        // Panics are caught here, too, so that the next scan comes at its usual time. Boxed,
        // because it is large and rare.
        let mut scan = Box::pin(shared.reporter.catch_panics("manager", self.scan()));
        let busy = tokio::select! {
            biased;
            busy = &mut scan => busy,
            never = shared.stop_slots_on_request(MAX_SCAN_TIME_AT_STOP) => match never {},
        };
        busy.unwrap_or(true)
    }

    /// Reads the state of the fleet once, and acts on it. True if something is in progress.
    async fn scan(&mut self) -> bool {
        self.last_scan = self.shared.now();
        self.refresh_hub().await;
        self.refresh_lag().await;
        self.shared.notice_stuck_calls();
        let beaten = self.heartbeat().await;
        let Some(scan) = self.read_fleet().await else { return true };
        self.reconcile(&scan).await;
        self.answer(&scan);
        self.ask(&scan).await;
        self.claim(&scan).await;
        let said = self.heartbeat().await;
        if !said {
            // Nobody has seen our new requests, so they are dropped: their time without an answer
            // must not start.
            self.asks.retain(|_, ask| ask.asked_at < scan.received);
        }
        self.note_status(&scan);
        !beaten
            || scan.grace_after_outage
            || !scan.plan.settled()
            || !self.asks.is_empty()
            || !self.answers.is_empty()
    }

    /// True if this host is drained, stops, or was told to stop while a scan is under way.
    fn is_leaving(&self) -> bool {
        self.draining || self.shared.is_stop_requested()
    }

    pub(super) fn takes_part(&self) -> bool {
        !self.is_leaving() && !self.health.is_unhealthy(self.shared.now())
    }

    fn state(&self) -> HostState {
        if self.is_leaving() {
            HostState::Draining
        } else if self.health.is_unhealthy(self.shared.now()) {
            HostState::Unhealthy
        } else if self.shared.slots().is_empty() && self.shared.status().share == 0 {
            HostState::Standby
        } else {
            HostState::Active
        }
    }

    /// The requests to write into our record.
    fn wants(&self) -> Vec<Want> {
        if self.shared.rules.asks_stand_in_the_askers_record {
            self.asks.values().map(Ask::want).collect()
        } else {
            vec![]
        }
    }

    /// Writes our record if it has changed, or is due. False if it could not be written.
    pub(super) async fn heartbeat(&mut self) -> bool {
        let now = self.shared.now();
        let record = HostRecord {
            id: self.shared.me.clone(),
            beat: self.beat,
            state: self.state(),
            lease_duration: self.shared.manager.lease_duration,
            max_partitions: self.shared.manager.max_partitions,
            wants: self.wants(),
            answers: self.answers.values().cloned().collect(),
            statistics: self.shared.statistics(),
            software: concat!("ephor ", env!("CARGO_PKG_VERSION")).into(),
            hub: self.read_hub(),
        };
        let news = self.written.as_ref().is_none_or(|(at, old)| {
            now >= *at + self.shared.manager.renew_interval
                || (&old.wants, &old.answers, old.state) != (&record.wants, &record.answers, record.state)
                || old.hub != record.hub
        });
        if !news {
            return true;
        }
        self.beat += 1;
        let record = HostRecord { beat: self.beat, ..record };
        let store = &self.shared.store;
        let call = store.store().heartbeat(store.group(), &record);
        match store.call("heartbeat", None, call).await {
            Ok(desired) => {
                self.draining = desired.drain;
                self.written = Some((now, record));
                true
            }
            Err(_) => false,
        }
    }

    /// Reads the view and makes the plan. `None` if that was not possible.
    pub(super) async fn read_fleet(&mut self) -> Option<ScanView> {
        let shared = self.shared.clone();
        let store = &shared.store;
        if self.origin.is_none() && !self.partitions.is_empty() {
            let origin = GroupOrigin { partitions: self.partitions.clone(), log: self.log.clone() };
            let call = store.store().init_group(store.group(), &origin);
            self.origin = Some(store.call("init_group", None, call).await.ok()?);
        }
        let sent = shared.now();
        let view = store.call("view", None, store.store().view(store.group())).await;
        let received = shared.now();
        let Ok(view) = view else {
            self.liveness_tracker.store_unreachable(received);
            return None;
        };
        let liveness = if shared.rules.ages_are_the_stores {
            self.liveness_tracker.observe(&view, sent, received)
        } else {
            let aged = planted::ages_by_our_clock(&view, shared.environment.wall());
            self.liveness_tracker.observe(&aged, sent, received)
        };
        if liveness.skewed {
            shared.reporter.report(&HostError::ClockSkew);
        }
        if self.damaged != view.damaged {
            for what in &view.damaged {
                shared.reporter.report(&HostError::Damaged { what: what.clone() });
            }
            self.damaged = view.damaged.clone();
        }
        for other in self.namesakes.notice(&shared.me, &view) {
            shared.reporter.report(&HostError::NameInUse { other });
        }
        self.notice_another_hub(&view.hosts);
        for lease in &view.leases {
            self.observe_epoch(lease.partition, lease.epoch);
        }
        let patience = shared.manager.slow_scan.saturating_mul(2);
        let mut fleet = Fleet::read(&view, &liveness, &self.partitions, patience, &shared.rules);
        self.notice_unclaimed(&view, &mut fleet, received, patience);
        let me = fleet.member(&shared.me)?;
        fleet.members[me].takes_part = self.takes_part();
        let plan = balance::plan(&fleet);
        let Liveness { grace_after_outage, ages_unknown, .. } = liveness;
        Some(ScanView { view, fleet, plan, me, grace_after_outage, ages_unknown, sent, received })
    }

    /// A partition without a record has no age. The host that should claim it may be alive and
    /// never do so: after a while any host may claim it, as with one that was released.
    fn notice_unclaimed(&mut self, view: &View, fleet: &mut Fleet, now: Monotonic, patience: Duration) {
        let mut before = std::mem::take(&mut self.unclaimed);
        for slot in fleet.slots.iter_mut().filter(|slot| view.lease(slot.partition).is_none()) {
            let since = before.remove(&slot.partition).unwrap_or(now);
            slot.overdue = now.since(since) >= patience;
            self.unclaimed.insert(slot.partition, since);
        }
    }

    /// Remembers an epoch that the store issued. A store that is restored from an old backup would
    /// issue it again, to another host.
    pub(super) fn observe_epoch(&mut self, partition: PartitionId, epoch: Epoch) {
        let known = self.known.entry(partition).or_default();
        *known = epoch.max(*known);
    }

    /// Marks this epoch and all before it as served: they are never served again, even if an old
    /// backup of the store brings them back.
    pub(super) fn mark_served(&mut self, partition: PartitionId, epoch: Epoch) {
        let served = self.served.entry(partition).or_default();
        *served = epoch.max(*served);
    }

    fn note_status(&mut self, scan: &ScanView) {
        let state = self.state();
        {
            let mut status = self.shared.status();
            status.state = state;
            status.share = scan.plan.shares[scan.me];
            status.hosts_alive = scan.fleet.members.len();
            status.partitions = self.partitions.len();
            status.scans += 1;
        }
        metrics::gauge!(names::PARTITIONS_OWNED).set(f64::from(self.shared.statistics().owned));
        if scan.plan.unplaced > 0 && self.unplaced != scan.plan.unplaced {
            self.shared.reporter.report(&HostError::Unplaced { partitions: scan.plan.unplaced });
        }
        self.unplaced = scan.plan.unplaced;
    }

    /// Shortens the interval by up to a quarter (jitter), so that hosts do not scan in step.
    fn jitter(&self, interval: Duration) -> Duration {
        let quarter = u64::try_from(interval.as_nanos() / 4).unwrap_or(u64::MAX).max(1);
        interval - Duration::from_nanos(self.shared.environment.random() % quarter)
    }

    pub(super) fn announce(
        &self,
        partition: PartitionId,
        epoch: Epoch,
        from: Option<HostId>,
        to: Option<HostId>,
        reason: OwnershipReason,
    ) {
        let at = self.shared.environment.wall();
        let event = OwnershipEvent { at, partition, epoch, from, to, reason };
        let gained = event.to.as_ref() == Some(&self.shared.me);
        let (group, host) = (self.shared.store.group(), &self.shared.me);
        let name = |host: &Option<HostId>| host.as_ref().map_or("nobody".into(), ToString::to_string);
        let (from, to, why) = (name(&event.from), name(&event.to), reason.label());
        tracing::info!(%group, %host, %partition, %epoch, from, to, why, "ownership changed");
        let name = if gained { names::PARTITIONS_GAINED } else { names::PARTITIONS_GONE };
        metrics::counter!(name, "reason" => reason.label()).increment(1);
        // There may be no subscribers.
        let _ = self.shared.changes.send(event);
    }
}
