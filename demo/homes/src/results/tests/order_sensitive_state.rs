//! Test helper: a state that differs if events are applied in the wrong order, twice, or not at all.

use serde::{Deserialize, Serialize};

use crate::consolidate::Consolidation;
use crate::reading::Reading;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OrderSensitiveState {
    last: Option<u64>,
    count: u64,
    sum: u64,
    pub(super) replayed: u64,
    #[serde(skip)]
    changed: bool,
}

impl OrderSensitiveState {
    /// Whether it is what the events 1 to its last one make, each folded once and in order.
    pub(super) fn is_right(&self) -> bool {
        let mut right = Self::default();
        (1..=self.last.unwrap_or(0)).for_each(|sequence| right.add(sequence));
        (self.last, self.count, self.sum) == (right.last, right.count, right.sum)
    }

    fn add(&mut self, sequence: u64) {
        self.last = Some(sequence);
        self.count += 1;
        self.sum = self.sum.wrapping_mul(31).wrapping_add(sequence);
    }
}

impl Consolidation for OrderSensitiveState {
    /// Absolute values, as `Homes` has them: two updates that were made side by side do not add up.
    type Update = Self;

    fn fold(&mut self, sequence: u64, _: &Reading) {
        self.skip(sequence);
    }

    fn skip(&mut self, sequence: u64) {
        self.changed = true;
        if self.last.is_none_or(|last| sequence > last) {
            self.add(sequence);
        } else {
            self.replayed += 1;
        }
    }

    fn take_update(&mut self) -> Option<Self> {
        std::mem::take(&mut self.changed).then(|| self.clone())
    }

    fn apply(&mut self, update: Self) {
        *self = update;
    }

    fn last(&self) -> Option<u64> {
        self.last
    }
}
