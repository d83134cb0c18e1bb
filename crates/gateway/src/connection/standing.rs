//! Authentication of a peer, for both directions: limits before and after its first valid token, and expiry of tokens.
//!
//! ```text
//! unauthenticated ─ a valid token ─► admitted ─ the last one expired ─► unauthenticated ─ none in time ─► closed
//! ```
//!
//! An unauthenticated peer (`stranger`) gets the resources that it takes to put a token, and not much more:
//! all of them together can make the gateway buffer at most their number times [`of_a_stranger`].

use ephor_amqp::limits::Limits;
use ephor_amqp::performative::{Error, Open, SaslInit, condition};
use ephor_core::time::Monotonic;
use ephor_wire::sas::Claims;
use tokio::io::{AsyncRead, AsyncWrite};

use super::link::Link;
use super::{Conversation, LOOK_AFTER};
use crate::access::Moment;
use crate::admission::Stage;
use crate::config::{GatewayLimits, MAX_LINKS_UNAUTHENTICATED, MAX_SESSIONS_UNAUTHENTICATED};
use crate::quirks::acknowledgement_delay;

/// The largest event that any hub can be configured to take, and the envelope.
const LARGEST_MESSAGE: u64 = ephor_hub::config::MAX_MAX_EVENT_BYTES + (64 << 10);

/// The largest request; a token is much smaller.
pub(super) const LARGEST_REQUEST: u64 = 64 << 10;

/// Links of an unauthenticated peer: several times what `$cbs` needs.
pub(super) const LINKS_OF_A_STRANGER: usize = 16;

/// Bytes of requests that an unauthenticated peer may send before they are settled.
const BYTES_OF_A_STRANGER: usize = 64 << 10;

/// Memory usage is checked again after this many bytes of incomplete deliveries.
const NOTICED_BYTES: usize = 64 << 10;

/// The limits of an authenticated peer.
pub(super) fn of_a_friend(limits: &GatewayLimits) -> Limits {
    Limits {
        time_to_open: limits.time_to_open,
        time_to_read: limits.time_to_read,
        time_to_finish: limits.time_to_finish,
        links: limits.links,
        message: LARGEST_MESSAGE,
        incomplete: (LARGEST_MESSAGE as usize).max(limits.bytes_in_flight),
        incomplete_notice: NOTICED_BYTES,
        channel_max: 4999,
        sessions: 5000,
        ..Limits::default()
    }
}

/// The limits of an unauthenticated peer. Those that peers are told (in `open`) are the same for all.
pub(super) fn of_a_stranger(limits: &GatewayLimits) -> Limits {
    Limits {
        sessions: MAX_SESSIONS_UNAUTHENTICATED,
        links: MAX_LINKS_UNAUTHENTICATED.min(limits.links),
        message: LARGEST_REQUEST,
        incomplete: LARGEST_REQUEST as usize,
        read: 8 << 10,
        output: 16 << 10,
        output_when_deaf: 64 << 10,
        ..of_a_friend(limits)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    pub(super) fn on_sasl(&mut self, init: &SaslInit) {
        self.ticket.advance(Stage::Greeted);
        let welcome = match &init.initial_response {
            Some(response) if init.mechanism == "PLAIN" => self.access.plain(response.expose()),
            None if init.mechanism == "PLAIN" => false,
            // Other mechanisms carry no key; tokens come later.
            _ => true,
        };
        if !welcome && let Some(muffled) = self.shared.noise.keys.hear(self.shared.environment.now()) {
            tracing::info!(peer = %self.peer, muffled, "a name and a key that do not count here");
        }
        self.driver.connection().authenticated(welcome);
    }

    pub(super) fn on_opened(&mut self, open: &Open) {
        self.ticket.advance(Stage::Opened);
        let text = |name| open.properties.as_ref().and_then(|properties| properties.get(name)?.text());
        let product = text("product");
        self.acknowledgement_delay = acknowledgement_delay(product);
        tracing::debug!(peer = %self.peer, product, version = text("version"), "a connection was opened");
        self.admit_if_authenticated();
    }

    /// Admits the connection once it is authenticated, or closes it if there are too many.
    pub(super) fn admit_if_authenticated(&mut self) {
        self.look_at_timer = true;
        if self.ticket.is_admitted() || !self.access.is_authenticated(self.moment()) {
            return;
        }
        match self.ticket.admit() {
            Ok(()) => {
                let limits = of_a_friend(&self.shared.limits);
                self.driver.connection().set_limits(limits);
            }
            Err(full) => {
                let text =
                    format!("There are {} connections already, which is as many as are allowed.", full.0);
                if let Some(muffled) = self.shared.noise.too_many.hear(self.shared.environment.now()) {
                    tracing::warn!(peer = %self.peer, connections = full.0, muffled, "a connection too many");
                }
                self.driver.connection().close(Some(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text)));
            }
        }
    }

    /// Makes a peer without a valid token unauthenticated again. It has as long as a new one to put another
    /// token.
    fn dismiss_if_expired(&mut self, at: Moment) {
        if !self.ticket.is_admitted() || self.access.is_authenticated(at) {
            return;
        }
        tracing::debug!(peer = %self.peer, tracking = self.tracking, "the last token ran out");
        self.ticket.dismiss();
        self.authorize_by = self.shared.environment.now() + self.shared.limits.time_to_authorize;
        let limits = of_a_stranger(&self.shared.limits);
        self.driver.connection().set_limits(limits);
    }

    /// The number of bytes in flight to the disk at which nothing more is read.
    pub(super) fn may_be_in_flight(&self) -> usize {
        let most = self.shared.limits.bytes_in_flight;
        if self.ticket.is_admitted() { most } else { most.min(BYTES_OF_A_STRANGER) }
    }

    pub(super) fn set_timer(&mut self) {
        let clock = &self.shared.environment;
        let now = clock.now();
        // The wall clock may be set at any time, so it is checked now and then.
        let expiry = self.access.next_expiry(self.moment()).map(|at| at.min(now + LOOK_AFTER));
        let authorize = (!self.ticket.is_admitted()).then_some(self.authorize_by);
        let of_a_hub = |link: &Link| matches!(link, Link::Receiver(_) | Link::Sender(_));
        let look = self.links.values().any(of_a_hub).then(|| now + LOOK_AFTER);
        let wanted = [expiry, authorize, look, self.answers_due()].into_iter().flatten().min();
        match (wanted, &self.timer) {
            (None, _) => self.timer = None,
            // An early timer does no harm: it checks, and is set again.
            (Some(wanted), Some((set, _))) if *set <= wanted => {}
            (Some(wanted), _) => self.timer = Some((wanted, clock.sleep_until(wanted))),
        }
    }

    /// Detaches links whose tokens expired or whose hub is gone, and reports receivers that hold unsent
    /// events as alive.
    pub(super) fn on_time(&mut self) {
        self.timer = None;
        self.look_at_timer = true;
        if !self.ticket.is_admitted() && self.shared.environment.now() >= self.authorize_by {
            let text = "No token that counts was put in time.";
            self.authorize_by = Monotonic::NEVER;
            self.driver.connection().close(Some(Error::new(condition::UNAUTHORIZED_ACCESS, text)));
            return;
        }
        self.give_up_late_answers();
        let at = self.moment();
        let mut over = Vec::new();
        for (id, link) in &mut self.links {
            let (needed, address, cover) = match link {
                Link::Sender(sender) => (Claims::SEND, &sender.address, &mut sender.cover),
                Link::Receiver(receiver) => {
                    receiver.heard();
                    (Claims::LISTEN, &receiver.address, &mut receiver.cover)
                }
                // Links that are not answered yet are checked when they are.
                Link::Request(_) | Link::Reply(_) | Link::Awaiting(_) => continue,
            };
            match self.access.check(needed, address, *cover, self.shared.namespace.name(), at) {
                Ok(found) => *cover = found,
                Err(refusal) => over.push((*id, refusal)),
            }
        }
        for (link, refusal) in over {
            self.detach(link, refusal);
        }
        self.detach_senders_to_nowhere();
        self.access.forget_expired(at);
        self.dismiss_if_expired(at);
    }
}
