//! Authentication of a peer, for both directions: limits before and after its first valid token, and expiry
//! of tokens. Also the connection's timer, which runs this and the other periodic checks.
//!
//! ```text
//! unauthenticated ─ a valid token ─► admitted ─ the last one expired ─► unauthenticated
//!        └─ no link for a while, or all of them together cost too much ─► closed
//! ```
//!
//! An unauthenticated peer gets the resources that it takes to put a token, and not much more
//! ([`unauthenticated_limits`]), except for sessions: SDKs begin one for each partition before their first
//! token. What all unauthenticated peers cost together is limited by the admission.

use ephor_amqp::limits::Limits;
use ephor_amqp::performative::{Error, Open, SaslInit, condition};
use ephor_core::time::Monotonic;
use ephor_wire::condition::error_texts as texts;
use ephor_wire::management::OUR_PRODUCT;
use ephor_wire::sas::Claims;
use tokio::io::{AsyncRead, AsyncWrite};

use super::link::Link;
use super::{CHECK_INTERVAL, ConnectionTask};
use crate::access::Moment;
use crate::admission::Stage;
use crate::config::{GatewayLimits, MAX_LINKS_UNAUTHENTICATED};
use crate::error_mapping::amqp_error;
use crate::quirks::acknowledgement_delay;

/// The largest event that any hub can be configured to take, and the envelope.
const MAX_MESSAGE_BYTES: u64 = ephor_hub::config::MAX_MAX_EVENT_BYTES + (64 << 10);

/// The largest request; a token is much smaller.
pub(super) const MAX_REQUEST_BYTES: u64 = 64 << 10;

/// Links of an unauthenticated peer: several times what `$cbs` needs.
pub(super) const MAX_ACCEPTED_LINKS_UNAUTHENTICATED: usize = 16;

/// Bytes of requests that an unauthenticated peer may send before they are settled.
const MAX_BYTES_IN_FLIGHT_UNAUTHENTICATED: usize = 64 << 10;

/// Memory usage is checked again after this many bytes of incomplete deliveries.
const NOTICE_BYTES: usize = 64 << 10;

/// The limits of an authenticated peer.
pub(super) fn authenticated_limits(limits: &GatewayLimits) -> Limits {
    Limits {
        time_to_open: limits.time_to_open,
        time_to_read: limits.time_to_read,
        time_to_finish: limits.time_to_finish,
        links: limits.links,
        message: MAX_MESSAGE_BYTES,
        incomplete: (MAX_MESSAGE_BYTES as usize).max(limits.bytes_in_flight),
        incomplete_notice: NOTICE_BYTES,
        channel_max: 4999,
        sessions: 5000,
        ..Limits::default()
    }
}

/// The limits of an unauthenticated peer. Those that peers are told (in `open`) are the same for all.
pub(super) fn unauthenticated_limits(limits: &GatewayLimits) -> Limits {
    Limits {
        links: MAX_LINKS_UNAUTHENTICATED.min(limits.links),
        message: MAX_REQUEST_BYTES,
        incomplete: MAX_REQUEST_BYTES as usize,
        read: 8 << 10,
        output: 16 << 10,
        output_to_pause_reading: 64 << 10,
        ..authenticated_limits(limits)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    pub(super) fn on_sasl(&mut self, init: &SaslInit) {
        self.ticket.advance(Stage::Greeted);
        let accepted = match &init.initial_response {
            Some(response) if init.mechanism == "PLAIN" => self.access.plain(response.expose()),
            None if init.mechanism == "PLAIN" => false,
            // Other mechanisms carry no key; tokens come later.
            _ => true,
        };
        if !accepted
            && let Some(suppressed) = self.shared.log_limits.keys.allow(self.shared.environment.now())
        {
            tracing::info!(peer = %self.peer, suppressed, "SASL PLAIN rejected: unknown key name or wrong key");
        }
        self.driver.connection().authenticated(accepted);
    }

    pub(super) fn on_opened(&mut self, open: &Open) {
        self.ticket.advance(Stage::Opened);
        let text = |name| open.properties.as_ref().and_then(|properties| properties.get(name)?.text());
        let product = text("product");
        self.acknowledgement_delay = acknowledgement_delay(product);
        self.is_our_client = product == Some(OUR_PRODUCT);
        tracing::debug!(peer = %self.peer, product, version = text("version"), "connection opened");
        self.admit_if_authenticated();
    }

    /// Admits the connection once it is authenticated, or closes it if there are too many.
    pub(super) fn admit_if_authenticated(&mut self) {
        self.timer_is_stale = true;
        if self.ticket.is_admitted() || !self.access.is_authenticated(self.moment()) {
            return;
        }
        match self.ticket.admit() {
            Ok(()) => {
                self.renew_by = None;
                let limits = authenticated_limits(&self.shared.limits);
                self.driver.connection().set_limits(limits);
            }
            Err(full) => {
                let text = format!("The server has reached its limit of {} connections.", full.0);
                if let Some(suppressed) =
                    self.shared.log_limits.connection_limit.allow(self.shared.environment.now())
                {
                    tracing::warn!(peer = %self.peer, connections = full.0, suppressed, "connection limit reached");
                }
                self.driver.connection().close(Some(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text)));
            }
        }
    }

    /// Makes a peer without a valid token unauthenticated again.
    fn dismiss_if_expired(&mut self, at: Moment) {
        if !self.ticket.is_admitted() || self.access.is_authenticated(at) {
            return;
        }
        tracing::debug!(peer = %self.peer, tracking = self.tracking, "the last token expired");
        self.ticket.dismiss();
        self.attach_by = self.shared.environment.now() + self.shared.limits.time_without_links;
        self.renew_by = Some(self.attach_by);
        let limits = unauthenticated_limits(&self.shared.limits);
        self.driver.connection().set_limits(limits);
    }

    /// True while a peer whose last token expired has time to put a new one: a busy client has more than an
    /// unauthenticated peer may have.
    pub(super) fn may_still_renew(&self) -> bool {
        self.renew_by.is_some_and(|renew_by| self.shared.environment.now() < renew_by)
    }

    /// The error for a connection that is closed because it has no valid token and others need the room.
    pub(super) fn error_of_eviction(&self) -> Error {
        if self.renew_by.is_some() {
            let text = "The last token of this connection expired, and no new one was put in time. Reconnect with a new token.";
            // Every client reconnects after this condition.
            return Error::new(condition::CONNECTION_FORCED, text);
        }
        let text = "This connection has no valid token, and connections without one use all that they may together, or this \
                    one uses more than one of them may. Put a valid token before anything else.";
        Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text)
    }

    /// The number of bytes in flight to the disk at which nothing more is read.
    pub(super) fn max_bytes_in_flight(&self) -> usize {
        let max = self.shared.limits.bytes_in_flight;
        if self.ticket.is_admitted() { max } else { max.min(MAX_BYTES_IN_FLIGHT_UNAUTHENTICATED) }
    }

    pub(super) fn set_timer(&mut self) {
        let clock = &self.shared.environment;
        let now = clock.now();
        // The wall clock may be set at any time, so it is checked now and then.
        let expiry = self.access.next_expiry(self.moment()).map(|at| at.min(now + CHECK_INTERVAL));
        let without_links = (!self.ticket.is_admitted()).then_some(self.attach_by);
        let of_a_hub = |link: &Link| matches!(link, Link::Receiver(_) | Link::Sender(_));
        let check = self.links.values().any(of_a_hub).then(|| now + CHECK_INTERVAL);
        let wanted = [expiry, without_links, check, self.answers_due()].into_iter().flatten().min();
        match (wanted, &self.timer) {
            (None, _) => self.timer = None,
            // An early timer does no harm: it checks, and is set again.
            (Some(wanted), Some((set, _))) if *set <= wanted => {}
            (Some(wanted), _) => self.timer = Some((wanted, clock.sleep_until(wanted))),
        }
    }

    /// True if an unauthenticated peer has had no link for `time_without_links`. One that has a link may be a
    /// client that retries with a wrong key, or that authenticates each request to `$management` by itself.
    fn is_without_links_for_too_long(&mut self) -> bool {
        let now = self.shared.environment.now();
        if self.ticket.is_admitted() || now < self.attach_by {
            return false;
        }
        if self.links.is_empty() {
            return true;
        }
        self.attach_by = now + self.shared.limits.time_without_links;
        false
    }

    /// Detaches links whose tokens expired or whose hub is gone, and reports receivers that hold unsent
    /// events as alive.
    pub(super) fn on_time(&mut self) {
        self.timer = None;
        self.timer_is_stale = true;
        if self.is_without_links_for_too_long() {
            let milliseconds = self.shared.limits.time_without_links.as_millis();
            let refusal = texts::idle_connection(u64::try_from(milliseconds).unwrap_or(u64::MAX));
            self.attach_by = Monotonic::NEVER;
            self.driver.connection().close(Some(amqp_error(&refusal)));
            return;
        }
        self.give_up_late_answers();
        let at = self.moment();
        let mut over = Vec::new();
        for (id, link) in &mut self.links {
            let (needed, address, grant) = match link {
                Link::Sender(sender) => (Claims::SEND, &sender.address, &mut sender.grant),
                Link::Receiver(receiver) => {
                    receiver.report_alive();
                    (Claims::LISTEN, &receiver.address, &mut receiver.grant)
                }
                // Links that are not answered yet are checked when they are.
                Link::Request(_) | Link::Reply(_) | Link::PendingSender(_) => continue,
            };
            match self.access.check(needed, address, *grant, self.shared.namespace.name(), at) {
                Ok(found) => *grant = found,
                Err(refusal) => over.push((*id, refusal)),
            }
        }
        for (link, refusal) in over {
            self.detach(link, refusal);
        }
        self.detach_senders_to_deleted_hubs();
        self.access.forget_expired(at);
        self.dismiss_if_expired(at);
    }
}
