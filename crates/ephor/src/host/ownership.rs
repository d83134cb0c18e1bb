//! What a scan leads to: partitions that come, partitions that go.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::checkpoint::Checkpoint;
use ephor_core::epoch::Epoch;
use ephor_core::expiry::deadline;
use ephor_core::failure::Backoff;
use ephor_core::handover::{self, Ask, Verdict};
use ephor_core::host_record::{Answer, Reply};
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::lease::{ClaimCause, ClaimRequest, Lease, LeaseToken, ReleaseCause, ReleaseRequest};
use ephor_core::store::Claim;
use ephor_core::time::Monotonic;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;

use super::changes::OwnershipReason;
use super::manager::{Cooling, Foreign, Manager, Sight};
use super::shared::{Slot, loss_reason};
use crate::context::PartitionContext;
use crate::error::HostError;
use crate::lease_state::{LeaseState, Stage};
use crate::processor::CloseReason;
use crate::pump::guard::{Control, Drain, Stop, Way};
use crate::pump::{Outcome, PumpEnd, PumpSeed};

/// Claims under way at the same time.
const CLAIMS_AT_ONCE: usize = 16;
/// How often a partition is claimed back from a foreign reader before it is left alone.
const FOREIGN_ATTEMPTS: u32 = 5;
/// The wait before that.
const FOREIGN_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(8) };
/// The pause after a processor did not open doubles at most this often: from 5 to 80 s.
const OPEN_DOUBLINGS: u32 = 4;
/// A pump that lived this long has put its troubles behind it.
const TROUBLE_FORGOTTEN: Duration = Duration::from_secs(60);
/// A call that goes on for this long after it was given up cannot be given up.
const STUCK_AFTER: Duration = Duration::from_secs(5);

impl Manager {
    /// Compares what we serve with what the store says is ours.
    pub(super) async fn reconcile(&mut self, sight: &Sight) {
        let me = self.shared.me.clone();
        for (partition, slot) in self.shared.slots().iter() {
            let lease = sight.view.lease(*partition);
            let ours = lease.and_then(Lease::token).as_ref() == Some(slot.token());
            if !ours && slot.started < sight.sent {
                slot.lose(loss_reason(lease, &me));
            }
        }
        let unserved: Vec<Lease> = {
            let slots = self.shared.slots();
            let mine = sight.view.leases.iter().filter(|lease| lease.owner.as_ref() == Some(&me));
            mine.filter(|lease| !slots.contains_key(&lease.partition)).cloned().collect()
        };
        for lease in unserved {
            self.serve_or_release(lease, sight).await;
        }
    }

    /// A lease is ours and no pump serves it: it was handed over, a claim of
    /// ours landed late, or giving it away did not work out.
    async fn serve_or_release(&mut self, lease: Lease, sight: &Sight) {
        let partition = lease.partition;
        let now = self.shared.now();
        let Some(token) = lease.token() else { return };
        let served_before = self.served.get(&partition).is_some_and(|epoch| *epoch >= lease.epoch);
        let cooling = self.cooling.get(&partition).filter(|cooling| now < cooling.until).is_some();
        let manager = &self.shared.manager;
        let until =
            deadline(sight.sent.before(lease.age), lease.duration.unwrap_or_default(), manager.fence_margin);
        if !served_before && !cooling && self.takes_part() {
            // Past the deadline it can only be claimed anew, once it has expired.
            if now < until {
                let checkpoint = sight.view.checkpoint(partition).cloned();
                self.start_pump(
                    token,
                    &lease,
                    checkpoint,
                    until,
                    lease.previous.clone(),
                    OwnershipReason::Received,
                );
            }
            return;
        }
        match self
            .cooling
            .get_mut(&partition)
            .and_then(|cooling| Some((cooling.until, cooling.foreign.as_mut()?)))
        {
            Some((until, foreign)) if foreign.attempts <= FOREIGN_ATTEMPTS && served_before => {
                if !foreign.reported {
                    foreign.reported = true;
                    let error = HostError::ForeignReader {
                        partition,
                        by: foreign.by.clone(),
                        epoch: foreign.epoch,
                        attempt: foreign.attempts,
                    };
                    self.shared.reporter.report(&error);
                }
                let above = foreign.epoch;
                if now >= until && self.takes_part() {
                    let request = self.claim_request(partition, Some(&lease), above, ClaimCause::Foreign);
                    self.make_claims(vec![request], sight).await;
                }
            }
            _ => {
                let store = &self.shared.store;
                let cause = ReleaseCause::Unserved;
                // Whether its pump could save everything is not known any more.
                let settled = !served_before;
                let request = ReleaseRequest { token, cause, heir: None, settled };
                let call = store.store().release(store.group(), &request);
                // If it fails, the next scan finds the lease again, or it runs out.
                let _ = store.call("release", Some(partition), call).await;
            }
        }
    }

    /// Answers those who ask for what we own, and starts the handovers we agree to.
    pub(super) fn answer(&mut self, sight: &Sight) {
        let mut answers = std::mem::take(&mut self.answers);
        answers.retain(|partition, answer| {
            sight.view.host(&answer.asker).is_some_and(|asker| {
                asker
                    .record
                    .wants
                    .iter()
                    .any(|want| want.partition == *partition && want.owner == self.shared.me)
            })
        });
        let now = self.shared.now();
        let patience = self.shared.manager.handover_timeout;
        for entry in &sight.view.hosts {
            let asker = &entry.record.id;
            for want in entry.record.wants.iter().filter(|want| want.owner == self.shared.me) {
                let slots = self.shared.slots();
                let partition = want.partition;
                let Some(slot) = slots.get(&partition).filter(|slot| slot.token().epoch == want.epoch) else {
                    continue;
                };
                let draining = matches!(slot.control.borrow().stop, Some(Stop::Drain(_)));
                let granted = sight
                    .fleet
                    .member(asker)
                    .is_some_and(|asker| sight.plan.grants(partition, sight.me, asker));
                let reply = if draining {
                    continue;
                } else if granted && !slot.context.inner().lease.is_stuck() {
                    let way = Way::HandOver { to: asker.clone(), duration: entry.record.lease_duration };
                    slot.stop(Drain { until: now + patience, way });
                    Reply::DrainingUntil(sight.view.at + patience)
                } else {
                    Reply::No
                };
                answers.insert(partition, Answer { partition, asker: asker.clone(), reply });
            }
        }
        self.answers = answers;
    }

    /// Keeps, withdraws and adds requests; robs those who stay silent.
    pub(super) async fn ask(&mut self, sight: &Sight) {
        let shared = self.shared.clone();
        let now = sight.received;
        let mut thefts = vec![];
        let mut asks = std::mem::take(&mut self.asks);
        asks.retain(|partition, ask| {
            let lease = sight.view.lease(*partition);
            let answers = sight.view.host(&ask.owner).map_or(&[][..], |owner| &owner.record.answers);
            let patience = shared.manager.handover_timeout;
            match handover::judge(ask, lease, answers, &shared.me, now, patience, shared.manager.slow_scan) {
                Verdict::Withdraw => false,
                Verdict::Steal => {
                    thefts.push(self.claim_request(*partition, lease, Epoch::NONE, ClaimCause::Silent));
                    false
                }
                // Whoever drains for us is not told to stop half-way.
                Verdict::Wait => {
                    let planned = sight.plan.asks_of(sight.me).any(|step| step.partition == *partition);
                    planned || ask.draining_since.is_some()
                }
            }
        });
        self.asks = asks;
        if self.takes_part() {
            self.make_claims(thefts, sight).await;
            for step in sight.plan.asks_of(sight.me) {
                let Some(lease) = sight.view.lease(step.partition) else { continue };
                // Whose old call still runs here could not be served.
                let occupied = shared.slots().contains_key(&step.partition);
                if self.asks.contains_key(&step.partition) || self.is_cooling(step.partition) || occupied {
                    continue;
                }
                let ask = Ask {
                    partition: step.partition,
                    owner: sight.fleet.members[step.from].id.clone(),
                    epoch: lease.epoch,
                    asked_at: shared.now(),
                    draining_since: None,
                };
                self.asks.insert(step.partition, ask);
            }
        }
    }

    fn is_cooling(&self, partition: PartitionId) -> bool {
        let now = self.shared.now();
        self.cooling.get(&partition).is_some_and(|cooling| now < cooling.until)
    }

    /// Claims the free partitions that fall to us.
    pub(super) async fn claim(&mut self, sight: &Sight) {
        if !self.takes_part() {
            return;
        }
        let mine = sight.plan.claims_of(&sight.fleet, sight.me);
        let requests = {
            let slots = self.shared.slots();
            mine.into_iter()
                .filter(|partition| !slots.contains_key(partition) && !self.is_cooling(*partition))
                .map(|partition| {
                    let lease = sight.view.lease(partition);
                    let expired = lease.is_some_and(|lease| lease.owner.is_some());
                    let cause = if expired { ClaimCause::Expired } else { ClaimCause::Unowned };
                    let foreign = self.cooling.get(&partition).and_then(|cooling| cooling.foreign.as_ref());
                    let above = foreign.map_or(Epoch::NONE, |foreign| foreign.epoch);
                    self.claim_request(partition, lease, above, cause)
                })
                .collect()
        };
        self.make_claims(requests, sight).await;
    }

    fn claim_request(
        &self,
        partition: PartitionId,
        lease: Option<&Lease>,
        above: Epoch,
        cause: ClaimCause,
    ) -> ClaimRequest {
        ClaimRequest {
            partition,
            host: self.shared.me.clone(),
            duration: self.shared.manager.lease_duration,
            seen: lease.map(|lease| lease.version.clone()),
            above,
            cause,
        }
    }

    /// Makes claims, a few at a time, and starts a pump for each that is won.
    async fn make_claims(&mut self, requests: Vec<ClaimRequest>, sight: &Sight) {
        let shared = self.shared.clone();
        let claims = requests.into_iter().map(|request| {
            let shared = shared.clone();
            async move {
                let sent = shared.now();
                let store = &shared.store;
                let call = store.store().claim(store.group(), &request);
                (sent, store.call("claim", Some(request.partition), call).await, request)
            }
        });
        let mut claims = futures_util::stream::iter(claims).buffer_unordered(CLAIMS_AT_ONCE);
        while let Some((sent, outcome, request)) = claims.next().await {
            // Lost, or unknown: the next scan shows what became of it.
            if let Ok(Claim::Won { token, lease, checkpoint }) = outcome {
                let manager = &shared.manager;
                let until = deadline(sent, manager.lease_duration, manager.fence_margin);
                let from = sight.view.lease(request.partition).and_then(|lease| lease.owner.clone());
                let reason = OwnershipReason::Claimed(request.cause);
                self.start_pump(token, &lease, checkpoint, until, from, reason);
            }
        }
    }

    fn start_pump(
        &mut self,
        token: LeaseToken,
        lease: &Lease,
        checkpoint: Option<Checkpoint>,
        until: Monotonic,
        from: Option<HostId>,
        reason: OwnershipReason,
    ) {
        let shared = self.shared.clone();
        let (partition, epoch, now) = (token.partition, token.epoch, shared.now());
        self.served.insert(partition, epoch);
        let unaware = lease.previous.as_ref().is_some_and(|previous| *previous != shared.me);
        let quiet_until = if unaware { now + lease.quiet } else { now };
        let state = Arc::new(LeaseState::new(token, until));
        let context = PartitionContext::new(
            state,
            shared.store.clone(),
            shared.environment.clone(),
            self.log.clone(),
            checkpoint,
        );
        let paused = shared.status().paused.contains(&partition);
        let (control, orders) = watch::channel(Control { paused, stop: None });
        let seed = PumpSeed {
            shared: shared.clone(),
            context: context.clone(),
            control: orders,
            founding: self.founding.clone(),
            quiet_until,
        };
        let (pump, ends) = ((shared.run_pump)(seed), self.end_sender.clone());
        let task = shared.environment.spawn(Box::pin(async move {
            let end = std::panic::AssertUnwindSafe(pump).catch_unwind().await;
            let end = end.unwrap_or_else(|_| PumpEnd {
                // Only a panic while dropping the user's own values comes this far.
                partition,
                epoch,
                opened: true,
                settled: false,
                given_up: true,
                outcome: Outcome::Failed { reason: CloseReason::ProcessorFailed, pause: STUCK_AFTER },
            });
            // The manager may be gone already.
            let _ = ends.send(end);
        }));
        let slot = Slot {
            context,
            control,
            _task: task,
            since: shared.environment.wall(),
            started: now,
            reason,
            over_since: None,
        };
        shared.slots().insert(partition, slot);
        self.announce(partition, epoch, from, Some(shared.me.clone()), reason);
    }

    /// Takes note of a pump that ended.
    pub(super) fn pump_ended(&mut self, end: PumpEnd) {
        let PumpEnd { partition, epoch, opened, outcome, .. } = end;
        let now = self.shared.now();
        let slot = self.shared.slots().remove(&partition);
        let lived = slot.map_or(Duration::ZERO, |slot| now.since(slot.started));
        let me = self.shared.me.clone();
        if opened {
            self.fitness.well();
            if let Some(cooling) = self.cooling.get_mut(&partition) {
                cooling.unopened = 0;
            }
        }
        if lived >= TROUBLE_FORGOTTEN {
            self.cooling.remove(&partition);
        }
        let (to, reason) = match outcome {
            Outcome::GivenAway { reason: CloseReason::Handover, to, .. } => (to, OwnershipReason::HandedOver),
            Outcome::GivenAway { .. } => (None, OwnershipReason::Released(ReleaseCause::Shutdown)),
            Outcome::Lost { reason } => (None, OwnershipReason::Lost(reason)),
            Outcome::Displaced { epoch: newer, by } => {
                let attempts = self
                    .cooling
                    .get(&partition)
                    .and_then(|cooling| cooling.foreign.as_ref())
                    .map_or(1, |foreign| foreign.attempts + 1);
                let wait = if attempts <= FOREIGN_ATTEMPTS {
                    FOREIGN_BACKOFF.delay(attempts, self.shared.environment.random())
                } else {
                    self.shared.manager.lease_duration * 2
                };
                let newer = newer.unwrap_or(epoch);
                let foreign = Some(Foreign { epoch: newer, by, attempts, reported: false });
                self.cooling.insert(partition, Cooling { until: now + wait, foreign, unopened: 0 });
                (None, OwnershipReason::Lost(CloseReason::Disconnected))
            }
            Outcome::Failed { reason, pause } => {
                let cause = match reason {
                    CloseReason::SourceFailed => ReleaseCause::SourceFailed,
                    _ => ReleaseCause::ProcessorFailed,
                };
                if reason == CloseReason::SourceFailed {
                    // The hub may have been made anew, or have changed: ask it again.
                    self.refresh_at = now;
                }
                // Without a pause it is the hub that has changed, and no fault of ours. And who
                // serves another partition can serve: then it is this one that has a problem.
                let ours = !opened || reason == CloseReason::SourceFailed;
                if ours && !pause.is_zero() && !self.serves_any() {
                    self.fitness.failed(now, self.shared.environment.random());
                }
                let unopened = if opened || reason == CloseReason::SourceFailed {
                    0
                } else {
                    self.cooling.get(&partition).map_or(0, |cooling| cooling.unopened) + 1
                };
                // Longer each time, until another host finds it free for too long and tries its luck.
                let until = now + pause * 2_u32.pow(unopened.saturating_sub(1).min(OPEN_DOUBLINGS));
                self.cooling.insert(partition, Cooling { until, foreign: None, unopened });
                (None, OwnershipReason::Released(cause))
            }
        };
        self.announce(partition, epoch, Some(me), to, reason);
    }

    fn serves_any(&self) -> bool {
        let slots = self.shared.slots();
        slots
            .values()
            .any(|slot| matches!(slot.context.inner().lease.stage(), Stage::Running | Stage::Paused))
    }

    /// A call that goes on although it was given up blocks its thread. Its
    /// lease is no longer renewed, and its slot stays taken until it returns.
    pub(super) fn notice_stuck_calls(&mut self) {
        let now = self.shared.now();
        let timeout = self.shared.options.process_timeout;
        for (partition, slot) in self.shared.slots().iter_mut() {
            let lease = &slot.context.inner().lease;
            let Some(running) = lease.call_running_since().map(|since| now.since(since)) else {
                slot.over_since = None;
                continue;
            };
            let overdue = timeout.is_some_and(|timeout| running >= timeout + STUCK_AFTER);
            let over = !lease.is_ours(now) && lease.stage() != Stage::Closing;
            if over {
                slot.over_since.get_or_insert(now);
            }
            let ignored = slot.over_since.is_some_and(|since| now.since(since) >= STUCK_AFTER);
            if (overdue && lease.stage() != Stage::Closing || ignored) && lease.mark_stuck() {
                self.shared.reporter.report(&HostError::Stuck { partition: *partition, running });
            }
        }
    }
}
