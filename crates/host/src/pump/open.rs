//! Finds the position at which a pump reads, opens the processor and attaches the receiver: when the pump
//! starts; position and receiver again after a link fault, the processor after a panic.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ephor_core::checkpoint::Position;
use ephor_core::ids::LogId;
use ephor_core::panics::Panicked;
use ephor_core::position::StartPosition;
use ephor_core::resume::{self, PositionGone, Resume};
use ephor_core::source::{OpenError, OpenRequest, PartitionProperties, Receiver, SourceError};
use ephor_core::time::Monotonic;
use futures_util::FutureExt;

use super::interrupts::{Interrupt, InterruptMask, LazyTimer};
#[cfg(feature = "mutations")]
use super::switched_off_rules;
use super::{Ending, Pump, SOURCE_BACKOFF, SOURCE_PAUSE};
use crate::context::Checkpointed;
use crate::error::{HostError, PartitionError, ProcessorError};
use crate::hub_calls::while_bytes_come;
use crate::processor::{CloseReason, EventProcessor};
use crate::pump_activity::PumpState;

/// The cooldown of a partition after its processor did not open.
const OPEN_PAUSE: Duration = Duration::from_secs(5);

/// The hub was deleted and created again meanwhile: start over, with its new log.
const HUB_RECREATED: Ending = Ending::Failed { reason: CloseReason::SourceFailed, pause: Duration::ZERO };

impl<P: EventProcessor> Pump<P> {
    /// Finds the position to resume from: after the progress made here, after the checkpoint, or
    /// the initial position.
    pub(super) async fn find_start(&mut self) -> Result<StartPosition, Ending> {
        let properties = self.properties().await?;
        let context = &self.context;
        let options = &self.services.options;
        {
            let mut progress = context.progress();
            progress.first_kept = properties.first;
            if properties.last.is_some() {
                progress.last_enqueued = properties.last.clone();
            }
        }
        let known = context.resume_point();
        let partition = context.partition();
        let origin = self.origin.as_ref();
        let initial = catch_unwind(AssertUnwindSafe(|| {
            resume::initial_position(origin, partition, || options.initial_position.of(partition))
        }));
        let initial = match initial {
            Ok(initial) => initial,
            Err(panic) => return Err(self.open_failed(panicked(&*panic))),
        };
        let log = context.inner().log.as_ref();
        let found = resume::resume(known.as_ref(), initial, &properties, log, options.on_invalid_position);
        #[cfg(feature = "mutations")]
        let found = switched_off_rules::rewind_without_proof(
            &self.services.rules,
            found,
            &properties,
            options.on_invalid_position,
        );
        match found {
            // Not beside processors of other SDKs, which would start at this saved position instead
            // of their own initial one.
            Ok(found) if known.is_none() && !self.shares_with_other_sdks() => {
                self.doubt_if_beyond_the_end(&found.start, &properties);
                self.begin_at(found.pinned(&properties), &properties).await
            }
            Ok(found) => {
                self.doubt_if_beyond_the_end(&found.start, &properties);
                self.begin_at(found, &properties).await
            }
            Err(cause) => Err(self.halt(cause).await),
        }
    }

    /// Starts at a replacement for a position that does not exist.
    pub(super) async fn begin_at_replacement(
        &mut self,
        cause: PositionGone,
        properties: &PartitionProperties,
    ) -> Result<StartPosition, Ending> {
        self.doubt = None;
        match resume::replacement(cause, properties, self.services.options.on_invalid_position) {
            Ok(found) => self.begin_at(found, properties).await,
            Err(cause) => Err(self.halt(cause).await),
        }
    }

    /// Reports lost and skipped events, and saves a start that moves with time.
    async fn begin_at(
        &mut self,
        found: Resume,
        properties: &PartitionProperties,
    ) -> Result<StartPosition, Ending> {
        let (resumes_at, skipped) = found.skips(properties);
        let Resume { start, lost, remember, rewind } = found;
        if let Some(cause) = lost {
            self.report_error(PartitionError::PositionGone { cause, resumes_at, skipped }).await?;
        }
        if remember {
            self.remember(&start, rewind).await?;
        }
        self.context.progress().starting_at(&start);
        self.expected = match &start {
            StartPosition::Sequence { number, inclusive: true } => Some(*number),
            StartPosition::Sequence { number, inclusive: false } => Some(number.next()),
            StartPosition::Earliest => Some(self.context.progress().first_kept),
            _ => None,
        };
        Ok(start)
    }

    /// Saves a start before anything is delivered from it, and retries until that succeeds.
    async fn remember(&mut self, start: &StartPosition, rewind: bool) -> Result<(), Ending> {
        for attempt in 1.. {
            let context = self.context.clone();
            let position = self.remembered(start);
            match self.unless_stopped(context.begin(position, rewind)).await? {
                Ok(Checkpointed::Refused) => return Err(Ending::Lost(CloseReason::LeaseLost)),
                Ok(_) => break,
                Err(_) => {
                    let wait = SOURCE_BACKOFF.delay(attempt, self.random());
                    self.sleep_until(self.now() + wait).await?;
                }
            }
        }
        Ok(())
    }

    /// A start as it is saved. Processors of other SDKs use the offset of the last finished event.
    fn remembered(&self, start: &StartPosition) -> Position {
        let last = self.context.progress().last_enqueued.clone();
        match last
            .filter(|last| self.shares_with_other_sdks() && *start == StartPosition::after(last.sequence))
        {
            Some(last) => Position::Finished {
                sequence: last.sequence,
                offset: Some(last.offset),
                enqueued_at: Some(last.enqueued_at),
            },
            None => resume::remembered(start),
        }
    }

    /// The partition's properties, with retries. Also checks that the hub is still the one with
    /// which we began.
    pub(super) async fn properties(&mut self) -> Result<PartitionProperties, Ending> {
        loop {
            match self.ask_properties().await? {
                Ok(properties) => return Ok(properties),
                Err(error) => self.source_failed(error).await?,
            }
        }
    }

    /// The same, without retries.
    pub(super) async fn ask_properties(
        &mut self,
    ) -> Result<Result<PartitionProperties, SourceError>, Ending> {
        let source = self.services.source.clone();
        let partition = self.context.partition();
        let asked = self
            .ask_hub(async {
                // In this order: if it is still our hub afterwards, it was ours before.
                let properties = source.partition_properties(partition).await?;
                Ok::<_, SourceError>((source.hub_properties().await?, properties))
            })
            .await?;
        match asked {
            Ok((hub, properties)) if hub.log == self.context.inner().log => Ok(Ok(properties)),
            Ok(_) => Err(HUB_RECREATED),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Creates and opens a processor.
    pub(super) async fn open_processor(&mut self) -> Result<(), Ending> {
        self.processor = None;
        let made = catch_unwind(AssertUnwindSafe(|| (self.factory)(&self.context)));
        let mut processor = match made {
            Ok(Ok(processor)) => processor,
            Ok(Err(error)) => return Err(self.open_failed(error.into())),
            Err(panic) => return Err(self.open_failed(panicked(&*panic))),
        };
        let (context, environment) = (self.context.clone(), self.services.environment.clone());
        let timeout = self.services.options.process_timeout;
        let limit = timeout.map_or(Monotonic::NEVER, |timeout| self.now() + timeout);
        let mut timer = LazyTimer::default();
        self.activity.call_starts(self.now(), limit);
        let opened = self
            .unless_stopped(async {
                tokio::select! {
                    biased;
                    opened = AssertUnwindSafe(async { processor.open(&context).await }).catch_unwind() => Some(opened),
                    () = timer.until(&*environment, limit) => None,
                }
            })
            .await;
        self.activity.call_ended();
        let Some(opened) = opened? else {
            let after = timeout.unwrap_or_default();
            return Err(self.open_failed(ProcessorError::TimedOut { after }));
        };
        match opened {
            Ok(Ok(())) => {
                self.processor = Some(processor);
                self.opened = true;
                for error in std::mem::take(&mut self.pending_errors) {
                    self.process_error(&error).await?;
                }
                Ok(())
            }
            Ok(Err(error)) => Err(self.open_failed(error.into())),
            Err(panic) => Err(self.open_failed(panicked(&*panic))),
        }
    }

    fn open_failed(&mut self, error: ProcessorError) -> Ending {
        let partition = self.context.partition();
        self.processor = None;
        self.opened = false;
        self.services.reporter.report(&HostError::OpenFailed { partition, error });
        Ending::Failed { reason: CloseReason::ProcessorFailed, pause: OPEN_PAUSE }
    }

    /// Attaches a receiver in our epoch. `None` if that failed: the start position is then
    /// determined again.
    pub(super) async fn attach(&mut self, start: StartPosition) -> Result<Option<Box<dyn Receiver>>, Ending> {
        let mut start = start;
        let mut replaced = false;
        loop {
            // Never for a lease that is over.
            if let Some(Interrupt::Lost(reason)) = self.guard.check(InterruptMask::Drain) {
                return Err(self.ending(Interrupt::Lost(reason)));
            }
            if !self.hub_fences() {
                self.confirm_ownership().await?;
            }
            let options = &self.services.options;
            let request = OpenRequest {
                group: self.context.consumer_group().clone(),
                partition: self.context.partition(),
                start: start.clone(),
                epoch: Some(self.attach_epoch()),
                receiver: self.context.host().name.to_string(),
                prefetch_events: options.prefetch_count,
                prefetch_bytes: options.prefetch_bytes,
            };
            let source = self.services.source.clone();
            match self.ask_hub(source.open(request)).await? {
                Ok(receiver) => {
                    if !self.is_still_our_hub(receiver.log()).await? {
                        return Ok(None);
                    }
                    self.note_enqueued(&*receiver);
                    self.doubt_from_now_on();
                    self.services.hub_health.reads(Some(self.context.partition()), self.now());
                    return Ok(Some(receiver));
                }
                Err(OpenError::Refused { epoch, by, message }) => {
                    tracing::info!(partition = %self.context.partition(), message, "refused by the hub");
                    self.displaced(epoch, by).await?;
                    return Ok(None);
                }
                Err(OpenError::InvalidPosition { message }) if !replaced => {
                    if let Some(other) = self.position_refused(&start, &message).await? {
                        (start, replaced) = (other, true);
                    }
                }
                Err(OpenError::Source(error)) => {
                    self.source_failed(error).await?;
                    return Ok(None);
                }
                Err(error) => {
                    self.report_error(PartitionError::Source { error: error.into() }).await?;
                    return Err(Ending::Failed { reason: CloseReason::SourceFailed, pause: SOURCE_PAUSE });
                }
            }
        }
    }

    /// True if the receiver that was opened just now reads the log for which its position was
    /// found: a hub that was created again since then would be read from the middle. If the receiver
    /// does not know its log, asks the hub; false if that did not answer.
    async fn is_still_our_hub(&mut self, read: Option<LogId>) -> Result<bool, Ending> {
        if self.context.inner().log.is_none() {
            return Ok(true);
        }
        let source = self.services.source.clone();
        let asked = match read {
            Some(log) => Ok(Some(log)),
            None => self.ask_hub(async { Ok(source.hub_properties().await?.log) }).await?,
        };
        match asked {
            Ok(log) if log == self.context.inner().log => Ok(true),
            Ok(_) => Err(HUB_RECREATED),
            Err(error) => {
                self.source_failed(error).await?;
                Ok(false)
            }
        }
    }

    /// Sends a request to the hub. A hub that does not answer in time counts as unavailable; while
    /// bytes come from it, it has more time.
    async fn ask_hub<T, E: From<SourceError>>(
        &mut self,
        question: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, Ending> {
        let services = self.services.clone();
        self.unless_stopped(while_bytes_come(&*services.environment, &*services.source, question)).await
    }

    /// Holds the partition without reading, until an operator seeks or another host takes it.
    pub(super) async fn halt(&mut self, cause: PositionGone) -> Ending {
        self.set_state(PumpState::Halted);
        let partition = self.context.partition();
        let group = self.context.group().clone();
        self.services.reporter.report(&HostError::Halted { group, partition, cause });
        let interrupt = self.guard.wait(InterruptMask::Drain).await;
        self.ending(interrupt)
    }
}

/// A panic of the user's code.
pub(super) fn panicked(panic: &(dyn std::any::Any + Send)) -> ProcessorError {
    ProcessorError::Panicked { message: Panicked::of(panic).message }
}
