//! Inbound (peer → hub): hands the peer's deliveries to the hub, and settles them when they are stored.
//!
//! A delivery is decoded, copied into a batch and handed to the hub before the next one is; it is settled
//! when the hub has answered. Many may wait for the disk at once. They are settled in the order in which they
//! came, so that adjacent ones share one disposition.

use ephor_amqp::connection::{Delivery, Event, LinkId};
use ephor_amqp::performative::Outcome;
use ephor_core::BoxFuture;
use ephor_core::time::Monotonic;
use ephor_hub::{Batch, HubProducer, Receipt, SendError, Target};
use ephor_wire::batch::{Envelope, InvalidKeyType, MESSAGE_FORMAT, partition_key};
use ephor_wire::condition::{Condition, Refusal};
use tokio::io::{AsyncRead, AsyncWrite};

use super::ConnectionTask;
use super::attach::SENDER_CREDIT;
use super::link::{Link, NumberedLink, SenderLink};
use super::requests::Reply;
use crate::error_mapping::send_refusal;
use crate::idempotence::{Claimed, Fingerprint, number_of};

/// The approximate size of a delivery beside its payload, so that many small ones count as well.
pub(super) const DELIVERY_OVERHEAD: usize = 1 << 10;

/// The outcome of a delivery.
pub(super) struct Done {
    pub(super) link: LinkId,
    /// Its id, unless the peer sent it settled.
    pub(super) delivery: Option<u32>,
    pub(super) outcome: Result<(), Refusal>,
    /// The bytes that it counted as in flight.
    pub(super) bytes: usize,
    /// The answer, if the delivery was a request.
    pub(super) reply: Option<Reply>,
}

/// A decoded delivery.
struct Prepared {
    batch: Batch,
    key: Option<String>,
    /// The number of the first event, if the producer is idempotent.
    first: Option<i32>,
    /// The fingerprint of its events, if the producer is idempotent.
    fingerprint: Fingerprint,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    pub(super) fn on_delivery(&mut self, delivery: Delivery) {
        let not_before = self.shared.environment.now() + self.acknowledgement_delay;
        match self.links.get(&delivery.link) {
            Some(Link::Sender(sender)) => {
                let prepared = prepare(sender, &delivery);
                let bytes = memory_of(&delivery, &prepared);
                let send = send(sender, delivery.id, prepared);
                let (link, id) = (delivery.link, (!delivery.settled).then_some(delivery.id));
                self.bytes_in_flight += bytes;
                let pause = self.pause(not_before);
                self.sends.push_back(Box::pin(async move {
                    let outcome = send.await;
                    if let Some(pause) = pause {
                        pause.await;
                    }
                    Done { link, delivery: id, outcome, bytes, reply: None }
                }));
            }
            Some(Link::Request(_)) => self.on_request(&delivery, not_before),
            _ => {}
        }
    }

    /// The delay before an outcome may be sent; see `quirks`.
    pub(super) fn pause(&self, not_before: Monotonic) -> Option<BoxFuture<'static, ()>> {
        let delayed = !self.acknowledgement_delay.is_zero();
        delayed.then(|| self.shared.environment.sleep_until(not_before))
    }

    /// The delay before the reply to `detach` is flushed; see `quirks`. The reply is written already, and
    /// goes out when the next event is polled.
    pub(super) fn pause_after(&self, event: &Event) -> Option<BoxFuture<'static, ()>> {
        let not_before = self.shared.environment.now() + self.acknowledgement_delay;
        matches!(event, Event::Detached { .. }).then(|| self.pause(not_before)).flatten()
    }

    pub(super) fn on_done(&mut self, done: Done) {
        let Done { link, delivery, outcome, bytes, reply } = done;
        self.bytes_in_flight = self.bytes_in_flight.saturating_sub(bytes);
        let ending = outcome.as_ref().err().and_then(|refusal| self.detach_reason_after(link, refusal));
        match (ending.clone().map_or(outcome, Err), delivery) {
            (Ok(()), Some(delivery)) => {
                self.driver.connection().settle(link, delivery, delivery, &Outcome::Accepted);
            }
            (Err(refusal), Some(delivery)) => self.reject(link, delivery, refusal),
            (Err(refusal), None) => {
                let tracking = self.tracking.as_str();
                tracing::debug!(peer = %self.peer, tracking, %refusal, "settled delivery rejected");
            }
            (Ok(()), None) => {}
        }
        if let Some(ending) = ending {
            return self.detach(link, ending);
        }
        if let Some(reply) = reply {
            return self.reply(reply);
        }
        if matches!(self.links.get(&link), Some(Link::Sender(_)))
            && self.driver.connection().credit(link) < SENDER_CREDIT / 2
        {
            self.driver.connection().grant(link, SENDER_CREDIT);
        }
    }

    /// Rejects a delivery, with tracking id, entity and time in the text.
    pub(super) fn reject(&mut self, link: LinkId, delivery: u32, refusal: Refusal) {
        let error = self.error(refusal, self.links.get(&link).and_then(Link::address));
        tracing::debug!(peer = %self.peer, tracking = self.tracking, %error, "delivery rejected");
        self.driver.connection().settle(link, delivery, delivery, &Outcome::rejected(error));
    }
}

/// The memory that a delivery takes until it is stored or refused.
fn memory_of(delivery: &Delivery, prepared: &Result<Prepared, Refusal>) -> usize {
    let batch = prepared.as_ref().map_or(0, |prepared| prepared.batch.memory());
    delivery.payload.len().max(batch) + DELIVERY_OVERHEAD
}

/// Hands a decoded delivery to the hub.
fn send(
    sender: &SenderLink,
    id: u32,
    prepared: Result<Prepared, Refusal>,
) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
    let (partition, producer) = (sender.partition, sender.producer.clone());
    let numbered = sender.numbered.clone();
    async move {
        let Prepared { batch, key, first, fingerprint } = prepared?;
        let target = match (partition, &key) {
            (Some(partition), _) => Target::Partition(partition),
            (None, Some(key)) => Target::Key(key),
            (None, None) => Target::Any,
        };
        let Some((numbered, first)) = numbered.zip(first) else {
            let sent = producer.send_encoded(target, batch).await;
            return sent.map(drop).map_err(|error| send_refusal(&error, id));
        };
        let numbers = (first, fingerprint);
        send_numbered(&numbered, numbers, &producer, target, batch, id).await
    }
}

/// Hands a delivery of an idempotent producer to the hub. If another delivery has brought its numbers, waits
/// for that one and returns its outcome.
async fn send_numbered(
    numbered: &NumberedLink,
    (first, fingerprint): (i32, Fingerprint),
    producer: &HubProducer,
    target: Target<'_>,
    batch: Batch,
    delivery: u32,
) -> Result<(), Refusal> {
    let refused = |error| send_refusal(&error, delivery);
    let turn = numbered.turn.lock().await;
    let claim = loop {
        match numbered.producer.claim(numbered.epoch, first, batch.len(), fingerprint)? {
            Claimed::New(claim) => break claim,
            Claimed::Stored => return Ok(()),
            Claimed::Pending(commit) => {
                // If the other one was dropped before the hub had it, the numbers are claimed again.
                if let Some(Err(error)) = commit.settled().await {
                    return Err(refused(error));
                }
            }
        }
    };
    let commit = claim.commit();
    let may_be_stored = claim.may_be_stored();
    let settle = move |sent: Result<Receipt, SendError>| claim.settle(sent.map(drop));
    producer.enqueue_if(target, batch, may_be_stored, settle).await.map_err(refused)?;
    drop(turn);
    let lost = || SendError::Closed("the hub was closed before the event was stored".into());
    let stored = commit.settled().await.unwrap_or_else(|| Err(lost()));
    if stored.is_err() {
        numbered.producer.refuse_older(numbered.epoch)?;
    }
    stored.map_err(refused)
}

/// Decodes a delivery. Each event is kept byte for byte, as far as the specification allows (`amqp::validate`).
fn prepare(sender: &SenderLink, delivery: &Delivery) -> Result<Prepared, Refusal> {
    if sender.needs_partition {
        let text = "An idempotent producer numbers its events for one partition: attach the link to hub/Partitions/id.";
        return Err(Refusal::new(Condition::NotAllowed, text));
    }
    let message = &delivery.payload[..];
    let mut batch = sender.producer.batch();
    let counts = sender.numbered.is_some();
    let first = |event| if counts { number_of(event).map_err(|error| bad(error.into())) } else { Ok(None) };
    let fingerprint = |event| match counts {
        true => Fingerprint::of(event).map_err(|error| bad(error.into())),
        false => Ok(Fingerprint::EMPTY),
    };
    if delivery.format != MESSAGE_FORMAT {
        let key = partition_key(message).map_err(bad)?;
        batch.push_message(key, message).map_err(|error| send_refusal(&error, delivery.id))?;
        let (first, fingerprint) = (first(message)?, fingerprint(message)?);
        return Ok(Prepared { batch, key: key.map(str::to_owned), first, fingerprint });
    }
    let envelope = Envelope::open(message).map_err(bad)?;
    let key = envelope.routing_key().map_err(bad)?.map(str::to_owned);
    let (mut number, mut fingerprints) = (None, Fingerprint::EMPTY);
    for event in envelope.events() {
        if batch.is_empty() {
            number = first(event)?;
        }
        let key = envelope.key_of(event).map_err(bad)?;
        batch.push_message(key, event).map_err(|error| send_refusal(&error, delivery.id))?;
        fingerprints = fingerprints.then(fingerprint(event)?);
    }
    Ok(Prepared { batch, key, first: number, fingerprint: fingerprints })
}

fn bad(error: InvalidKeyType) -> Refusal {
    Refusal::new(Condition::ArgumentError, format!("The message cannot be stored: {error}."))
}
