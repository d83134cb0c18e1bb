//! Remembers over restarts what the wall clock said while the hub ran, hour by hour.
//!
//! A mark that no look at the clocks contradicted for a day of running time proves that it was that late then: in all,
//! however often the hub was off in between. So a hub that runs for some hours a day counts the others, too.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::time::Timestamp;

use super::{DRIFT, TOLERANCE, TRUST_AFTER};

/// How much running time is between two marks.
const MARK_EVERY: Duration = Duration::from_secs(60 * 60);

/// As many marks as a day has hours, and the one that is older.
pub(crate) const MAX_MARKS: usize = 25;

/// What the wall clock said when the hub had run for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) ran: Duration,
    pub(crate) wall: Timestamp,
}

/// How long the hub ran in all, and marks on the way, the oldest first. None contradicts another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) ran: Duration,
    /// Shared with whoever writes them down.
    pub(crate) marks: Arc<[Mark]>,
}

impl Default for Marks {
    fn default() -> Self {
        Self { ran: Duration::ZERO, marks: Arc::from([]) }
    }
}

impl Marks {
    /// The hub ran for so much longer.
    pub(crate) fn pass(&mut self, elapsed: Duration) {
        self.ran = self.ran.saturating_add(elapsed);
    }

    /// Whether a mark says that it is later: then one of the two clocks was wrong.
    pub(crate) fn contradict(&self, wall: Timestamp) -> bool {
        self.marks.iter().any(|mark| self.is_ahead(mark, wall))
    }

    /// Sets a mark when it is time for one, and takes away those that it contradicts.
    pub(crate) fn set(&mut self, wall: Timestamp) {
        let contradicted = self.contradict(wall);
        let due = self.marks.last().is_none_or(|last| self.since(last) >= MARK_EVERY);
        if !contradicted && !due {
            return;
        }
        let mut marks: Vec<Mark> =
            self.marks.iter().filter(|mark| !self.is_ahead(mark, wall)).copied().collect();
        if due {
            marks.push(Mark { ran: self.ran, wall });
        }
        // Of those that prove something the last proves most.
        let proofs = marks.iter().filter(|mark| self.since(mark) >= TRUST_AFTER).count();
        let needless = proofs.saturating_sub(1).max(marks.len().saturating_sub(MAX_MARKS));
        self.marks = marks.split_off(needless).into();
    }

    /// Nothing that was marked counts any more.
    pub(crate) fn begin_again(&mut self, wall: Timestamp) {
        self.marks = [Mark { ran: self.ran, wall }].into();
    }

    /// How late it is at least.
    pub(crate) fn proof(&self) -> Option<Timestamp> {
        let proofs = self.marks.iter().filter(|mark| self.since(mark) >= TRUST_AFTER);
        proofs.map(|mark| mark.wall + self.since(mark)).max()
    }

    fn is_ahead(&self, mark: &Mark, wall: Timestamp) -> bool {
        let since = self.since(mark);
        mark.wall + since > wall + TOLERANCE + since / DRIFT
    }

    fn since(&self, mark: &Mark) -> Duration {
        self.ran.saturating_sub(mark.ran)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn pass(marks: &mut Marks, hours: f64) {
        marks.pass(MARK_EVERY.mul_f64(hours));
    }

    #[test]
    fn a_mark_proves_its_time_after_a_day_of_running_and_there_are_few() {
        let mut marks = Marks::default();
        for hour in 0..1_000_i64 {
            // It runs for an hour a day.
            let wall = 24 * HOUR * hour;
            marks.set(Timestamp(wall));
            let proof = (hour >= 24).then(|| Timestamp(wall - 24 * 24 * HOUR + 24 * HOUR));
            assert_eq!(marks.proof(), proof, "hour {hour}");
            assert!(marks.marks.len() <= MAX_MARKS);
            pass(&mut marks, 0.5);
            marks.set(Timestamp(wall + HOUR / 2));
            pass(&mut marks, 0.5);
        }
    }

    #[test]
    fn marks_that_the_clock_contradicts_are_gone() {
        let mut marks = Marks::default();
        for hour in 0..10 {
            marks.set(Timestamp(hour * HOUR));
            pass(&mut marks, 1.0);
        }
        assert!(!marks.contradict(Timestamp(10 * HOUR - 50_000)));
        assert!(marks.contradict(Timestamp(10 * HOUR - 120_000)));
        marks.set(Timestamp(10 * HOUR - 120_000));
        assert_eq!(marks.marks.len(), 1);
        pass(&mut marks, 23.9);
        assert_eq!(marks.proof(), None);
    }

    #[test]
    fn extreme_marks_do_not_overflow() {
        for wall in [i64::MAX, i64::MIN] {
            let mark = Mark { ran: Duration::from_millis(u64::MAX), wall: Timestamp(wall) };
            let mut marks = Marks { ran: Duration::MAX, marks: [mark].into() };
            marks.pass(Duration::MAX);
            marks.set(Timestamp(-wall.saturating_add(1)));
            let _ = marks.proof();
        }
    }
}
