//! Tracks the seeds of a run that are done, and the next one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The seeds of a run. Several are played at a time, so they end out of order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Seeds {
    from: u64,
    end: u64,
    /// All seeds before this one are done.
    next: u64,
    /// Later seeds that are done.
    ahead: BTreeSet<u64>,
    /// All seeds before this one were handed out, in this process.
    #[serde(skip)]
    taken: u64,
}

impl Seeds {
    /// This many seeds, none of them done.
    pub(crate) fn new(from: u64, count: u64) -> Self {
        Self { from, end: from.saturating_add(count), next: from, ahead: BTreeSet::new(), taken: from }
    }

    /// Hands out a seed that has not been played and is not being played.
    pub(crate) fn take(&mut self) -> Option<u64> {
        self.taken = self.taken.max(self.next);
        while self.ahead.contains(&self.taken) {
            self.taken += 1;
        }
        let seed = self.taken;
        (seed < self.end).then(|| {
            self.taken += 1;
            seed
        })
    }

    /// Marks this seed as done.
    pub(crate) fn done(&mut self, seed: u64) {
        self.ahead.insert(seed);
        while self.ahead.remove(&self.next) {
            self.next += 1;
        }
    }

    /// The number of seeds that are done.
    pub(crate) fn count_done(&self) -> u64 {
        self.next - self.from + self.ahead.len() as u64
    }

    /// The number of all seeds.
    pub(crate) fn count(&self) -> u64 {
        self.end - self.from
    }

    /// True if these are the seeds of this run, and no more of them are done than there are.
    pub(crate) fn are(&self, from: u64, count: u64) -> bool {
        let within = (from..=from.saturating_add(count)).contains(&self.next);
        let ahead = self.ahead.iter().all(|seed| (self.next..self.end).contains(seed));
        (self.from, self.end) == (from, from.saturating_add(count)) && within && ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_seed_is_handed_out_once_and_unfinished_ones_again_after_a_stop() {
        let mut seeds = Seeds::new(10, 5);
        assert_eq!([seeds.take(), seeds.take(), seeds.take()], [Some(10), Some(11), Some(12)]);
        seeds.done(12);
        seeds.done(10);
        assert_eq!((seeds.count_done(), seeds.count()), (2, 5));
        // Seed 11 was under way when the process was stopped.
        let text = serde_json::to_string(&seeds).expect("plain data");
        let mut again: Seeds = serde_json::from_str(&text).expect("what was written");
        assert!(again.are(10, 5));
        assert_eq!(
            [again.take(), again.take(), again.take(), again.take()],
            [Some(11), Some(13), Some(14), None]
        );
        [11, 13, 14].into_iter().for_each(|seed| again.done(seed));
        assert_eq!(again.count_done(), 5);
    }

    #[test]
    fn impossible_seeds_are_detected() {
        let seeds = |text: &str| serde_json::from_str::<Seeds>(text).expect("well formed");
        assert!(seeds(r#"{"from":0,"end":9,"next":3,"ahead":[4]}"#).are(0, 9));
        assert!(!seeds(r#"{"from":0,"end":9,"next":3,"ahead":[4]}"#).are(0, 8));
        assert!(!seeds(r#"{"from":0,"end":9,"next":10,"ahead":[]}"#).are(0, 9));
        assert!(!seeds(r#"{"from":0,"end":9,"next":3,"ahead":[2]}"#).are(0, 9));
        assert!(!seeds(r#"{"from":0,"end":9,"next":3,"ahead":[9]}"#).are(0, 9));
    }
}
