//! Receiver links of a connection: they carry events from the hub to the client.

use bytes::Bytes;
use ephor_amqp::connection::LinkId;
use ephor_amqp::performative::{Attach, Error, ReceiverSettles, SenderSettles, Target, condition};
use ephor_amqp::{Encoded, Value};
use ephor_wire::names::{EPOCH, RECEIVER_NAME, RUNTIME_METRICS};

use super::sessions::Kind;
use super::task::{Owner, Task};
use super::tokens::Waiter;
use super::{LinkKey, ReceiverSpec};
use crate::delivery_queue::DeliveryQueueWriter;
use crate::failure_classes::Failure;

/// The state of a receiver link, from the command to its end.
pub(super) struct ReceiverLink {
    spec: ReceiverSpec,
    audience: String,
    pub(super) queue: DeliveryQueueWriter,
    /// None until the token is accepted.
    link: Option<LinkId>,
}

impl Task {
    pub(super) fn open_receiver(&mut self, key: LinkKey, spec: ReceiverSpec, queue: DeliveryQueueWriter) {
        if queue.is_abandoned() {
            return;
        }
        let audience = spec.address.audience(self.endpoint.namespace.as_str());
        self.receivers.insert(key, ReceiverLink { spec, audience: audience.clone(), queue, link: None });
        self.authorize(audience, Waiter::Receiver(key));
    }

    pub(super) fn attach_receiver(&mut self, key: LinkKey) {
        let Some(receiver) = self.receivers.get_mut(&key) else { return };
        let attach = attach(&receiver.spec, key, &self.endpoint.container);
        let connection = self.driver.connection();
        let session = self.sessions.assign(connection, Kind::Receivers, 1);
        let link = session.and_then(|session| Some((session, connection.attach(session, attach)?)));
        match link {
            Some((session, link)) => {
                receiver.link = Some(link);
                self.links.insert(link, (Owner::Receiver(key), session));
            }
            None => {
                if let Some(session) = session {
                    self.sessions.link_ended(session);
                }
                let failure = Failure::lost("the hub allows no more links on this connection");
                self.end_receiver(key, failure);
            }
        }
    }

    pub(super) fn on_receiver_attached(&mut self, key: LinkKey) {
        if let Some(receiver) = self.receivers.get(&key) {
            // The receiver asks for events when it has checked which log it reads.
            receiver.queue.opened();
        }
    }

    pub(super) fn on_event_delivered(&mut self, key: LinkKey, payload: Bytes) {
        let Some(receiver) = self.receivers.get(&key) else { return };
        match receiver.queue.push(payload) {
            Ok(()) => drop(self.fresh.insert(key)),
            Err(overdrawn) => {
                let error = Error::new(condition::TRANSFER_LIMIT_EXCEEDED, overdrawn.to_string());
                if let Some(link) = receiver.link {
                    self.connection().detach(link, Some(error));
                }
                self.end_receiver(key, Failure::lost(overdrawn.to_string()));
            }
        }
    }

    /// Grants the credit for which there is room.
    pub(super) fn refill(&mut self, key: LinkKey) {
        let Some(receiver) = self.receivers.get(&key) else { return };
        let Some(link) = receiver.link else { return };
        let connection = self.driver.connection();
        if let Some(credit) = receiver.queue.grant(connection.credit(link)) {
            connection.grant(link, credit);
        }
    }

    /// Closes a receiver that is no longer wanted. It ends when the hub confirms, so that callers that wait
    /// for the end know that the hub has released it.
    pub(super) fn close_receiver(&mut self, key: LinkKey) {
        let Some(receiver) = self.receivers.get(&key) else { return };
        match receiver.link {
            Some(link) => self.connection().detach(link, None),
            None => self.end_receiver(key, Failure::lost("closed before it was open")),
        }
    }

    pub(super) fn end_receiver(&mut self, key: LinkKey, failure: Failure) {
        if let Some(receiver) = self.receivers.remove(&key) {
            self.unauthorize(&receiver.audience);
            self.renew_if_unauthorized(&receiver.audience, &failure);
            receiver.queue.end(failure);
        }
    }
}

fn attach(spec: &ReceiverSpec, key: LinkKey, container: &str) -> Attach {
    let mut attach = Attach::receiver(format!("{container}-{}", key.0), spec.address.to_string());
    // Deliveries are pre-settled: the receiver tracks what it has returned, and asks again for the rest after
    // a reconnect.
    attach.sender_settles = Some(SenderSettles::Settled);
    attach.receiver_settles = Some(ReceiverSettles::First);
    let mut filter = Vec::new();
    spec.start.write_filter(&mut filter);
    if let Some(source) = &mut attach.source {
        source.filter = Encoded::copy(&filter).ok();
    }
    attach.target = Some(Target::to(container));
    let name = (!spec.name.is_empty()).then_some((RECEIVER_NAME, Value::String(&spec.name)));
    let epoch = spec.epoch.map(|epoch| (EPOCH, Value::Long(i64::try_from(epoch.get()).unwrap_or(i64::MAX))));
    if name.is_some() || epoch.is_some() {
        attach.properties = Some(Encoded::map(name.into_iter().chain(epoch)));
    }
    attach.desired_capabilities = Some(Encoded::symbols([RUNTIME_METRICS]));
    attach
}
