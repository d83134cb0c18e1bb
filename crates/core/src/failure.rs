//! What to do when a processor fails.

use std::time::Duration;

/// How long to wait before trying again: doubling, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait.
    pub first: Duration,
    /// No wait is longer.
    pub most: Duration,
}

impl Backoff {
    /// The wait after the `failures`-th failure in a row (1, 2, 3 …).
    /// `chance` shortens it by up to a quarter, so that many do not retry in step.
    pub fn delay(&self, failures: u32, chance: u64) -> Duration {
        let doublings = failures.saturating_sub(1).min(32);
        let nanos = self.first.as_nanos().saturating_mul(1 << doublings).min(self.most.as_nanos());
        let quarter = nanos / 4;
        let off = if quarter == 0 { 0 } else { u128::from(chance) % (quarter + 1) };
        Duration::from_nanos(u64::try_from(nanos - off).unwrap_or(u64::MAX))
    }
}

/// The backoff between attempts at a batch.
pub const DEFAULT_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(500), most: Duration::from_secs(30) };

/// What the host does when `process_events` fails, panics or times out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Deliver the same batch again, for as long as it takes: nothing is skipped.
    Retry(Backoff),
    /// Deliver it this many times; then its events one by one, as many times
    /// each; then skip those that still fail, and report every one of them.
    SkipAfter {
        /// Attempts, at least 1.
        attempts: u32,
        /// The wait between them.
        backoff: Backoff,
    },
    /// Close the partition and release it. This host claims it again no sooner than after the pause.
    Close {
        /// How long to leave it alone.
        pause: Duration,
    },
}

impl Default for FailurePolicy {
    fn default() -> Self {
        Self::Retry(DEFAULT_BACKOFF)
    }
}

/// What to do next about a batch that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Deliver it again after this long.
    Again(Duration),
    /// Deliver its events one by one, after this long.
    OneByOne(Duration),
    /// Give up on it and go on behind it.
    Skip,
    /// Close the partition, and leave it alone for this long.
    Close(Duration),
}

impl FailurePolicy {
    /// What to do after the `failures`-th failure in a row of a batch of `events`.
    pub fn after(&self, failures: u32, events: usize, chance: u64) -> AfterFailure {
        match *self {
            Self::Retry(backoff) => AfterFailure::Again(backoff.delay(failures, chance)),
            Self::SkipAfter { attempts, backoff } if failures < attempts => {
                AfterFailure::Again(backoff.delay(failures, chance))
            }
            Self::SkipAfter { backoff, .. } if events > 1 => {
                AfterFailure::OneByOne(backoff.delay(failures, chance))
            }
            Self::SkipAfter { .. } => AfterFailure::Skip,
            Self::Close { pause } => AfterFailure::Close(pause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const BACKOFF: Backoff = Backoff { first: SECOND, most: Duration::from_secs(10) };

    #[test]
    fn the_wait_doubles_up_to_a_limit_and_chance_shortens_it() {
        let waits: Vec<u64> = (0..7).map(|n| BACKOFF.delay(n, 0).as_secs()).collect();
        assert_eq!(waits, [1, 1, 2, 4, 8, 10, 10]);
        assert_eq!(BACKOFF.delay(u32::MAX, 0), BACKOFF.most);
        assert_eq!(BACKOFF.delay(1, 250_000_000), Duration::from_millis(750));
        assert_eq!(BACKOFF.delay(1, 250_000_001), SECOND);
        assert_eq!(Backoff { first: Duration::ZERO, most: SECOND }.delay(3, 7), Duration::ZERO);
    }

    #[test]
    fn by_default_a_batch_is_tried_for_ever() {
        let policy = FailurePolicy::default();
        assert_eq!(policy.after(1, 100, 0), AfterFailure::Again(DEFAULT_BACKOFF.first));
        assert_eq!(policy.after(u32::MAX, 100, 0), AfterFailure::Again(DEFAULT_BACKOFF.most));
    }

    #[test]
    fn skipping_isolates_the_event_that_fails() {
        let policy = FailurePolicy::SkipAfter { attempts: 3, backoff: BACKOFF };
        assert_eq!(policy.after(2, 100, 0), AfterFailure::Again(SECOND * 2));
        assert_eq!(policy.after(3, 100, 0), AfterFailure::OneByOne(SECOND * 4));
        assert_eq!(policy.after(2, 1, 0), AfterFailure::Again(SECOND * 2));
        assert_eq!(policy.after(3, 1, 0), AfterFailure::Skip);
        assert_eq!(policy.after(4, 1, 0), AfterFailure::Skip);
    }

    #[test]
    fn closing_leaves_the_partition_alone_for_the_pause() {
        assert_eq!(FailurePolicy::Close { pause: SECOND }.after(1, 5, 0), AfterFailure::Close(SECOND));
    }
}
