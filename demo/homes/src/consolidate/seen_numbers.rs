//! Detects repeated readings of a sensor: keeps the highest number that was counted, and the missing ones
//! of the last 64.

use serde::{Deserialize, Serialize};

/// Numbers that are told apart, up to the highest; older ones count as repeats.
const WINDOW: u32 = 64;

/// The numbers seen of one sensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    highest: u32,
    /// Bit `i` stands for `highest - i`. A sensor that loses nothing has 0 here, which travels as one byte.
    missing: u64,
}

/// The kind of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Higher than all before it.
    Newest,
    /// Not seen before, but a higher one was.
    Late,
    /// Seen before, or too old to tell.
    Repeat,
}

impl Seen {
    /// Counts a number, and returns its kind.
    pub(super) fn note(&mut self, number: u32) -> Arrival {
        if number > self.highest {
            let step = number - self.highest;
            // Those between are missing: bits 1 to step - 1.
            self.missing =
                if step >= WINDOW { !1 } else { (self.missing << step) | (((1_u64 << step) - 1) & !1) };
            self.highest = number;
            return Arrival::Newest;
        }
        let age = self.highest - number;
        if number == 0 || age >= WINDOW || self.missing & (1 << age) == 0 {
            return Arrival::Repeat;
        }
        self.missing &= !(1 << age);
        Arrival::Late
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_window_ends_after_64_numbers() {
        let mut seen = Seen::default();
        assert_eq!(seen.note(100), Arrival::Newest);
        assert_eq!(seen.note(37), Arrival::Late, "63 before the highest is in the window");
        assert_eq!(seen.note(37), Arrival::Repeat);
        assert_eq!(
            seen.note(36),
            Arrival::Repeat,
            "64 before the highest counts as a repeat, though it never came"
        );
        assert_eq!(seen.note(100), Arrival::Repeat);
        assert_eq!(seen.note(163), Arrival::Newest);
        assert_eq!(seen.note(100), Arrival::Repeat, "63 before the highest, and seen");
        assert_eq!(seen.note(101), Arrival::Late);
        assert_eq!(seen.note(0), Arrival::Repeat, "there is no number 0");
    }

    #[test]
    fn a_sensor_that_loses_nothing_has_nothing_missing() {
        let mut seen = Seen::default();
        for number in 1..1_000 {
            assert_eq!(seen.note(number), Arrival::Newest);
            assert_eq!(seen, Seen { highest: number, missing: 0 });
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn each_number_is_counted_once(numbers in proptest::collection::vec(1_u32..300, 0..400)) {
            let (mut seen, mut all, mut highest) = (Seen::default(), BTreeSet::new(), 0);
            for number in numbers {
                let expected = if number > highest {
                    Arrival::Newest
                } else if highest - number < WINDOW && !all.contains(&number) {
                    Arrival::Late
                } else {
                    Arrival::Repeat
                };
                prop_assert_eq!(seen.note(number), expected);
                highest = highest.max(number);
                all.insert(number);
            }
        }
    }
}
