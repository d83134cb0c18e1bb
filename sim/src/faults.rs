//! What can go wrong on the way between a machine and a store or a hub.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::ids::PartitionId;
use fastrand::Rng;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// It took long: the caller may have given up when it arrived.
    Slow,
    /// It happened in time, and the answer took long.
    SlowAnswer,
    /// The request got lost: nothing happened, and nobody answers.
    LostRequest,
    /// The answer got lost: it happened, and nobody answers.
    LostResponse,
    /// An error, and nothing happened.
    ErrorBefore,
    /// An error, and yet it happened.
    ErrorAfter,
    /// Asked to come less often, and nothing happened.
    Throttled,
    /// Somebody else was faster, or so it seemed.
    Conflict,
    /// A wake-up call that never came.
    LostNotification,
    /// An established link broke.
    BrokenLink,
    /// What an established link carries does not arrive.
    Deaf,
}

/// Told of every fault when it takes effect: what, in which call, for which partition.
pub type FaultObserver<Call> = Arc<dyn Fn(FaultKind, Call, Option<PartitionId>) + Send + Sync>;

/// How long something takes: anything from `least` to `most`, evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// At least this long.
    pub least: Duration,
    /// At most this long.
    pub most: Duration,
}

impl Latency {
    /// From `least` to `most` milliseconds.
    pub const fn milliseconds(least: u64, most: u64) -> Self {
        Self { least: Duration::from_millis(least), most: Duration::from_millis(most) }
    }

    /// Draws one. To the microsecond: enough to tell events apart.
    pub fn draw(&self, random: &mut Rng) -> Duration {
        let microseconds = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let least = microseconds(self.least);
        Duration::from_micros(random.u64(least..=microseconds(self.most).max(least)))
    }
}

/// Whether something of this probability happens. Draws in any case, so that
/// changing one probability leaves the other draws where they were.
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
        assert!(draws.iter().all(|draw| (latency.least..=latency.most).contains(draw)));
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
