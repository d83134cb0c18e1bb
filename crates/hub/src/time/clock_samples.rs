//! Hourly samples of the wall clock while the hub runs, kept across restarts.
//!
//! A sample that the wall clock has not contradicted for a day of running time proves that its time was right. Running
//! time counts in all, over restarts. So a hub that runs for some hours a day also counts the hours in which it is off.
//!
//! The file `time` of a log stores them (`journal/time_file.rs`); its format calls them marks.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::time::Timestamp;

use super::{DRIFT, TOLERANCE, TRUST_AFTER};

/// The running time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(60 * 60);

/// One sample for each hour of a day, and one that is older.
pub(crate) const MAX_CLOCK_SAMPLES: usize = 25;

/// The wall clock when the hub had run for `ran` in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockSample {
    pub(crate) ran: Duration,
    pub(crate) wall: Timestamp,
}

/// The running time of the hub in all, and its samples, oldest first. No two contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClockSamples {
    pub(crate) ran: Duration,
    /// Shared with the journal, which stores them.
    pub(crate) samples: Arc<[ClockSample]>,
}

impl Default for ClockSamples {
    fn default() -> Self {
        Self { ran: Duration::ZERO, samples: Arc::from([]) }
    }
}

impl ClockSamples {
    /// Adds running time.
    pub(crate) fn pass(&mut self, elapsed: Duration) {
        self.ran = self.ran.saturating_add(elapsed);
    }

    /// Whether a sample says that it is later than `wall`: then one of the two was wrong.
    pub(crate) fn contradict(&self, wall: Timestamp) -> bool {
        self.samples.iter().any(|sample| self.is_ahead(sample, wall))
    }

    /// Takes a sample if one is due, and drops those that `wall` contradicts.
    pub(crate) fn set(&mut self, wall: Timestamp) {
        let contradicted = self.contradict(wall);
        let due = self.samples.last().is_none_or(|last| self.since(last) >= SAMPLE_EVERY);
        if !contradicted && !due {
            return;
        }
        let mut samples: Vec<ClockSample> =
            self.samples.iter().filter(|sample| !self.is_ahead(sample, wall)).copied().collect();
        if due {
            samples.push(ClockSample { ran: self.ran, wall });
        }
        // Of the samples that are proven, the last one is enough.
        let proofs = samples.iter().filter(|sample| self.since(sample) >= TRUST_AFTER).count();
        let needless = proofs.saturating_sub(1).max(samples.len().saturating_sub(MAX_CLOCK_SAMPLES));
        self.samples = samples.split_off(needless).into();
    }

    /// Drops all samples and begins again with this one.
    pub(crate) fn begin_again(&mut self, wall: Timestamp) {
        self.samples = [ClockSample { ran: self.ran, wall }].into();
    }

    /// Returns the latest time that the samples prove.
    pub(crate) fn proof(&self) -> Option<Timestamp> {
        let proofs = self.samples.iter().filter(|sample| self.since(sample) >= TRUST_AFTER);
        proofs.map(|sample| sample.wall + self.since(sample)).max()
    }

    fn is_ahead(&self, sample: &ClockSample, wall: Timestamp) -> bool {
        let since = self.since(sample);
        sample.wall + since > wall + TOLERANCE + since / DRIFT
    }

    fn since(&self, sample: &ClockSample) -> Duration {
        self.ran.saturating_sub(sample.ran)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn pass(samples: &mut ClockSamples, hours: f64) {
        samples.pass(SAMPLE_EVERY.mul_f64(hours));
    }

    #[test]
    fn a_mark_proves_its_time_after_a_day_of_running_and_there_are_few() {
        let mut samples = ClockSamples::default();
        for hour in 0..1_000_i64 {
            // It runs for an hour a day.
            let wall = 24 * HOUR * hour;
            samples.set(Timestamp(wall));
            let proof = (hour >= 24).then(|| Timestamp(wall - 24 * 24 * HOUR + 24 * HOUR));
            assert_eq!(samples.proof(), proof, "hour {hour}");
            assert!(samples.samples.len() <= MAX_CLOCK_SAMPLES);
            pass(&mut samples, 0.5);
            samples.set(Timestamp(wall + HOUR / 2));
            pass(&mut samples, 0.5);
        }
    }

    #[test]
    fn marks_that_the_clock_contradicts_are_gone() {
        let mut samples = ClockSamples::default();
        for hour in 0..10 {
            samples.set(Timestamp(hour * HOUR));
            pass(&mut samples, 1.0);
        }
        assert!(!samples.contradict(Timestamp(10 * HOUR - 50_000)));
        assert!(samples.contradict(Timestamp(10 * HOUR - 120_000)));
        samples.set(Timestamp(10 * HOUR - 120_000));
        assert_eq!(samples.samples.len(), 1);
        pass(&mut samples, 23.9);
        assert_eq!(samples.proof(), None);
    }

    #[test]
    fn extreme_marks_do_not_overflow() {
        for wall in [i64::MAX, i64::MIN] {
            let sample = ClockSample { ran: Duration::from_millis(u64::MAX), wall: Timestamp(wall) };
            let mut samples = ClockSamples { ran: Duration::MAX, samples: [sample].into() };
            samples.pass(Duration::MAX);
            samples.set(Timestamp(-wall.saturating_add(1)));
            let _ = samples.proof();
        }
    }
}
