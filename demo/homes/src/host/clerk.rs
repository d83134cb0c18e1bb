//! The processor: folds the events of a partition into its state, and writes what changed.

use std::time::{Duration, Instant};

use ephor::{BoxError, CloseReason, Event, EventProcessor, PartitionContext};

use super::orders::Pace;
use crate::consolidate::Consolidation;
use crate::reading::Reading;
use crate::results::{Book, Place};

/// Keeps the book of one partition.
///
/// The order is what makes it exact: fold, write the result, and only then save how far we came. Whoever comes after
/// us finds results that are as far as the checkpoint or further, and passes over what they contain already.
#[derive(Debug)]
pub struct Clerk<C: Consolidation> {
    results: Place,
    kind: &'static str,
    flush_every: Duration,
    pace: Pace,
    book: Option<Book<C>>,
    /// The last event that was folded.
    last: Option<Event>,
    flushed: Instant,
}

impl<C: Consolidation> Clerk<C> {
    /// One that writes to the logs of this kind, no more often than this.
    pub fn new(results: Place, kind: &'static str, flush_every: Duration, pace: Pace) -> Self {
        Self { results, kind, flush_every, pace, book: None, last: None, flushed: Instant::now() }
    }

    /// Writes what waits, then saves how far we came.
    async fn flush(&mut self, context: &PartitionContext) -> Result<(), BoxError> {
        let Some(book) = self.book.as_mut().filter(|book| book.is_waiting()) else { return Ok(()) };
        book.flush().await?;
        self.flushed = Instant::now();
        if let Some(last) = &self.last
            && let Err(error) = context.checkpoint_at(last).await
        {
            // The results are written; the next checkpoint covers this one.
            tracing::warn!(partition = %context.partition(), %error, "not saved");
        }
        Ok(())
    }
}

impl<C: Consolidation + Sync> EventProcessor for Clerk<C> {
    /// The book of this partition, as the last owner left it. The epoch keeps that one from writing to it again.
    async fn open(&mut self, context: &PartitionContext) -> Result<(), BoxError> {
        let log = self.results.log(self.kind, context.partition());
        self.book = Some(Book::open(log, context.epoch().get(), context.host().name.as_str()).await?);
        Ok(())
    }

    /// If this fails, the same events come again; the book knows them.
    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        let Some(book) = &mut self.book else { return Ok(()) };
        for event in events {
            match Reading::decode(&event.body) {
                Ok(reading) => book.fold(event.sequence.0, &reading),
                Err(error) => {
                    tracing::warn!(partition = %context.partition(), event = %event.sequence, %error, "skipped");
                    book.skip(event.sequence.0);
                }
            }
        }
        if let Some(last) = events.last() {
            self.last = Some(last.clone());
            self.pace.keep().await;
        }
        if self.flushed.elapsed() >= self.flush_every {
            self.flush(context).await?;
        }
        Ok(())
    }

    /// What waits is written, if the partition is still ours. If it is not, the new owner gets the same events.
    async fn close(&mut self, context: &PartitionContext, reason: CloseReason) -> Result<(), BoxError> {
        if reason.still_owner() { self.flush(context).await } else { Ok(()) }
    }
}
