//! Decides when a lost connection is reconnected: one backoff for all its users.
//!
//! ```text
//!   lost ─ up to the first wait ─► dial ─ 2 x first ─► dial ─ 4 x first ─► dial …   up to 2 s in the first minute,
//!                                                                                then up to the longest wait
//! ```
//!
//! The first wait is random, between zero and the first backoff, so that clients that lose the same hub at
//! the same moment do not dial at the same moment. A connection that is lost soon after it was made does not
//! restart the series.

use std::time::Duration;

use ephor_core::failure_policy::Backoff;
use tokio::time::Instant;

/// The maximum wait while an outage is short: a hub that comes back soon is noticed soon.
const MAX_WAIT_IN_SHORT_OUTAGE: Duration = Duration::from_secs(2);

/// An outage counts as short for this long.
const SHORT_OUTAGE: Duration = Duration::from_secs(60);

/// The backoff state of one connection.
pub(super) struct Redial {
    backoff: Backoff,
    /// The number of failed dials and short-lived connections in a row.
    failures: u32,
    /// The number of dials in a row that the hub did not answer with `open`.
    unanswered: u32,
    down_since: Option<Instant>,
    not_before: Option<Instant>,
}

/// A period without a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outage {
    pub(super) length: Duration,
    /// The number of dials that the hub did not answer.
    pub(super) dials: u32,
}

/// The consequences of a connection's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// True if an outage begins with it.
    pub(super) first: bool,
    /// The number of dials in a row that the hub did not answer with `open`.
    pub(super) unanswered: u32,
}

impl Redial {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self { backoff, failures: 0, unanswered: 0, down_since: None, not_before: None }
    }

    /// The earliest time of the next dial.
    pub(super) fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// The hub sent `open`. Returns the outage that has ended, if there was one.
    pub(super) fn opened(&mut self, now: Instant) -> Option<Outage> {
        let dials = std::mem::take(&mut self.unanswered);
        self.down_since.take().map(|since| Outage { length: now.duration_since(since), dials })
    }

    /// The connection has ended. `opened` is the time at which it was established, if it was.
    pub(super) fn ended(&mut self, now: Instant, opened: Option<Instant>, chance: u64) -> Ended {
        let first = self.down_since.is_none();
        let since = *self.down_since.get_or_insert(now);
        let most = match now.duration_since(since) < SHORT_OUTAGE {
            true => self.backoff.max.min(MAX_WAIT_IN_SHORT_OUTAGE),
            false => self.backoff.max,
        };
        if opened.is_none() {
            self.unanswered = self.unanswered.saturating_add(1);
        }
        // A connection that lasted for the longest wait resets the backoff: dials still come no more often
        // than that.
        let lasted = opened.is_some_and(|opened| now.duration_since(opened) >= most);
        self.failures = if lasted { 1 } else { self.failures.saturating_add(1) };
        let backoff = Backoff { first: self.backoff.first.min(most), max: most };
        let wait = match opened {
            Some(_) if self.failures == 1 => backoff.first.mul_f64(chance as f64 / u64::MAX as f64),
            _ => backoff.delay(self.failures, chance),
        };
        self.not_before = Some(now + wait);
        Ended { first, unanswered: self.unanswered }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), max: Duration::from_secs(10) };

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// The waits of an outage in which every dial fails immediately, in milliseconds.
    fn waits(redial: &mut Redial, mut now: Instant, count: usize, chance: u64) -> Vec<u128> {
        let next = || {
            redial.ended(now, None, chance);
            let wait = redial.not_before().unwrap().duration_since(now);
            now += wait;
            wait.as_millis()
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    #[test]
    fn waits_double_up_to_two_seconds_and_in_a_long_outage_to_the_longest() {
        let now = Instant::now();
        let waits = waits(&mut Redial::new(BACKOFF), now, 40, 0);
        assert_eq!(waits[..6], [200, 400, 800, 1_600, 2_000, 2_000]);
        assert!(waits.iter().take_while(|wait| **wait <= 2_000).sum::<u128>() >= 60_000, "a minute of them");
        assert_eq!(waits[39], 10_000);
    }

    #[test]
    fn a_connection_that_lasted_is_dialled_again_soon_and_not_by_all_in_the_same_moment() {
        let now = Instant::now();
        let wait = |chance| {
            let mut redial = Redial::new(BACKOFF);
            assert_eq!(redial.opened(now), None, "there was no outage");
            let ended = redial.ended(now + millis(5_000), Some(now), chance);
            assert_eq!(ended, Ended { first: true, unanswered: 0 });
            redial.not_before().unwrap().duration_since(now + millis(5_000))
        };
        assert_eq!((wait(0), wait(u64::MAX)), (Duration::ZERO, BACKOFF.first));
        assert!((millis(99)..millis(101)).contains(&wait(u64::MAX / 2)));
    }

    #[test]
    fn a_hub_that_opens_and_closes_is_not_dialled_ever_faster() {
        let mut redial = Redial::new(BACKOFF);
        let mut now = Instant::now();
        for expected in [None, Some(400), Some(800), Some(1_600), Some(2_000), Some(2_000)] {
            redial.opened(now);
            let ended = redial.ended(now + millis(10), Some(now), 0);
            assert!(ended.first, "each loss is one");
            let wait = redial.not_before().unwrap().duration_since(now + millis(10));
            assert!(expected.is_none_or(|expected| wait == millis(expected)), "{wait:?}");
            now += millis(10) + wait;
        }
    }

    #[test]
    fn an_outage_ends_with_the_hubs_open_and_knows_its_dials() {
        let mut redial = Redial::new(BACKOFF);
        let now = Instant::now();
        assert_eq!(redial.ended(now, None, 0), Ended { first: true, unanswered: 1 });
        assert_eq!(redial.ended(now + millis(200), None, 0), Ended { first: false, unanswered: 2 });
        assert_eq!(redial.opened(now + millis(700)), Some(Outage { length: millis(700), dials: 2 }));
        assert_eq!(redial.ended(now + millis(5_000), Some(now + millis(700)), 0).unanswered, 0);
    }
}
