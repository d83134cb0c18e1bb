//! The pump: serves one owned partition, from claim to release.
//!
//! ```text
//!   claimed ─► wait until the last owner has stopped ─► find the position ─► open ─► attach
//!                                                                                      │
//!        ┌──────────────── link fault: find the position again ◄───────────────┐       ▼
//!        └────────────────────────────────────────────────────────────► receive, deliver
//!                                                                              │
//!   drain:  finish the call ─► close ─► final checkpoint ─► transfer or release ◄┤
//!   lost:   drop the call ─► close, checkpoints refused ◄─────────────────────────┘
//! ```
//!
//! A pump is one task. It owns the processor and the receiver; other tasks only ask it to stop,
//! through [`Control`](crate::pump_interface::Control).

mod close;
mod deliver;
mod gaps;
mod interrupts;
mod open;
mod position_beyond_end;
#[cfg(feature = "mutations")]
mod switched_off_rules;
mod unfenced_readers;

use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxError;
use ephor_core::epoch::Epoch;
use ephor_core::event::Event;
use ephor_core::failure_policy::Backoff;
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::{ReceiveError, Receiver, SourceError};
use ephor_core::store::GroupOrigin;
use ephor_core::time::Monotonic;
use futures_util::FutureExt;

use crate::context::{PartitionContext, partition_labels};
use crate::error::{HostError, PartitionError};
use crate::host_services::HostServices;
use crate::hub_calls::source_error;
use crate::hub_health::ReaderGuard;
use crate::metric_names as names;
use crate::processor::{CloseReason, EventProcessor};
use crate::pump_activity::{PumpActivity, PumpState};
use crate::pump_interface::{Drain, PumpArgs, PumpEnd};
use gaps::GapReports;
use interrupts::{Interrupt, InterruptGuard, InterruptMask, LazyTimer};
use position_beyond_end::Doubt;
use unfenced_readers::Displacements;

/// Creates a processor for a partition.
pub(crate) type Factory<P> = Arc<dyn Fn(&PartitionContext) -> Result<P, BoxError> + Send + Sync>;

/// The backoff between attempts to read a hub that does not answer.
const SOURCE_BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), max: Duration::from_secs(5) };
/// The most events for which room is allocated in advance; a larger batch grows the buffer.
const MAX_PREALLOCATED_EVENTS: usize = 1_024;
/// The cooldown of a partition after the hub could not be read for too long.
const SOURCE_PAUSE: Duration = Duration::from_secs(5);

/// The reason why a pump stops serving.
#[derive(Debug)]
enum Ending {
    Drain(Drain),
    Lost(CloseReason),
    Displaced { epoch: Option<Epoch>, by: Option<String> },
    Failed { reason: CloseReason, pause: Duration },
}

struct Pump<P> {
    services: Arc<HostServices>,
    context: PartitionContext,
    activity: Arc<PumpActivity>,
    guard: InterruptGuard,
    factory: Factory<P>,
    origin: Option<GroupOrigin>,
    processor: Option<P>,
    opened: bool,
    /// Errors from before there was a processor to receive them.
    pending_errors: Vec<PartitionError>,
    /// True if the last batch failed, or its call ran out of time: it is not finished.
    given_up: bool,
    /// Fires for idleness and for checkpoints by time.
    ticker: LazyTimer,
    last_activity: Monotonic,
    /// The earliest time of a retry after a checkpoint by policy failed.
    checkpoint_not_before: Monotonic,
    /// The number of the next event, if known.
    expected: Option<SequenceNumber>,
    gaps: GapReports,
    source_failures: u32,
    source_failing_since: Option<Monotonic>,
    displacements: Displacements,
    /// The position at which we read, if it may lie beyond the end of the log.
    doubt: Option<Doubt>,
    meters: Meters,
}

struct Meters {
    processed: metrics::Counter,
    failures: metrics::Counter,
    skipped: metrics::Counter,
    lag_events: metrics::Gauge,
    lag_seconds: metrics::Gauge,
}

/// Serves the partition until it is given away or lost. `builder.rs` wraps it in a
/// [`RunPump`](crate::pump_interface::RunPump), and the manager starts that as a task for every
/// lease it wins (`host/pumps.rs`).
pub(crate) async fn run<P: EventProcessor>(args: PumpArgs, factory: Factory<P>) -> PumpEnd {
    let PumpArgs { services, context, activity, control, origin, deliver_from } = args;
    let labels = partition_labels(&services.store, context.partition());
    let guard = InterruptGuard::new(services.environment.clone(), context.lease().clone(), control);
    let now = services.now();
    let mut pump = Pump {
        guard,
        factory,
        origin,
        processor: None,
        opened: false,
        pending_errors: vec![],
        given_up: false,
        ticker: LazyTimer::default(),
        last_activity: now,
        checkpoint_not_before: now,
        expected: None,
        gaps: GapReports::default(),
        source_failures: 0,
        source_failing_since: None,
        displacements: Displacements::default(),
        doubt: None,
        meters: Meters {
            processed: metrics::counter!(names::EVENTS_PROCESSED, &labels),
            failures: metrics::counter!(names::PROCESSOR_FAILURES, &labels),
            skipped: metrics::counter!(names::EVENTS_SKIPPED, &labels),
            lag_events: metrics::gauge!(names::LAG_EVENTS, &labels),
            lag_seconds: metrics::gauge!(names::LAG_SECONDS, &labels),
        },
        services,
        context,
        activity,
    };
    // Dropped even if a panic ends this pump, which must not prolong an outage that is over.
    let reads = ReaderGuard::new(pump.services.hub_health.clone(), Some(pump.context.partition()));
    let Err(ending) = pump.serve(deliver_from).await;
    drop(reads);
    pump.finish(ending).await
}

impl<P: EventProcessor> Pump<P> {
    async fn serve(&mut self, deliver_from: Monotonic) -> Result<std::convert::Infallible, Ending> {
        self.set_state(PumpState::Waiting);
        self.sleep_until(deliver_from).await?;
        self.set_state(PumpState::Opening);
        let mut start = self.find_start().await?;
        self.open_processor().await?;
        loop {
            let elsewhere = match self.attach(start).await? {
                Some(receiver) => self.receive(receiver).await?,
                None => None,
            };
            start = match elsewhere {
                Some(elsewhere) => elsewhere,
                None => self.find_start().await?,
            };
        }
    }

    /// Receives and delivers until the receiver yields no more and a new one should be opened.
    /// Returns the position to start from, if that is decided already.
    async fn receive(&mut self, mut receiver: Box<dyn Receiver>) -> Result<Option<StartPosition>, Ending> {
        self.set_state(PumpState::Running);
        let attached = self.now();
        self.last_activity = attached;
        let max = self.services.options.max_batch_size;
        let mut events: Vec<Event> = Vec::with_capacity(max.min(MAX_PREALLOCATED_EVENTS));
        loop {
            events.clear();
            let wake_at = self.wake_at();
            let Self { guard, ticker, services, .. } = self;
            let environment = &*services.environment;
            let received = tokio::select! {
                biased;
                interrupt = guard.wait(InterruptMask::Everything) => match interrupt {
                    Interrupt::Paused => {
                        self.stay_paused().await?;
                        continue;
                    }
                    // The mutation, which delivers prefetched events after the loss.
                    Interrupt::Lost(_)
                        if !self.services.rules.loss_comes_before_delivery()
                            && take_ready(&mut *receiver, &mut events, max) =>
                    {
                        Some(Ok(()))
                    }
                    other => return Err(self.ending(other)),
                },
                result = receiver.receive(&mut events, max) => Some(result),
                () = ticker.until(environment, wake_at) => None,
            };
            match received {
                Some(Ok(())) => {
                    self.note_enqueued(&*receiver);
                    self.last_activity = self.now();
                    // The hub has events there, whatever its properties say.
                    self.doubt = None;
                    self.source_recovered();
                    // A hub may pass over numbers: a gap is reported before the events after it are
                    // delivered.
                    for events in events.chunk_by(|one, other| one.sequence.next() == other.sequence) {
                        if let Some(elsewhere) = self.report_gap(events).await? {
                            return Ok(Some(elsewhere));
                        }
                        self.deliver_all(events).await?;
                    }
                    self.summarise_gaps().await?;
                    self.last_activity = self.now();
                }
                Some(Err(ReceiveError::Disconnected { epoch, by, message })) => {
                    tracing::info!(partition = %self.context.partition(), message, "disconnected");
                    drop(receiver);
                    self.displaced(epoch, by).await?;
                    return Ok(None);
                }
                Some(Err(error)) => {
                    drop(receiver);
                    // A link that held for a while is proof enough, even on an idle partition.
                    if self.now().since(attached) >= SOURCE_BACKOFF.max {
                        self.source_recovered();
                    }
                    self.source_failed(source_error(error)).await?;
                    return Ok(None);
                }
                None => {
                    self.tick().await?;
                    if let Some(elsewhere) = self.check_if_in_doubt().await? {
                        return Ok(Some(elsewhere));
                    }
                }
            }
        }
    }

    /// The time at which the pump has something to do although no event arrives.
    fn wake_at(&self) -> Monotonic {
        let options = &self.services.options;
        let idle = if options.invoke_after_receive_timeout {
            self.last_activity + options.receive_timeout
        } else {
            Monotonic::NEVER
        };
        let check = self.doubt.as_ref().map_or(Monotonic::NEVER, Doubt::check_at);
        idle.min(check).min(self.gaps.due_at()).min(self.checkpoint_at().unwrap_or(Monotonic::NEVER))
    }

    /// The time at which the policy asks for a checkpoint, if something is finished and not saved.
    fn checkpoint_at(&self) -> Option<Monotonic> {
        let policy = &self.services.options.checkpoint;
        let (unsaved, not_before) = {
            let progress = self.context.progress();
            (progress.unsaved, progress.throttle.not_before)
        };
        let now = self.now();
        // If one is due already, it could not be written: it is retried even if no event follows.
        let due = if policy.due(&unsaved, now) { Some(now) } else { policy.due_at(&unsaved) };
        due.map(|due| due.max(self.checkpoint_not_before).max(not_before))
    }

    async fn tick(&mut self) -> Result<(), Ending> {
        self.checkpoint_if_due().await?;
        self.summarise_gaps().await?;
        let options = &self.services.options;
        if options.invoke_after_receive_timeout && self.now() >= self.last_activity + options.receive_timeout
        {
            self.deliver_nothing().await?;
            self.last_activity = self.now();
        }
        Ok(())
    }

    fn note_enqueued(&self, receiver: &dyn Receiver) {
        if let Some(last) = receiver.last_enqueued() {
            self.context.progress().last_enqueued = Some(last);
        }
    }

    /// Handles a hub that could not be read: reports it and waits, or gives up after too long.
    async fn source_failed(&mut self, error: SourceError) -> Result<(), Ending> {
        let now = self.now();
        let since = *self.source_failing_since.get_or_insert(now);
        self.source_failures += 1;
        self.set_state(PumpState::Retrying);
        self.checkpoint_if_due().await?;
        let partition = self.context.partition();
        self.services.hub_health.failed(Some(partition), now, &error);
        let hopeless = !matches!(error, SourceError::Unavailable(_));
        let reported = PartitionError::Source { error: Arc::new(error.into()) };
        self.services
            .reporter
            .report_one_of_many(&HostError::Partition { partition, error: reported.clone() });
        self.process_error(&reported).await?;
        if hopeless || now.since(since) >= self.services.options.hub_unavailable_timeout {
            return Err(Ending::Failed { reason: CloseReason::SourceFailed, pause: SOURCE_PAUSE });
        }
        let wait = SOURCE_BACKOFF.delay(self.source_failures, self.random());
        self.wait(now + wait).await?;
        self.set_state(PumpState::Opening);
        Ok(())
    }

    fn source_recovered(&mut self) {
        self.source_failures = 0;
        self.source_failing_since = None;
    }

    async fn stay_paused(&mut self) -> Result<(), Ending> {
        self.set_state(PumpState::Paused);
        self.checkpoint_now_if_by_policy().await?;
        match self.guard.wait(InterruptMask::Resume).await {
            Interrupt::Resumed => {
                self.set_state(PumpState::Running);
                Ok(())
            }
            other => Err(self.ending(other)),
        }
    }

    /// Waits before the next attempt. Earlier progress is saved, and gaps are reported, in time
    /// meanwhile.
    async fn wait(&mut self, until: Monotonic) -> Result<(), Ending> {
        loop {
            let due = self.checkpoint_at().unwrap_or(Monotonic::NEVER).min(self.gaps.due_at());
            if due >= until {
                return self.sleep_until(until).await;
            }
            self.sleep_until(due).await?;
            self.checkpoint_if_due().await?;
            self.summarise_gaps().await?;
        }
    }

    /// Sleeps, unless the pump is stopped.
    async fn sleep_until(&mut self, at: Monotonic) -> Result<(), Ending> {
        let sleep = self.services.environment.sleep_until(at);
        self.unless_stopped(sleep).await
    }

    /// Awaits something that may be dropped when the pump is stopped.
    async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Ending> {
        tokio::select! {
            biased;
            interrupt = self.guard.wait(InterruptMask::Drain) => Err(self.ending(interrupt)),
            result = work => Ok(result),
        }
    }

    /// Reports an error of this partition, also to the processor.
    async fn report_error(&mut self, error: PartitionError) -> Result<(), Ending> {
        let partition = self.context.partition();
        self.services.reporter.report(&HostError::Partition { partition, error: error.clone() });
        self.process_error(&error).await
    }

    fn ending(&self, interrupt: Interrupt) -> Ending {
        match interrupt {
            Interrupt::Drain(drain) => Ending::Drain(drain),
            Interrupt::Lost(reason) => {
                let now = self.now();
                if now >= self.context.lease().deadline() {
                    let partition = self.context.partition();
                    let store_failing_for = self.services.store.failing_for(now);
                    self.services.reporter.report(&HostError::SelfFenced { partition, store_failing_for });
                }
                Ending::Lost(reason)
            }
            // Callers that wait for these two handle them.
            Interrupt::Paused | Interrupt::Resumed => Ending::Lost(CloseReason::LeaseLost),
        }
    }

    fn set_state(&self, state: PumpState) {
        self.activity.set_state(state);
    }

    fn now(&self) -> Monotonic {
        self.services.now()
    }

    fn random(&self) -> u64 {
        self.services.environment.random()
    }
}

/// Takes the events that have arrived already. False if there are none.
fn take_ready(receiver: &mut dyn Receiver, events: &mut Vec<Event>, max: usize) -> bool {
    matches!(receiver.receive(events, max).now_or_never(), Some(Ok(()))) && !events.is_empty()
}
