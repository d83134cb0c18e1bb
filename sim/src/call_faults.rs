//! The kinds of faults that one call to a store or a hub can meet, and the random durations of calls.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::ids::PartitionId;
use fastrand::Rng;

/// A kind of fault of one call, or of the link that a call established.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// The request was slow: the caller may have given up when it arrived.
    Slow,
    /// The request was applied in time, and its answer was slow.
    SlowAnswer,
    /// The request was lost: it was not applied, and there is no answer.
    LostRequest,
    /// The answer was lost: the request was applied, and there is no answer.
    LostResponse,
    /// The answer is an error, and the request was not applied.
    ErrorBefore,
    /// The answer is an error, although the request was applied.
    ErrorAfter,
    /// The request was throttled and not applied.
    Throttled,
    /// The answer is that another host was faster, true or not.
    Conflict,
    /// A notification was lost.
    LostNotification,
    /// An established link broke.
    BrokenLink,
    /// The events and answers of an established link do not arrive.
    Deaf,
}

/// Called with every fault when it takes effect: its kind, the call, and the partition.
pub type FaultObserver<Call> = Arc<dyn Fn(FaultKind, Call, Option<PartitionId>) + Send + Sync>;

/// A duration drawn evenly from `min` to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// The shortest duration.
    pub min: Duration,
    /// The longest duration.
    pub max: Duration,
}

impl Latency {
    /// A range from `min` to `max` milliseconds.
    pub const fn milliseconds(min: u64, max: u64) -> Self {
        Self { min: Duration::from_millis(min), max: Duration::from_millis(max) }
    }

    /// Draws a duration, to the microsecond: enough to tell events apart.
    pub fn draw(&self, random: &mut Rng) -> Duration {
        let microseconds = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let min = microseconds(self.min);
        Duration::from_micros(random.u64(min..=microseconds(self.max).max(min)))
    }
}

/// True with this probability. Draws in any case, so that changing one probability leaves the other draws as
/// they were.
pub(crate) fn happens(random: &mut Rng, probability: f64) -> bool {
    random.f64() < probability
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_lie_within_their_bounds() {
        let mut random = Rng::with_seed(1);
        let latency = Latency::milliseconds(2, 5);
        let draws: Vec<Duration> = (0..1_000).map(|_| latency.draw(&mut random)).collect();
        assert!(draws.iter().all(|draw| (latency.min..=latency.max).contains(draw)));
        assert!(draws.iter().max() > draws.iter().min());
        assert_eq!(Latency::milliseconds(0, 0).draw(&mut random), Duration::ZERO);
        assert_eq!(Latency::milliseconds(3, 1).draw(&mut random), Duration::from_millis(3));
    }

    #[test]
    fn what_is_certain_happens_and_what_is_impossible_does_not() {
        let mut random = Rng::with_seed(1);
        assert!((0..1_000).all(|_| happens(&mut random, 1.0)));
        assert!(!(0..1_000).any(|_| happens(&mut random, 0.0)));
        let half = (0..1_000).filter(|_| happens(&mut random, 0.5)).count();
        assert!((400..600).contains(&half), "{half}");
    }
}
