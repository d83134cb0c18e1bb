//! The event processor of the demo: applies the events of a partition to its state, and writes the changes.

use std::time::{Duration, Instant};

use ephor::{BoxError, CloseReason, Event, EventProcessor, PartitionContext};

use super::commands::Slowdown;
use crate::consolidate::Consolidation;
use crate::reading::Reading;
use crate::results::{ResultStore, ResultWriter};

/// Processes the events of one partition, and writes its results.
///
/// The order makes it exact: fold, write the result, and only then save the checkpoint. The next owner finds results that are
/// as far as the checkpoint or further, and skips the events that they contain already.
#[derive(Debug)]
pub struct HomesProcessor<C: Consolidation> {
    results: ResultStore,
    kind: &'static str,
    flush_every: Duration,
    slowdown: Slowdown,
    writer: Option<ResultWriter<C>>,
    /// The last event that was folded.
    last: Option<Event>,
    flushed: Instant,
}

impl<C: Consolidation> HomesProcessor<C> {
    /// Creates a processor that writes to the logs of this kind, at most every `flush_every`.
    pub fn new(results: ResultStore, kind: &'static str, flush_every: Duration, slowdown: Slowdown) -> Self {
        Self { results, kind, flush_every, slowdown, writer: None, last: None, flushed: Instant::now() }
    }

    /// Writes the pending changes, then saves the checkpoint.
    async fn flush(&mut self, context: &PartitionContext) -> Result<(), BoxError> {
        let Some(writer) = self.writer.as_mut().filter(|writer| writer.is_waiting()) else { return Ok(()) };
        writer.flush().await?;
        self.flushed = Instant::now();
        if let Some(last) = &self.last
            && let Err(error) = context.checkpoint_at(last).await
        {
            // The results are written; the next checkpoint covers this one.
            tracing::warn!(partition = %context.partition(), %error, "could not save the checkpoint; the next one covers it");
        }
        Ok(())
    }
}

impl<C: Consolidation + Sync> EventProcessor for HomesProcessor<C> {
    /// Opens the results of this partition, as the last owner left them. The epoch fences that owner.
    async fn open(&mut self, context: &PartitionContext) -> Result<(), BoxError> {
        let log = self.results.log(self.kind, context.partition());
        self.writer =
            Some(ResultWriter::open(log, context.epoch().get(), context.host().name.as_str()).await?);
        Ok(())
    }

    /// If this fails, the same events are delivered again; the writer recognises them.
    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        for event in events {
            match Reading::decode(&event.body) {
                Ok(reading) => writer.fold(event.sequence.0, &reading),
                Err(error) => {
                    tracing::warn!(partition = %context.partition(), event = %event.sequence, %error, "skipped an event that is not a reading");
                    writer.skip(event.sequence.0);
                }
            }
        }
        if let Some(last) = events.last() {
            self.last = Some(last.clone());
            self.slowdown.wait().await;
        }
        if self.flushed.elapsed() >= self.flush_every {
            self.flush(context).await?;
        }
        Ok(())
    }

    /// Writes the pending changes, if the partition is still ours. Otherwise the new owner gets the same events.
    async fn close(&mut self, context: &PartitionContext, reason: CloseReason) -> Result<(), BoxError> {
        if reason.still_owner() { self.flush(context).await } else { Ok(()) }
    }
}
