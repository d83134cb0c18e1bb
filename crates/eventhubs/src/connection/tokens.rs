//! Puts authentication tokens on `$cbs`, and renews them before they expire.
//!
//! ```text
//!   wanted ─► Fetching ─token─► Putting ─202─► valid ──── three quarters of its life ───► Fetching …
//!                 └── failed ──────┴ refused ─► waiters get the error; a renewal is retried
//! ```
//!
//! Each link has an audience of its own, as in the SDKs. A token whose link has ended is not renewed.
//!
//! A token expires by the wall clock, which continues while the machine is suspended, and can be set. So both
//! clocks are checked, and a token is renewed when either says so. A token that has expired by the wall clock
//! is not used for anything new, and one that the hub calls expired is renewed immediately, whatever the
//! clocks say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::time::{Clock, Timestamp};
use ephor_runtime::environment::SystemClock;
use ephor_wire::cbs::PutToken;
use ephor_wire::condition::Condition;
use ephor_wire::management::Query;
use futures_util::stream::FuturesUnordered;
use secrecy::ExposeSecret;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::LinkKey;
use super::requests::{PairName, Purpose};
use super::task::Task;
use super::traffic::Deadline;
use crate::credential::{Token, TokenError};
use crate::failure_classes::Failure;

/// The delay before a failed renewal is retried; shorter if less of the token's life is left.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The interval at which the wall clock is checked.
const WALL_CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The minimum delay between two renewals.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_millis(250);

/// A link or request that waits for a token.
pub(super) enum Waiter {
    Receiver(LinkKey),
    Sender(LinkKey),
    Query(Query, oneshot::Sender<Result<bytes::Bytes, Failure>>),
}

#[derive(Default)]
struct Audience {
    /// The number of links and requests that need it.
    users: usize,
    /// The newest token that the hub accepted.
    token: Option<Token>,
    valid: bool,
    /// A token is being fetched or put.
    busy: bool,
    /// The deadline of the hub's answer to a renewal.
    deadline: Option<Deadline>,
    renew_at: Option<Instant>,
    /// The renewal time by the wall clock; none while a renewal is under way or waits for a retry.
    renew_at_wall: Option<Timestamp>,
    waiting: Vec<Waiter>,
}

impl Audience {
    /// True if the token may be used for something new.
    fn is_usable(&self, wall: Timestamp) -> bool {
        self.valid && self.token.as_ref().is_some_and(|token| token.expires_at > wall)
    }
}

type Fetched = (String, Result<Token, TokenError>);

#[derive(Default)]
pub(super) struct Tokens {
    audiences: BTreeMap<String, Audience>,
    pub(super) fetching: FuturesUnordered<BoxFuture<'static, Fetched>>,
    renewals: BTreeSet<(Instant, String)>,
}

impl Tokens {
    /// The next time to check tokens. It is never later than the next check of the wall clock, because
    /// nothing signals that the clock was set.
    pub(super) fn next_renewal(&self) -> Option<Instant> {
        self.renewals.first().map(|(at, _)| (*at).min(Instant::now() + WALL_CLOCK_CHECK_INTERVAL))
    }

    /// Makes the tokens that are due by the wall clock due now.
    fn check_wall_clock(&mut self, now: Instant, wall: Timestamp) {
        let is_due = |found: &Audience| !found.busy && found.renew_at_wall.is_some_and(|at| at <= wall);
        let due = self.audiences.iter().filter(|(_, found)| is_due(found)).map(|(audience, _)| audience);
        for audience in due.cloned().collect::<Vec<_>>() {
            self.schedule(&audience, now);
        }
    }

    /// Schedules the next check of a token, and replaces the previous one: a renewal, or the deadline of an
    /// answer if a token is on its way.
    fn schedule(&mut self, audience: &str, at: Instant) {
        self.unschedule(audience);
        if let Some(found) = self.audiences.get_mut(audience) {
            found.renew_at = Some(at);
            found.renew_at_wall = None;
            self.renewals.insert((at, audience.to_owned()));
        }
    }

    /// Schedules the renewal of a token after `pause`, by either clock.
    fn schedule_renewal(&mut self, audience: &str, (now, wall): (Instant, Timestamp), pause: Duration) {
        self.schedule(audience, now + pause);
        if let Some(found) = self.audiences.get_mut(audience) {
            found.renew_at_wall = Some(wall + pause);
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

/// The delay before the renewal of a token with `left` of its life remaining; none if a renewal would not
/// help.
///
/// A credential may return a cached token until shortly before its expiry, so a token that came unchanged is
/// requested again; but one that cannot be renewed is used until the hub rejects it.
fn before_renewal(left: Duration, newer: bool) -> Option<Duration> {
    (newer || left > MIN_RENEWAL_INTERVAL).then(|| (left * 3 / 4).max(MIN_RENEWAL_INTERVAL))
}

/// The delay after a failed renewal.
fn before_next_try(left: Duration) -> Duration {
    match left.is_zero() {
        true => MAX_RETRY_DELAY,
        false => (left / 4).clamp(MIN_RENEWAL_INTERVAL, MAX_RETRY_DELAY),
    }
}

impl Task {
    /// Continues with `waiter` once there is a token for its audience; immediately if none is needed.
    pub(super) fn authorize(&mut self, audience: String, waiter: Waiter) {
        if self.endpoint.credential.is_none() {
            return self.authorized(waiter, None);
        }
        let found = self.tokens.audiences.entry(audience.clone()).or_default();
        found.users += 1;
        if found.is_usable(SystemClock.wall()) {
            let token = found.token.clone();
            return self.authorized(waiter, token.as_ref());
        }
        found.waiting.push(waiter);
        match (found.busy, found.renew_at) {
            (true, _) => {}
            (false, None) => self.fetch(audience),
            (false, Some(_)) => self.fetch_again(&audience),
        }
    }

    /// A user of this audience has ended.
    pub(super) fn unauthorize(&mut self, audience: &str) {
        if let Some(found) = self.tokens.audiences.get_mut(audience) {
            found.users = found.users.saturating_sub(1);
            if found.users == 0 {
                self.tokens.forget(audience);
            }
        }
    }

    /// Renews a token now, with a deadline for the hub's answer.
    fn fetch_again(&mut self, audience: &str) {
        self.fetch(audience.to_owned());
        let limit = self.endpoint.token_time() + self.endpoint.answer_time;
        let deadline = Deadline::new(limit, &self.lifecycle.reconnect.traffic);
        self.tokens.schedule(audience, deadline.at());
        if let Some(found) = self.tokens.audiences.get_mut(audience) {
            found.deadline = Some(deadline);
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
                Err(_) => Err(TokenError::Unavailable("the credential did not answer in time".into())),
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
                self.request(PairName::Cbs, purpose, |id, reply_to, into| put.write(id, reply_to, into));
            }
            Err(error) => self.on_token_refused(audience, &Failure::of_token(&error)),
        }
    }

    pub(super) fn on_token_accepted(&mut self, audience: &str, token: Token) {
        let Some(found) = self.tokens.audiences.get_mut(audience) else { return };
        let wall = SystemClock.wall();
        let left = token.expires_at.since(wall);
        let newer = found.token.as_ref().is_none_or(|before| token.expires_at > before.expires_at);
        found.valid = true;
        found.busy = false;
        let waiting = std::mem::take(&mut found.waiting);
        found.token = Some(token.clone());
        match before_renewal(left, newer) {
            Some(pause) => self.tokens.schedule_renewal(audience, (Instant::now(), wall), pause),
            None => self.tokens.unschedule(audience),
        }
        for waiter in waiting {
            self.authorized(waiter, Some(&token));
        }
    }

    pub(super) fn on_token_refused(&mut self, audience: &str, failure: &Failure) {
        let Some(found) = self.tokens.audiences.get_mut(audience) else { return };
        found.busy = false;
        let waiting = std::mem::take(&mut found.waiting);
        // Waiters that get the failure are no longer users; one that was closed meanwhile has already been
        // subtracted.
        let failed = waiting.into_iter().filter_map(|waiter| self.fail_waiter(waiter, failure)).count();
        let Some(found) = self.tokens.audiences.get_mut(audience) else { return };
        found.users = found.users.saturating_sub(failed);
        let Some(token) = found.token.as_ref().filter(|_| found.users > 0) else {
            // The next user of the audience starts over.
            return self.tokens.forget(audience);
        };
        tracing::warn!(audience, reason = %failure, "could not renew a token; retrying");
        let left = token.expires_at.since(SystemClock.wall());
        self.tokens.schedule(audience, Instant::now() + before_next_try(left));
    }

    /// Renews the token of this audience immediately if it was the reason for this failure.
    pub(super) fn renew_if_unauthorized(&mut self, audience: &str, failure: &Failure) {
        if !matches!(failure.condition(), Some(Condition::UnauthorizedAccess | Condition::AuthFailed)) {
            return;
        }
        let Some(found) = self.tokens.audiences.get_mut(audience) else { return };
        if std::mem::replace(&mut found.valid, false) && !found.busy {
            self.fetch_again(audience);
        }
    }

    /// Renews the tokens that are due; a failure if the hub has not answered the previous renewal in time.
    pub(super) fn renew(&mut self) -> Option<Failure> {
        let now = Instant::now();
        self.tokens.check_wall_clock(now, SystemClock.wall());
        while let Some((at, _)) = self.tokens.renewals.first()
            && *at <= now
        {
            let (_, audience) = self.tokens.renewals.pop_first()?;
            let Some(found) = self.tokens.audiences.get_mut(&audience) else { continue };
            found.renew_at = None;
            if found.busy {
                if let Some(deadline) = &mut found.deadline
                    && deadline.extend(&self.lifecycle.reconnect.traffic)
                {
                    let later = deadline.at();
                    self.tokens.schedule(&audience, later);
                    continue;
                }
                return Some(Failure::lost("the hub did not answer a new token in time"));
            }
            self.fetch_again(&audience);
        }
        None
    }

    fn authorized(&mut self, waiter: Waiter, token: Option<&Token>) {
        match waiter {
            Waiter::Receiver(key) => self.attach_receiver(key),
            Waiter::Sender(key) => self.attach_sender(key),
            Waiter::Query(query, reply) => {
                let token = token.map(|token| token.text.expose_secret());
                let purpose = Purpose::Query(self.management_audience(&query), reply);
                self.request(PairName::Management, purpose, |id, reply_to, into| {
                    query.write(id, reply_to, token, into);
                });
            }
        }
    }

    /// Returns none if the waiter was already closed.
    pub(super) fn fail_waiter(&mut self, waiter: Waiter, failure: &Failure) -> Option<()> {
        match waiter {
            Waiter::Receiver(key) => self.receivers.remove(&key)?.queue.end(failure.clone()),
            Waiter::Sender(key) => self.senders.remove(&key)?.fail(failure),
            Waiter::Query(_, reply) => drop(reply.send(Err(failure.clone()))),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use ephor_wire::cbs::TokenKind;

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
        assert_eq!(before_next_try(Duration::from_secs(900)), MAX_RETRY_DELAY);
        assert_eq!(before_next_try(Duration::from_secs(40)), Duration::from_secs(10));
        assert_eq!(before_next_try(Duration::from_millis(1)), MIN_RENEWAL_INTERVAL);
        assert_eq!(before_next_try(Duration::ZERO), MAX_RETRY_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_due_by_either_clock_and_over_by_the_wall_clock() {
        const LIFE: Duration = Duration::from_secs(3_600);
        let (now, wall) = (Instant::now(), Timestamp(1_700_000_000_000));
        let mut tokens = Tokens::default();
        let token = Token { kind: TokenKind::Sas, text: "secret".to_owned().into(), expires_at: wall + LIFE };
        let audience = Audience { token: Some(token), valid: true, users: 1, ..Audience::default() };
        tokens.audiences.insert("hub".into(), audience);
        tokens.schedule_renewal("hub", (now, wall), LIFE * 3 / 4);
        let due = |tokens: &Tokens| tokens.renewals.first().map(|(at, _)| *at);
        tokens.check_wall_clock(now, wall + LIFE / 2);
        assert_eq!(due(&tokens), Some(now + LIFE * 3 / 4));
        assert!(
            tokens.next_renewal().unwrap() <= now + WALL_CLOCK_CHECK_INTERVAL,
            "nobody tells that the wall clock was set"
        );
        // The machine was suspended for two hours, which only the wall clock shows.
        let wall = wall + LIFE * 2;
        assert!(!tokens.audiences["hub"].is_usable(wall));
        tokens.check_wall_clock(now, wall);
        assert_eq!(due(&tokens), Some(now), "it is over, and not renewed for {:?}", LIFE * 3 / 4);
        // During a renewal the scheduled time is the deadline of the answer.
        tokens.schedule("hub", now + LIFE);
        tokens.check_wall_clock(now, wall);
        assert_eq!(due(&tokens), Some(now + LIFE));
    }
}
