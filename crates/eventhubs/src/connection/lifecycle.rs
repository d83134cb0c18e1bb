//! The lifecycle of a connection, from the first connection attempt to its end; each step is logged once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ephor_core::failure_policy::Backoff;
use ephor_runtime::environment::{Environment, TokioEnvironment};
use tokio::time::{Instant, sleep_until};

use super::redial::Redial;
use super::traffic::Traffic;
use crate::dial_limit::DialLimit;
use crate::endpoint::{Endpoint, Transport};
use crate::failure_classes::Failure;

/// State that successive connections of one `ReconnectingConnection` share: the endpoint, the counts of what
/// they carried, the rate limit and the backoff.
pub(super) struct ReconnectState {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) traffic: Arc<Traffic>,
    limit: Arc<DialLimit>,
    backoff: Backoff,
    redial: Mutex<Redial>,
    /// The last failed connection got the answer of another protocol.
    was_mismatch: AtomicBool,
}

impl ReconnectState {
    pub(super) fn new(endpoint: Arc<Endpoint>, limit: Arc<DialLimit>, backoff: Backoff) -> Self {
        let redial = Mutex::new(Redial::new(backoff));
        let traffic = Arc::default();
        Self { endpoint, traffic, limit, backoff, redial, was_mismatch: AtomicBool::new(false) }
    }

    fn redial(&self) -> MutexGuard<'_, Redial> {
        self.redial.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lifecycle of one connection.
pub(super) struct Lifecycle {
    pub(super) reconnect: Arc<ReconnectState>,
    /// The time of the hub's `open`.
    opened: OnceLock<Instant>,
    ended: OnceLock<End>,
}

struct End {
    failure: Failure,
    /// The number of dials in a row that the hub did not answer, including this one.
    unanswered: u32,
}

impl Lifecycle {
    pub(super) fn new(reconnect: Arc<ReconnectState>) -> Self {
        Self { reconnect, opened: OnceLock::new(), ended: OnceLock::new() }
    }

    /// Waits until the backoff allows a dial.
    pub(super) async fn until_due(&self) {
        let not_before = self.reconnect.redial().not_before();
        if let Some(at) = not_before {
            sleep_until(at).await;
        }
    }

    /// Dials, within the rate limit of the address.
    pub(super) async fn dial(&self) -> Result<Box<dyn Transport>, Failure> {
        let dialled =
            self.reconnect.limit.dial(&self.reconnect.backoff, self.reconnect.endpoint.dial()).await;
        dialled.map_err(|failure| self.confirm_mismatch(failure))
    }

    /// Treats the first protocol mismatch as transient, because it may come from a proxy that is about to go;
    /// the second in a row is final.
    pub(super) fn confirm_mismatch(&self, failure: Failure) -> Failure {
        let mismatch = matches!(failure, Failure::Misconfigured(_));
        let was_mismatch = self.reconnect.was_mismatch.swap(mismatch, Ordering::Relaxed);
        match failure {
            Failure::Misconfigured(why) if !was_mismatch => Failure::Lost(why),
            failure => failure,
        }
    }

    /// The hub sent `open`, with the id of its container.
    pub(super) fn opened(&self, container: &str) {
        let now = Instant::now();
        if self.opened.set(now).is_err() {
            return;
        }
        self.reconnect.was_mismatch.store(false, Ordering::Relaxed);
        let Endpoint { namespace, hub, .. } = &*self.reconnect.endpoint;
        match self.reconnect.redial().opened(now) {
            None => tracing::info!(%namespace, %hub, container, "connected"),
            Some(outage) => {
                let (after, failed_dials) = (outage.length, outage.dials);
                tracing::info!(%namespace, %hub, container, ?after, failed_dials, "reconnected");
            }
        }
    }

    pub(super) fn was_opened(&self) -> bool {
        self.opened.get().is_some()
    }

    /// The connection has ended. Only the first reason counts. From now on a new connection is made.
    pub(super) fn end(&self, failure: &Failure) {
        self.ended.get_or_init(|| {
            let opened = self.opened.get().copied();
            let chance = TokioEnvironment.random();
            let ended = self.reconnect.redial().ended(Instant::now(), opened, chance);
            let Endpoint { namespace, hub, .. } = &*self.reconnect.endpoint;
            match (opened, ended.first) {
                (Some(_), _) => tracing::warn!(%namespace, %hub, reason = %failure, "connection lost"),
                (None, true) => {
                    tracing::warn!(%namespace, %hub, reason = %failure, "cannot connect to the hub; retrying")
                }
                (None, false) => {
                    tracing::debug!(%namespace, %hub, reason = %failure, "still cannot connect to the hub")
                }
            }
            End { failure: failure.clone(), unanswered: ended.unanswered }
        });
    }

    /// The connection was closed because nobody uses it any more.
    pub(super) fn end_unused(&self, failure: &Failure) {
        self.ended.get_or_init(|| {
            let Endpoint { namespace, hub, .. } = &*self.reconnect.endpoint;
            tracing::debug!(%namespace, %hub, "connection closed");
            End { failure: failure.clone(), unanswered: 0 }
        });
    }

    /// The reason for the end, if the connection has ended.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.ended.get().map(|end| &end.failure)
    }

    /// The number of dials in a row that the hub did not answer, up to the end of this connection.
    pub(super) fn unanswered(&self) -> u32 {
        self.ended.get().map_or(0, |end| end.unanswered)
    }
}
