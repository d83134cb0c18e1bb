//! Implements `ephor_core`'s `Producer` interface, which all hubs share, for the embedded hub: groups
//! events by their keys, splits batches that are too large, and reports how many events are stored when a
//! send fails.
//!
//! All batches of a send are queued before the first one is waited for, so that they share commits. After a failed
//! one the rest is not stored: events with one key keep their order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ephor_core::BoxFuture;
use ephor_core::event::NewEvent;
use ephor_core::producer::{Producer, ProducerError, SendCause, Sent, Target};
use ephor_core::source::SourceError;
use tokio::sync::oneshot;

use super::{HubProducer, MAX_EXPECTED};
use crate::batch::Batch;
use crate::error::SendError;

/// A part of a send that is stored whole, in one partition.
struct Part {
    /// The key that chooses its partition, if the target does not.
    key: Option<Arc<str>>,
    batch: Batch,
    /// The index of its first event.
    first: usize,
}

impl HubProducer {
    /// Encodes the events into as few batches as possible, ordered by their first events.
    fn parts(&self, target: Target<'_>, events: Vec<NewEvent>) -> Result<Vec<Part>, ProducerError> {
        let common: Option<Arc<str>> = match target {
            Target::Key(key) => Some(key.into()),
            Target::Any | Target::Partition(_) => None,
        };
        let mut expected = Some(events.len().min(MAX_EXPECTED));
        let mut parts: Vec<Part> = Vec::new();
        // The part that takes the next event with this key.
        let mut open: BTreeMap<Option<Arc<str>>, usize> = BTreeMap::new();
        for (index, mut event) in events.into_iter().enumerate() {
            if let Some(key) = &common {
                event.partition_key = Some(key.clone());
            }
            let key = event.partition_key.clone().filter(|_| target == Target::Any);
            let mut begin = |parts: &mut Vec<Part>, key: &Option<Arc<str>>| {
                let mut batch = self.batch();
                if let Some(expected) = expected.take().filter(|_| key.is_none()) {
                    // Events of a batch tend to have the same size.
                    batch.reserve(expected, event.body.len());
                }
                parts.push(Part { key: key.clone(), batch, first: index });
                parts.len() - 1
            };
            let at = match open.get(&key) {
                Some(at) => *at,
                None => begin(&mut parts, &key),
            };
            let (at, pushed) = match parts[at].batch.push(&event) {
                Err(SendError::BatchTooLarge { .. }) if !parts[at].batch.is_empty() => {
                    let at = begin(&mut parts, &key);
                    (at, parts[at].batch.push(&event))
                }
                pushed => (at, pushed),
            };
            // Nothing is queued yet.
            pushed.map_err(|error| ProducerError::new(0, SendCause::Event { index, error: error.into() }))?;
            open.insert(key, at);
        }
        Ok(parts)
    }

    /// Stores the parts in their order. Fails with the first event that is not stored.
    async fn store_parts(&self, target: Target<'_>, parts: Vec<Part>) -> Result<(), ProducerError> {
        let failed = Arc::new(AtomicBool::new(false));
        let mut outcomes = Vec::with_capacity(parts.len());
        for part in parts {
            let (reply, outcome) = oneshot::channel();
            let (earlier, this) = (failed.clone(), failed.clone());
            let wanted = move || !earlier.load(Ordering::Acquire);
            let on_result = move |result: Result<_, SendError>| {
                this.fetch_or(result.is_err(), Ordering::AcqRel);
                reply.send(result.map(|_receipt| ())).ok();
            };
            let (first, to) = (part.first, part.key.clone());
            let to = to.as_deref().map_or(target, Target::Key);
            let queued = self.enqueue_if(to, part.batch, wanted, on_result).await;
            let refused = queued.is_err();
            outcomes.push((first, queued.map(|()| outcome)));
            if refused {
                failed.store(true, Ordering::Release);
                break;
            }
        }
        let mut failure: Option<(usize, SendError)> = None;
        for (first, queued) in outcomes {
            let stored = match queued {
                Ok(outcome) => {
                    outcome.await.unwrap_or_else(|_| Err(SendError::Closed("the hub has ended".into())))
                }
                Err(error) => Err(error),
            };
            let Err(error) = stored else { continue };
            match &mut failure {
                None => failure = Some((first, error)),
                // It only follows from the failure of another part.
                Some((_, known @ SendError::OutOfOrder)) => *known = error,
                Some(_) => {}
            }
        }
        failure.map_or(Ok(()), |(stored, error)| Err(ProducerError::new(stored, cause(error))))
    }
}

impl Producer for HubProducer {
    fn send_batch<'a>(
        &'a self,
        target: Target<'a>,
        events: Vec<NewEvent>,
    ) -> BoxFuture<'a, Result<Sent, ProducerError>> {
        Box::pin(async move {
            let count = events.len();
            let mut parts = self.parts(target, events)?;
            match parts.pop() {
                None => {}
                // The usual case needs no queue of its own.
                Some(only) if parts.is_empty() => {
                    let to = only.key.clone();
                    let to = to.as_deref().map_or(target, Target::Key);
                    let stored = self.send_encoded(to, only.batch).await;
                    stored.map_err(|error| ProducerError::new(0, cause(error)))?;
                }
                Some(last) => {
                    parts.push(last);
                    self.store_parts(target, parts).await?;
                }
            }
            Ok(Sent::new(count))
        })
    }
}

/// The cause of a batch that was not stored.
fn cause(error: SendError) -> SendCause {
    match error {
        SendError::NoSuchPartition { .. } => {
            SourceError::NotFound { what: format!("the partition ({error})") }.into()
        }
        other => SourceError::Unavailable(other.into()).into(),
    }
}
