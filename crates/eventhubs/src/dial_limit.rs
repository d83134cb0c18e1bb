//! Rate-limits the connection attempts of this process to one address, across all clients and connections.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ephor_core::failure_policy::Backoff;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The maximum number of concurrent dials to one address.
const MAX_CONCURRENT_DIALS: usize = 8;

/// The time for which a dial occupies one of the concurrent slots. Without it, eight dials to an address that
/// does not answer would block all others until each of them times out.
const MAX_TURN: Duration = Duration::from_secs(3);

/// The number of dials that may follow each other without a pause: those of one client with all its
/// connections.
const MAX_BURST: u32 = 64;

/// After the burst, the number of dials in the time of the first backoff: by default twenty a second.
const DIALS_PER_FIRST_WAIT: u32 = 4;

/// The rate limit of one address.
pub(crate) struct DialLimit {
    concurrent: Semaphore,
    pace: Mutex<Pace>,
}

impl DialLimit {
    /// The limit for this address, shared by the whole process.
    pub(crate) fn of(address: &(String, u16)) -> Arc<Self> {
        static LIMITS: Mutex<BTreeMap<(String, u16), Weak<DialLimit>>> = Mutex::new(BTreeMap::new());
        let mut limits = LIMITS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limit) = limits.get(address).and_then(Weak::upgrade) {
            return limit;
        }
        // Remove the entries of addresses that are no longer used, so that the map does not grow without
        // bound.
        limits.retain(|_, limit| limit.strong_count() > 0);
        let limit = Arc::new(Self {
            concurrent: Semaphore::new(MAX_CONCURRENT_DIALS),
            pace: Mutex::new(Pace::new(Instant::now())),
        });
        limits.insert(address.clone(), Arc::downgrade(&limit));
        limit
    }

    /// Waits until the rate limit allows another dial, then dials.
    pub(crate) async fn dial<T>(&self, backoff: &Backoff, dial: impl Future<Output = T>) -> T {
        // The semaphore is never closed.
        let permit = self.concurrent.acquire().await.ok();
        let spacing = backoff.first / DIALS_PER_FIRST_WAIT;
        let start = self.pace.lock().unwrap_or_else(PoisonError::into_inner).next(Instant::now(), spacing);
        sleep_until(start).await;
        let mut dial = pin!(dial);
        match timeout_at(Instant::now() + MAX_TURN, &mut dial).await {
            Ok(dialled) => dialled,
            Err(_) => {
                drop(permit);
                dial.await
            }
        }
    }
}

/// Spreads dials over time: a token bucket of [`MAX_BURST`] tokens, refilled by one per `spacing`.
struct Pace {
    /// The time at which the bucket is full again.
    full: Instant,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { full: now }
    }

    /// Takes a token, and returns the time at which the dial may begin.
    fn next(&mut self, now: Instant, spacing: Duration) -> Instant {
        self.full = self.full.max(now) + spacing;
        now + self.full.duration_since(now).saturating_sub(spacing * MAX_BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Duration = Duration::from_millis(50);
    const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), max: Duration::from_secs(10) };

    #[test]
    fn a_burst_passes_and_then_one_dial_follows_the_other() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for _ in 0..MAX_BURST {
            assert_eq!(pace.next(start, PACE), start);
        }
        assert_eq!(pace.next(start, PACE), start + PACE);
        assert_eq!(pace.next(start, PACE), start + 2 * PACE);
        let later = start + 10 * PACE;
        assert_eq!(pace.next(later, PACE), later, "what was not used meanwhile may be used");
        let much_later = start + 10 * MAX_BURST * PACE;
        for _ in 0..MAX_BURST {
            assert_eq!(pace.next(much_later, PACE), much_later);
        }
        assert!(pace.next(much_later, PACE) > much_later, "but no more than one burst of it");
    }

    #[test]
    fn clients_of_one_address_share_its_limit_and_it_goes_with_the_last() {
        let address = |port| ("dial-limit.test".to_owned(), port);
        let one = DialLimit::of(&address(1));
        assert!(Arc::ptr_eq(&one, &DialLimit::of(&address(1))));
        assert!(!Arc::ptr_eq(&one, &DialLimit::of(&address(2))));
        let gone = Arc::downgrade(&one);
        drop(one);
        assert_eq!(gone.strong_count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_dials_are_under_way_and_one_that_hangs_keeps_nobody_waiting_for_long() {
        let limit = DialLimit::of(&("dial-limit.test".to_owned(), 3));
        let hang = || limit.dial(&BACKOFF, std::future::pending::<()>());
        let mut hanging: Vec<_> = (0..MAX_CONCURRENT_DIALS).map(|_| Box::pin(hang())).collect();
        for dial in &mut hanging {
            assert!(futures_util::poll!(dial).is_pending());
        }
        let next = limit.dial(&BACKOFF, std::future::ready(7));
        tokio::pin!(next);
        assert!(futures_util::poll!(&mut next).is_pending());
        let began = Instant::now();
        tokio::select! {
            seven = next => assert_eq!(seven, 7),
            _ = futures_util::future::join_all(hanging) => unreachable!("they hang"),
            () = sleep_until(began + Duration::from_secs(30)) => panic!("it still waits for its turn after 30 s"),
        }
        assert_eq!(began.elapsed(), MAX_TURN);
    }
}
