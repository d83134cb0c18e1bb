//! Failure policies for processors that return an error: retry with backoff, skip the events, or close the
//! partition.

use std::time::Duration;

/// Exponential backoff: the delay doubles, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct Backoff {
    /// The first delay.
    #[cfg_attr(feature = "serde", serde(with = "crate::duration_setting"))]
    pub first: Duration,
    /// The longest delay.
    #[cfg_attr(feature = "serde", serde(with = "crate::duration_setting"))]
    pub max: Duration,
}

impl Backoff {
    /// The problem with its values, and what to write instead.
    fn problem(&self) -> Option<&'static str> {
        (self.first.is_zero() || self.first > self.max).then_some(
            "a backoff must begin above zero and not above its longest wait, or a batch that fails spins; \
             try first 500ms, max 30s",
        )
    }

    /// The delay after the `failures`-th failure in a row (1, 2, 3 …). The random number `chance`
    /// shortens it by up to a quarter (jitter), so that many hosts do not retry in step.
    pub fn delay(&self, failures: u32, chance: u64) -> Duration {
        let doublings = failures.saturating_sub(1).min(32);
        let nanos = self.first.as_nanos().saturating_mul(1 << doublings).min(self.max.as_nanos());
        let quarter = nanos / 4;
        let off = if quarter == 0 { 0 } else { u128::from(chance) % (quarter + 1) };
        Duration::from_nanos(u64::try_from(nanos - off).unwrap_or(u64::MAX))
    }
}

/// The default backoff between attempts at a batch.
pub const DEFAULT_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(500), max: Duration::from_secs(30) };

impl Default for Backoff {
    /// [`DEFAULT_BACKOFF`].
    fn default() -> Self {
        DEFAULT_BACKOFF
    }
}

/// The reaction of the host when `process_events` fails, panics or times out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", deny_unknown_fields)
)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// Deliver the same batch again until it succeeds: nothing is skipped.
    Retry(Backoff),
    /// Deliver the batch this many times; then its events one by one, this many times each; then
    /// skip the poison events that still fail, and report each of them.
    SkipAfter {
        /// Attempts, at least 1.
        attempts: u32,
        /// The wait between them.
        #[cfg_attr(feature = "serde", serde(default))]
        backoff: Backoff,
    },
    /// Close the partition and release it. This host does not claim it again before the pause is
    /// over.
    Close {
        /// The time during which this host leaves it alone.
        #[cfg_attr(feature = "serde", serde(with = "crate::duration_setting"))]
        pause: Duration,
    },
}

impl Default for FailurePolicy {
    fn default() -> Self {
        Self::Retry(DEFAULT_BACKOFF)
    }
}

/// The next step after a batch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Deliver it again after this long.
    Again(Duration),
    /// Deliver its events one by one, after this long.
    OneByOne(Duration),
    /// Give up on it and go on after it.
    Skip,
    /// Close the partition, and do not claim it for this long.
    Close(Duration),
}

impl FailurePolicy {
    /// The problem with its values, and what to write instead.
    pub fn problem(&self) -> Option<&'static str> {
        match *self {
            Self::Retry(backoff) => backoff.problem(),
            Self::SkipAfter { attempts: 0, backoff } => backoff
                .problem()
                .or(Some("a failure policy that skips after 0 attempts would skip everything; try 3")),
            Self::SkipAfter { backoff, .. } => backoff.problem(),
            Self::Close { pause: Duration::ZERO } => {
                Some("a partition that is closed and claimed again at once fails at once; try a pause of 10s")
            }
            Self::Close { .. } => None,
        }
    }

    /// True if a batch is delivered again without end.
    pub fn retries_for_ever(&self) -> bool {
        match self {
            Self::Retry(_) => true,
            Self::SkipAfter { .. } | Self::Close { .. } => false,
        }
    }

    /// The next step after the `failures`-th failure in a row of a batch of `events`.
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
    const BACKOFF: Backoff = Backoff { first: SECOND, max: Duration::from_secs(10) };

    #[test]
    fn the_wait_doubles_up_to_a_limit_and_chance_shortens_it() {
        let waits: Vec<u64> = (0..7).map(|n| BACKOFF.delay(n, 0).as_secs()).collect();
        assert_eq!(waits, [1, 1, 2, 4, 8, 10, 10]);
        assert_eq!(BACKOFF.delay(u32::MAX, 0), BACKOFF.max);
        assert_eq!(BACKOFF.delay(1, 250_000_000), Duration::from_millis(750));
        assert_eq!(BACKOFF.delay(1, 250_000_001), SECOND);
        assert_eq!(Backoff { first: Duration::ZERO, max: SECOND }.delay(3, 7), Duration::ZERO);
    }

    #[test]
    fn by_default_a_batch_is_tried_for_ever() {
        let policy = FailurePolicy::default();
        assert_eq!(policy.after(1, 100, 0), AfterFailure::Again(DEFAULT_BACKOFF.first));
        assert_eq!(policy.after(u32::MAX, 100, 0), AfterFailure::Again(DEFAULT_BACKOFF.max));
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
