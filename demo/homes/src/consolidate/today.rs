//! The current day of a home, minute by minute: four bits (a reading came, movement, door open, alarm open)
//! and their encoding.

use serde::{Deserialize, Serialize};

use crate::time::{CityTime, MINUTES_PER_DAY};

const PLANES: usize = 4;
const PLANE: usize = MINUTES_PER_DAY as usize / 8;

/// A day of a home, minute by minute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Packed", try_from = "Packed")]
pub struct Today {
    day: u32,
    /// One plane a mark, one bit a minute: equal bytes lie side by side, and pack well.
    planes: [[u8; PLANE]; PLANES],
}

impl Default for Today {
    fn default() -> Self {
        Self { day: 0, planes: [[0; PLANE]; PLANES] }
    }
}

impl Today {
    /// Something was heard of in this minute.
    pub const HEARD: u8 = 1;
    /// Somebody moved.
    pub const MOVEMENT: u8 = 2;
    /// The door was open.
    pub const DOOR: u8 = 4;
    /// An alarm was open.
    pub const ALARM: u8 = 8;

    /// Which day, counted from 1970.
    pub fn day(&self) -> u32 {
        self.day
    }

    /// The marks of a minute of the day: a sum of the constants.
    pub fn marks(&self, minute: u16) -> u8 {
        let (byte, bit) = place(minute);
        (0..PLANES)
            .filter(|plane| self.planes[*plane][byte] & bit != 0)
            .fold(0, |marks, plane| marks | 1 << plane)
    }

    /// The marks of all minutes.
    pub fn minutes(&self) -> Vec<u8> {
        (0..MINUTES_PER_DAY).map(|minute| self.marks(minute)).collect()
    }

    /// A day without marks.
    pub(super) fn of(day: u32) -> Self {
        Self { day, ..Self::default() }
    }

    /// Begins another day, if it is one.
    pub(super) fn turn_to(&mut self, day: u32) -> bool {
        let turns = self.day != day;
        if turns {
            *self = Self::of(day);
        }
        turns
    }

    /// Marks a minute of this day; gives those marks that are new.
    pub(super) fn mark(&mut self, minute: u16, marks: u8) -> u8 {
        let (byte, bit) = place(minute);
        let mut new = 0;
        for (plane, bytes) in self.planes.iter_mut().enumerate() {
            let mark = 1 << plane;
            if marks & mark != 0 && bytes[byte] & bit == 0 {
                bytes[byte] |= bit;
                new |= mark;
            }
        }
        new
    }

    /// Whether a moment lies in this day.
    pub(super) fn has(&self, at: CityTime) -> bool {
        at.day() == self.day
    }
}

/// The byte and the bit of a minute. A minute that no day has counts as the last.
fn place(minute: u16) -> (usize, u8) {
    let minute = minute.min(MINUTES_PER_DAY - 1);
    (usize::from(minute / 8), 1 << (minute % 8))
}

/// A day as it travels: runs of equal bytes, and bytes as they are. A byte up to 127 says that this many bytes plus one follow;
/// a higher one that the next byte stands for 126 fewer than it says.
#[derive(Serialize, Deserialize)]
struct Packed {
    day: u32,
    bytes: Vec<u8>,
}

/// The shortest run that is worth its two bytes.
const MIN_RUN: usize = 2;
const MAX_RUN: usize = 129;
const MAX_LITERALS: usize = 128;

impl From<Today> for Packed {
    fn from(today: Today) -> Self {
        let mut bytes = Vec::with_capacity(64);
        pack(today.planes.as_flattened(), &mut bytes);
        Self { day: today.day, bytes }
    }
}

fn pack(mut plain: &[u8], packed: &mut Vec<u8>) {
    let mut literals = 0;
    while literals < plain.len() {
        let rest = &plain[literals..];
        let run = rest.iter().take(MAX_RUN).take_while(|byte| **byte == rest[0]).count();
        if run < MIN_RUN {
            literals += 1;
            continue;
        }
        pack_literals(&plain[..literals], packed);
        packed.extend([(run + 126) as u8, rest[0]]);
        plain = &rest[run..];
        literals = 0;
    }
    pack_literals(plain, packed);
}

fn pack_literals(literals: &[u8], packed: &mut Vec<u8>) {
    for chunk in literals.chunks(MAX_LITERALS) {
        packed.push((chunk.len() - 1) as u8);
        packed.extend_from_slice(chunk);
    }
}

/// Minutes that are invalid: the object is damaged, or of another version.
#[derive(Debug, thiserror::Error)]
#[error("the minutes of a home are damaged: expected {PLANES} times {PLANE} bytes")]
pub(super) struct NoDay;

impl TryFrom<Packed> for Today {
    type Error = NoDay;

    fn try_from(packed: Packed) -> Result<Self, NoDay> {
        let mut today = Self::of(packed.day);
        unpack(&packed.bytes, today.planes.as_flattened_mut()).ok_or(NoDay)?;
        Ok(today)
    }
}

/// Fills all of `plain` with all of `packed`, or gives none.
fn unpack(mut packed: &[u8], mut plain: &mut [u8]) -> Option<()> {
    while let Some((control, rest)) = packed.split_first() {
        let control = usize::from(*control);
        let (from, count) =
            if control < MAX_LITERALS { (control + 1, control + 1) } else { (1, control - 126) };
        let (bytes, after) = rest.split_at_checked(from)?;
        let (target, left) = std::mem::take(&mut plain).split_at_mut_checked(count)?;
        if control < MAX_LITERALS {
            target.copy_from_slice(bytes);
        } else {
            target.fill(bytes[0]);
        }
        (packed, plain) = (after, left);
    }
    plain.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_day_travels_as_it_is(marks in proptest::collection::vec((0_u16..1_440, 1_u8..16, 1_u16..200), 0..40)) {
            let mut today = Today::of(77);
            for (first, marks, many) in marks {
                (first..(first + many).min(1_440)).for_each(|minute| {
                    today.mark(minute, marks);
                });
            }
            let packed = Packed::from(today.clone());
            prop_assert!(packed.bytes.len() <= 720 + 720 / 64);
            prop_assert_eq!(Today::try_from(packed).unwrap(), today);
        }

        #[test]
        fn damaged_minutes_are_an_error_or_a_day(bytes in proptest::collection::vec(any::<u8>(), 0..900)) {
            let _ = Today::try_from(Packed { day: 1, bytes });
        }
    }

    #[test]
    fn too_few_and_too_many_minutes_are_no_day() {
        let bytes = Packed::from(Today::of(1)).bytes;
        assert!(bytes.len() < 20, "an empty day is small");
        let short = bytes[..bytes.len() - 2].to_vec();
        let long = [bytes.as_slice(), &[0, 0]].concat();
        let cut = bytes[..bytes.len() - 1].to_vec();
        for bytes in [Vec::new(), short, long, cut] {
            let error = Today::try_from(Packed { day: 1, bytes }).unwrap_err();
            assert!(error.to_string().contains("are damaged"), "{error}");
        }
    }

    #[test]
    fn marks_add_up() {
        let mut today = Today::of(1);
        assert_eq!(today.mark(1_439, Today::HEARD), Today::HEARD);
        assert_eq!(today.mark(1_439, Today::HEARD | Today::ALARM), Today::ALARM, "only new minutes");
        assert_eq!((today.marks(1_439), today.marks(1_438)), (9, 0));
    }
}
