//! Measures the latency from the sending of a reading to the page (samples of the last minute), and a rate
//! per second (of the last five seconds).

use std::collections::VecDeque;
use std::time::Duration;

use ephor::Monotonic;

/// The time over which samples are kept.
const WINDOW: Duration = Duration::from_secs(60);
/// More samples than this are not kept: the oldest go.
const MAX_SAMPLES: usize = 20_000;

/// The samples of the last minute.
#[derive(Debug, Default)]
pub(super) struct Latency {
    samples: VecDeque<(Monotonic, u64)>,
}

impl Latency {
    /// Adds a sample in milliseconds.
    pub(super) fn note(&mut self, now: Monotonic, took: u64) {
        if self.samples.len() == MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((now, took));
    }

    /// The median, and what 99 of 100 stay below, in milliseconds.
    pub(super) fn quantiles(&mut self, now: Monotonic) -> Option<(u64, u64)> {
        while self.samples.front().is_some_and(|(at, _)| now.since(*at) > WINDOW) {
            self.samples.pop_front();
        }
        let mut took: Vec<u64> = self.samples.iter().map(|(_, took)| *took).collect();
        took.sort_unstable();
        let at = |part: usize| took.get((took.len() * part / 100).min(took.len().checked_sub(1)?)).copied();
        Some((at(50)?, at(99)?))
    }
}

/// A rate per second, over the last seconds.
#[derive(Debug, Default)]
pub(super) struct Rate {
    marks: VecDeque<(Monotonic, u64)>,
}

impl Rate {
    const WINDOW: Duration = Duration::from_secs(5);

    /// Adds a total, and returns the rate in a second.
    pub(super) fn of(&mut self, now: Monotonic, total: u64) -> f64 {
        self.marks.push_back((now, total));
        while self.marks.len() > 2 && self.marks.front().is_some_and(|(at, _)| now.since(*at) > Self::WINDOW)
        {
            self.marks.pop_front();
        }
        let Some((then, before)) = self.marks.front() else { return 0.0 };
        let passed = now.since(*then).as_secs_f64();
        if passed < 0.1 { 0.0 } else { total.saturating_sub(*before) as f64 / passed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(second: u64) -> Monotonic {
        Monotonic(second * 1_000_000_000)
    }

    #[test]
    fn quantiles_are_those_of_the_last_minute() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantiles(at(0)), None);
        latency.note(at(0), 9_999);
        for took in 1..=100 {
            latency.note(at(61), took);
        }
        assert_eq!(latency.quantiles(at(61)), Some((51, 100)));
        assert_eq!(latency.quantiles(at(200)), None, "old samples are dropped");
        for _ in 0..MAX_SAMPLES + 5 {
            latency.note(at(200), 1);
        }
        assert_eq!(latency.samples.len(), MAX_SAMPLES);
    }

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        let mut rate = Rate::default();
        assert_eq!(rate.of(at(0), 100), 0.0);
        assert_eq!(rate.of(at(1), 5_100), 5_000.0);
        for second in 2..20 {
            rate.of(at(second), 5_100);
        }
        assert_eq!(rate.of(at(20), 5_100), 0.0);
    }
}
