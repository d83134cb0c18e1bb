//! The manager: the loop that reads the state of the fleet, computes the plan, and executes this host's
//! part of it.
//!
//! ```text
//!   heartbeat ─► view ─► judge liveness ─► plan ─► reconcile, answer, ask, claim ─► wait
//!      ▲                                                                             │
//!      └── a change in the store, a pump's end, or the time of the next scan ◄───────┘
//! ```
//!
//! No error of the store or the hub ends this loop.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::balance::{self, Fleet, Plan};
use ephor_core::epoch::Epoch;
use ephor_core::expiry::{Liveness, LivenessTracker, Tolerance};
use ephor_core::host_record::{HostRecord, HostState, ReadHub};
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::store::{GroupOrigin, View};
use ephor_core::time::Monotonic;
use tokio::sync::{mpsc, watch};

use super::cooldowns::Cooldowns;
use super::fleet_tracker::FleetTracker;
use super::health::Health;
use super::heartbeat::Heartbeat;
use super::hub_refresh::{HubAnswer, HubRefresh};
use super::known_epochs::KnownEpochs;
use super::lag_refresh::LagRefresh;
use super::negotiation::Negotiation;
use super::other_hubs_at_start;
use super::other_hubs_while_running::OtherHubs;
use super::ownership_changes::{OwnershipEvent, OwnershipReason};
use super::running_host::RunningHost;
use super::stop_progress::StopProgress;
#[cfg(feature = "mutations")]
use super::switched_off_rules;
use crate::error::HostError;
use crate::metric_names as names;
use crate::pump_interface::PumpEnd;
use crate::stop_report::StopReport;

/// The time for which a stop waits for the current scan before it stops the pumps all the same: the
/// store may hang.
const MAX_SCAN_TIME_AT_STOP: Duration = Duration::from_secs(1);
/// The minimum time between two scans, however often the store wakes us.
const MIN_SCAN_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) struct Manager {
    pub(super) running: Arc<RunningHost>,
    /// Receives the report once the host has stopped. Closed when the manager ends.
    ended: watch::Sender<Option<StopReport>>,
    pub(super) ends: mpsc::UnboundedReceiver<PumpEnd>,
    pub(super) end_sender: mpsc::UnboundedSender<PumpEnd>,
    pub(super) fleet_tracker: FleetTracker,
    pub(super) hub: HubRefresh,
    lag: LagRefresh,
    other_hubs: OtherHubs,
    pub(super) origin: Option<GroupOrigin>,
    pub(super) negotiation: Negotiation,
    pub(super) epochs: KnownEpochs,
    pub(super) cooldowns: Cooldowns,
    pub(super) health: Health,
    /// Since the stop began.
    pub(super) stopping: StopProgress,
    heartbeat: Heartbeat,
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
        running: Arc<RunningHost>,
        ended: watch::Sender<Option<StopReport>>,
        answer: Option<HubAnswer>,
    ) -> Self {
        let resolution = running.store.capabilities().clock_resolution;
        let default = Tolerance::default();
        let tolerance = Tolerance { fixed: default.fixed + resolution, ..default };
        let (end_sender, ends) = mpsc::unbounded_channel();
        let now = running.now();
        let other_hubs = OtherHubs::new(other_hubs_at_start::patience(&running.manager));
        Self {
            fleet_tracker: FleetTracker::new(LivenessTracker::new(
                tolerance,
                running.manager.other_sdk_lease_duration,
            )),
            running,
            ended,
            ends,
            end_sender,
            hub: HubRefresh::new(answer, now),
            lag: LagRefresh::new(now),
            other_hubs,
            origin: None,
            negotiation: Negotiation::default(),
            epochs: KnownEpochs::default(),
            cooldowns: Cooldowns::default(),
            health: Health::default(),
            stopping: StopProgress::default(),
            heartbeat: Heartbeat::default(),
            last_scan: now,
        }
    }

    /// Runs until the host is stopped or dropped. Nothing else ends it, not even a panic.
    pub(crate) async fn run(mut self) {
        let running = self.running.clone();
        while running.reporter.catch_panics("manager", self.run_loop()).await.is_none() {
            running.environment.sleep_until(running.now() + running.manager.fast_scan).await;
        }
    }

    /// Scans, and handles events in between, until the host is stopped or dropped.
    async fn run_loop(&mut self) {
        let running = self.running.clone();
        let mut next = running.now();
        let mut woken = false;
        loop {
            tokio::select! {
                biased;
                () = running.stop_requested() => {
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
                    next = next.min(running.now() + MIN_SCAN_INTERVAL);
                }
                () = running.environment.sleep_until(next) => {
                    let busy = self.scan_unless_stopped().await;
                    woken = false;
                    let interval = if busy { running.manager.fast_scan } else { running.manager.slow_scan };
                    next = self.last_scan + self.jitter(interval);
                }
                // Awaited once for each scan, so that a store that wakes us all the time does not
                // prevent scans.
                change = running.reporter.catch_panics("manager", running.store.changed(&running.me)), if !woken => {
                    woken = true;
                    // If it panicked, it is not called again before the next scan, which comes at
                    // its usual time.
                    if change.is_some() {
                        self.heartbeat.make_due();
                        next = running.now().max(self.last_scan + MIN_SCAN_INTERVAL);
                    }
                }
            }
        }
    }

    /// Runs one scan to its end. If the host is stopped meanwhile, its pumps learn of it soon,
    /// however long the store takes.
    async fn scan_unless_stopped(&mut self) -> bool {
        let running = self.running.clone();
        // Panics are caught here, too, so that the next scan comes at its usual time. Boxed,
        // because it is large and rare.
        let mut scan = Box::pin(running.reporter.catch_panics("manager", self.scan()));
        let busy = tokio::select! {
            biased;
            busy = &mut scan => busy,
            never = running.stop_slots_on_request(MAX_SCAN_TIME_AT_STOP) => match never {},
        };
        busy.unwrap_or(true)
    }

    /// Reads the state of the fleet once, and acts on it. True if something is in progress.
    async fn scan(&mut self) -> bool {
        self.last_scan = self.running.now();
        self.refresh_hub().await;
        self.lag.refresh(&self.running).await;
        self.running.notice_stuck_calls();
        let beaten = self.write_heartbeat().await;
        let Some(scan) = self.read_fleet().await else { return true };
        self.reconcile(&scan).await;
        self.answer(&scan);
        self.ask(&scan).await;
        self.claim(&scan).await;
        let said = self.write_heartbeat().await;
        if !said {
            self.negotiation.drop_asks_since(scan.received);
        }
        self.note_status(&scan);
        !beaten
            || scan.grace_after_outage
            || !scan.plan.is_done()
            || self.negotiation.has_asks()
            || self.negotiation.has_answers()
    }

    /// Asks the hub for its partitions and its log, if that is due.
    async fn refresh_hub(&mut self) {
        let Some(news) = self.hub.refresh(&self.running).await else { return };
        if news.is_back {
            // The hub was the cause, and it is back: the host is healthy again.
            self.health.recovered();
        }
        if news.has_new_log {
            self.other_hubs.start_again();
            self.end_pumps_of_the_old_log();
        }
    }

    /// True if this host is drained, stops, or was told to stop while a scan is under way.
    fn is_leaving(&self) -> bool {
        self.heartbeat.is_drained() || self.running.is_stop_requested()
    }

    pub(super) fn takes_part(&self) -> bool {
        !self.is_leaving() && !self.health.is_unhealthy(self.running.now())
    }

    fn state(&self) -> HostState {
        if self.is_leaving() {
            HostState::Draining
        } else if self.health.is_unhealthy(self.running.now()) {
            HostState::Unhealthy
        } else if self.running.slots().is_empty() && self.running.status().share == 0 {
            HostState::Standby
        } else {
            HostState::Active
        }
    }

    fn record(&self) -> HostRecord {
        let in_our_record = self.running.rules.asks_stand_in_the_askers_record();
        let wants = if in_our_record { self.negotiation.wants() } else { vec![] };
        HostRecord {
            id: self.running.me.clone(),
            // The heartbeat numbers it.
            beat: 0,
            state: self.state(),
            lease_duration: self.running.manager.lease_duration,
            max_partitions: self.running.manager.max_partitions,
            wants,
            answers: self.negotiation.answers(),
            statistics: self.running.statistics(),
            software: concat!("ephor ", env!("CARGO_PKG_VERSION")).into(),
            hub: self.read_hub(),
        }
    }

    /// The hub that we read, if we are sure of it.
    fn read_hub(&self) -> Option<ReadHub> {
        let is_current = self.hub.is_current(self.running.now(), self.running.manager.slow_scan);
        other_hubs_at_start::read_hub(&*self.running.source, self.hub.log()).filter(|_| is_current)
    }

    /// Writes our record if it has changed, or is due. False if it could not be written.
    pub(super) async fn write_heartbeat(&mut self) -> bool {
        let now = self.running.now();
        let record = self.record();
        let interval = self.running.manager.renew_interval;
        let Some(record) = self.heartbeat.next(record, now, interval) else { return true };
        match self.running.store.heartbeat(&record).await {
            Ok(desired) => {
                self.heartbeat.written(now, record, desired);
                true
            }
            Err(_) => false,
        }
    }

    /// Reads the view and makes the plan. `None` if that was not possible.
    pub(super) async fn read_fleet(&mut self) -> Option<ScanView> {
        let running = self.running.clone();
        if self.origin.is_none() && !self.hub.partitions().is_empty() {
            let origin =
                GroupOrigin { partitions: self.hub.partitions().to_vec(), log: self.hub.log().cloned() };
            self.origin = Some(running.store.init_group(&origin).await.ok()?);
        }
        let sent = running.now();
        let view = running.store.view().await;
        let received = running.now();
        let Ok(view) = view else {
            self.fleet_tracker.liveness.store_unreachable(received);
            return None;
        };
        let liveness = self.fleet_tracker.liveness.observe(&view, sent, received);
        #[cfg(feature = "mutations")]
        let liveness = switched_off_rules::expire_by_our_clock(liveness, &view, &running);
        if liveness.skewed {
            running.reporter.report(&HostError::ClockSkew);
        }
        let mut errors = self.fleet_tracker.notice(&running.me, &view);
        let ours = self.read_hub();
        errors.extend(self.other_hubs.notice(&running.me, ours, &view.hosts, received));
        errors.iter().for_each(|error| running.reporter.report(error));
        for lease in &view.leases {
            self.epochs.observe(lease.partition, lease.epoch);
        }
        let patience = running.manager.slow_scan.saturating_mul(2);
        let mut fleet = Fleet::read(&view, &liveness, self.hub.partitions(), patience, &running.rules);
        self.fleet_tracker.mark_overdue(&mut fleet.slots, &view, received, patience);
        let me = fleet.member(&running.me)?;
        fleet.members[me].takes_part = self.takes_part();
        let plan = balance::plan(&fleet);
        let Liveness { grace_after_outage, ages_unknown, .. } = liveness;
        Some(ScanView { view, fleet, plan, me, grace_after_outage, ages_unknown, sent, received })
    }

    fn note_status(&mut self, scan: &ScanView) {
        let state = self.state();
        {
            let mut status = self.running.status();
            status.state = state;
            status.share = scan.plan.shares[scan.me];
            status.hosts_alive = scan.fleet.members.len();
            status.partitions = self.hub.partitions().len();
            status.scans += 1;
        }
        metrics::gauge!(names::PARTITIONS_OWNED).set(f64::from(self.running.statistics().owned));
        if let Some(error) = self.fleet_tracker.notice_without_owner(scan.plan.without_owner) {
            self.running.reporter.report(&error);
        }
    }

    /// Shortens the interval by up to a quarter (jitter), so that hosts do not scan in step.
    fn jitter(&self, interval: Duration) -> Duration {
        let quarter = u64::try_from(interval.as_nanos() / 4).unwrap_or(u64::MAX).max(1);
        interval - Duration::from_nanos(self.running.environment.random() % quarter)
    }

    pub(super) fn announce(
        &self,
        partition: PartitionId,
        epoch: Epoch,
        from: Option<HostId>,
        to: Option<HostId>,
        reason: OwnershipReason,
    ) {
        let at = self.running.environment.wall();
        let event = OwnershipEvent { at, partition, epoch, from, to, reason };
        let gained = event.to.as_ref() == Some(&self.running.me);
        let (group, host) = (self.running.store.group(), &self.running.me);
        let name = |host: &Option<HostId>| host.as_ref().map_or("nobody".into(), ToString::to_string);
        let (from, to, why) = (name(&event.from), name(&event.to), reason.label());
        tracing::info!(%group, %host, %partition, %epoch, from, to, why, "ownership changed");
        let name = if gained { names::PARTITIONS_GAINED } else { names::PARTITIONS_GONE };
        metrics::counter!(name, "reason" => reason.label()).increment(1);
        // There may be no subscribers.
        let _ = self.running.changes.send(event);
    }
}
