//! What has been put on `$cbs`, and when it is to be renewed.
//!
//! ```text
//!   wanted ─► Fetching ─token─► Putting ─202─► valid ──── three quarters of its life ───► Fetching …
//!                 └───── no ───────┴─ no ─► whoever waits is told; a renewal is tried again
//! ```
//!
//! Each link has an audience of its own, as the SDKs have it. A token whose link is gone is not renewed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ephor::environment::SystemClock;
use ephor_core::BoxFuture;
use ephor_core::time::Clock;
use ephor_wire::cbs::PutToken;
use ephor_wire::management::Query;
use futures_util::stream::FuturesUnordered;
use secrecy::ExposeSecret;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::Key;
use super::requests::{PairName, Purpose};
use super::task::Task;
use crate::credential::{Token, TokenError};
use crate::failure::Failure;

/// A renewal that failed is tried again after this, or sooner if less is left.
const RENEW_AGAIN: Duration = Duration::from_secs(30);

/// No renewal comes sooner after another.
const LEAST_BETWEEN: Duration = Duration::from_millis(250);

/// Who waits for a token.
pub(super) enum Waiter {
    Receiver(Key),
    Sender(Key),
    Ask(Query, oneshot::Sender<Result<bytes::Bytes, Failure>>),
}

#[derive(Default)]
struct Audience {
    /// Links and requests that need it.
    users: usize,
    /// The newest token; what the hub accepted, if any was.
    token: Option<Token>,
    valid: bool,
    /// A token is being fetched or put.
    busy: bool,
    renew_at: Option<Instant>,
    waiting: Vec<Waiter>,
}

type Fetched = (String, Result<Token, TokenError>);

#[derive(Default)]
pub(super) struct Tokens {
    audiences: BTreeMap<String, Audience>,
    pub(super) fetching: FuturesUnordered<BoxFuture<'static, Fetched>>,
    renewals: BTreeSet<(Instant, String)>,
}

impl Tokens {
    pub(super) fn next_renewal(&self) -> Option<Instant> {
        self.renewals.first().map(|(at, _)| *at)
    }

    /// Sees to it that a token is looked after at this time, and at no other: renewed, or asked about if it is on
    /// its way.
    fn schedule(&mut self, audience: &str, at: Instant) {
        self.unschedule(audience);
        if let Some(found) = self.audiences.get_mut(audience) {
            found.renew_at = Some(at);
            self.renewals.insert((at, audience.to_owned()));
        }
    }

    fn unschedule(&mut self, audience: &str) {
        let found = self.audiences.get_mut(audience);
        if let Some(at) = found.and_then(|found| found.renew_at.take()) {
            self.renewals.remove(&(at, audience.to_owned()));
        }
    }

    fn forget(&mut self, audience: &str) {
        self.unschedule(audience);
        self.audiences.remove(audience);
    }

    pub(super) fn take_waiters(&mut self) -> Vec<Waiter> {
        std::mem::take(&mut self.audiences).into_values().flat_map(|audience| audience.waiting).collect()
    }
}

/// How long to wait before a token is renewed that counts for so long; for ever if that is of no use.
///
/// A credential may keep a token until shortly before its end, so one that came again is asked for again; but one
/// that cannot be renewed stays as it is until the hub has had enough of it.
fn before_renewal(left: Duration, newer: bool) -> Option<Duration> {
    (newer || left > LEAST_BETWEEN).then(|| (left * 3 / 4).max(LEAST_BETWEEN))
}

/// How long to wait after a renewal that failed.
fn before_next_try(left: Duration) -> Duration {
    match left.is_zero() {
        true => RENEW_AGAIN,
        false => (left / 4).clamp(LEAST_BETWEEN, RENEW_AGAIN),
    }
}

impl Task {
    /// Goes on with `waiter` once there is a token for its audience; at once if none is needed.
    pub(super) fn authorize(&mut self, audience: String, waiter: Waiter) {
        if self.endpoint.credential.is_none() {
            return self.authorized(waiter, None);
        }
        let found = self.tokens.audiences.entry(audience.clone()).or_default();
        found.users += 1;
        if found.valid {
            let token = found.token.clone();
            return self.authorized(waiter, token.as_ref());
        }
        found.waiting.push(waiter);
        if !found.busy {
            self.fetch(audience);
        }
    }

    /// A user of this audience is gone.
    pub(super) fn unauthorize(&mut self, audience: &str) {
        if let Some(found) = self.tokens.audiences.get_mut(audience) {
            found.users = found.users.saturating_sub(1);
            if found.users == 0 {
                self.tokens.forget(audience);
            }
        }
    }

    fn fetch(&mut self, audience: String) {
        let Some(credential) = self.endpoint.credential.clone() else { return };
        if let Some(found) = self.tokens.audiences.get_mut(&audience) {
            found.busy = true;
        }
        let deadline = Instant::now() + self.endpoint.token_time();
        self.tokens.fetching.push(Box::pin(async move {
            let token = match timeout_at(deadline, credential.token(&audience)).await {
                Ok(token) => token,
                Err(_) => Err(TokenError::Unavailable("it took too long".into())),
            };
            (audience, token)
        }));
    }

    pub(super) fn on_token(&mut self, audience: &str, token: Result<Token, TokenError>) {
        match token {
            Ok(token) => {
                if !self.tokens.audiences.contains_key(audience) {
                    return;
                }
                let put = PutToken {
                    audience,
                    kind: token.kind,
                    token: token.text.expose_secret(),
                    expires_at: Some(token.expires_at),
                };
                let purpose = Purpose::Token(audience.to_owned(), token.clone());
                self.ask(PairName::Cbs, purpose, |id, reply_to, into| put.write(id, reply_to, into));
            }
            Err(error) => self.on_token_refused(audience, &Failure::of_token(&error)),
        }
    }

    pub(super) fn on_token_accepted(&mut self, audience: &str, token: Token) {
        let Some(found) = self.tokens.audiences.get_mut(audience) else { return };
        let left = token.expires_at.since(SystemClock.wall());
        let newer = found.token.as_ref().is_none_or(|before| token.expires_at > before.expires_at);
        found.valid = true;
        found.busy = false;
        let waiting = std::mem::take(&mut found.waiting);
        found.token = Some(token.clone());
        match before_renewal(left, newer) {
            Some(pause) => self.tokens.schedule(audience, Instant::now() + pause),
            None => self.tokens.unschedule(audience),
        }
        for waiter in waiting {
            self.authorized(waiter, Some(&token));
        }
    }

    pub(super) fn on_token_refused(&mut self, audience: &str, failure: &Failure) {
        let Some(found) = self.tokens.audiences.get_mut(audience) else { return };
        found.busy = false;
        if let (true, Some(token)) = (found.valid, &found.token) {
            tracing::warn!(audience, reason = %failure, "token not renewed, trying again");
            let left = token.expires_at.since(SystemClock.wall());
            self.tokens.schedule(audience, Instant::now() + before_next_try(left));
            return;
        }
        for waiter in std::mem::take(&mut found.waiting) {
            self.fail_waiter(waiter, failure);
        }
        // Whoever is told does not count any more, and the next one begins anew.
        self.tokens.forget(audience);
    }

    /// Fetches what it is time for; a failure if the hub has not answered to the last one.
    pub(super) fn renew(&mut self) -> Option<Failure> {
        let now = Instant::now();
        while let Some((at, _)) = self.tokens.renewals.first()
            && *at <= now
        {
            let (_, audience) = self.tokens.renewals.pop_first()?;
            let Some(found) = self.tokens.audiences.get_mut(&audience) else { continue };
            found.renew_at = None;
            if found.busy {
                return Some(Failure::lost("the hub did not answer to a new token in time"));
            }
            self.fetch(audience.clone());
            self.tokens.schedule(&audience, now + self.endpoint.token_time() + self.endpoint.answer_time);
        }
        None
    }

    fn authorized(&mut self, waiter: Waiter, token: Option<&Token>) {
        match waiter {
            Waiter::Receiver(key) => self.attach_receiver(key),
            Waiter::Sender(key) => self.attach_sender(key),
            Waiter::Ask(query, reply) => {
                let token = token.map(|token| token.text.expose_secret());
                self.ask(PairName::Management, Purpose::Ask(reply), |id, reply_to, into| {
                    query.write(id, reply_to, token, into);
                });
            }
        }
    }

    pub(super) fn fail_waiter(&mut self, waiter: Waiter, failure: &Failure) {
        match waiter {
            Waiter::Receiver(key) => {
                if let Some(inlet) = self.receivers.remove(&key) {
                    inlet.inbox.end(failure.clone());
                }
            }
            Waiter::Sender(key) => {
                if let Some(outlet) = self.senders.remove(&key) {
                    outlet.fail(failure);
                }
            }
            Waiter::Ask(_, reply) => drop(reply.send(Err(failure.clone()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_before_it_ends_and_one_that_never_changes_not_for_ever() {
        let mut left = Duration::from_secs(3_600);
        assert_eq!(before_renewal(left, true), Some(Duration::from_secs(2_700)));
        let mut asked = 0;
        while let Some(pause) = before_renewal(left, false) {
            assert!(pause < left, "{pause:?} of {left:?}");
            left -= pause;
            asked += 1;
        }
        assert!((5..12).contains(&asked), "{asked}");
        assert!(before_renewal(Duration::ZERO, true).is_some(), "a new one that is over is asked for again");
        assert!(before_renewal(Duration::ZERO, false).is_none());
    }

    #[test]
    fn after_a_failure_it_is_tried_again_soon_while_that_helps() {
        assert_eq!(before_next_try(Duration::from_secs(900)), RENEW_AGAIN);
        assert_eq!(before_next_try(Duration::from_secs(40)), Duration::from_secs(10));
        assert_eq!(before_next_try(Duration::from_millis(1)), LEAST_BETWEEN);
        assert_eq!(before_next_try(Duration::ZERO), RENEW_AGAIN);
    }
}
