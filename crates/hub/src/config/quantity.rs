//! Reads and writes sizes and durations such as `64MiB`, `500MB`, `7d`, `1500ms`.
//!
//! One whole number and one unit, whose case does not matter. Without a unit,
//! sizes are bytes and durations are seconds. A size or duration that is written reads back unchanged.

use std::time::Duration;

/// Largest first; every size is divisible by the last.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

/// In milliseconds, largest first.
const DURATION_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The error for a text that is not a size or a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} {problem}")]
pub struct InvalidQuantity {
    given: String,
    problem: String,
}

/// Reads a size in bytes: `2GiB`, `500MB`, `4096`.
pub fn parse_size(given: &str) -> Result<u64, InvalidQuantity> {
    let (number, unit) =
        split(given, "is not a size; write a whole number and a unit, such as 64MiB or 500MB")?;
    let factor = factor(&SIZE_UNITS, unit, 1).ok_or_else(|| {
        // "2G" is ambiguous (binary or decimal), so it is refused.
        let known: Vec<&str> = SIZE_UNITS.iter().rev().map(|(unit, _)| *unit).collect();
        refuse(given, format!("has the unknown unit {unit:?}; write one of {}", known.join(", ")))
    })?;
    number.checked_mul(factor).ok_or_else(|| refuse(given, "is more bytes than can be counted".into()))
}

/// Writes a size so that [`parse_size`] reads the same: in the unit that needs the smallest whole number.
pub fn format_size(bytes: u64) -> String {
    let exact = SIZE_UNITS.iter().filter(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    match exact.map(|(unit, factor)| (bytes / factor, *unit)).min_by_key(|(number, _)| *number) {
        Some((number, unit)) => format!("{number}{unit}"),
        None => "0B".into(),
    }
}

/// Writes a size for people, rounded down to a tenth: `70.4 GiB`, `512 B`. It is not meant to be read back.
pub(crate) fn show_size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = (bytes.max(1).ilog2() / 10) as usize;
    let tenths = (u128::from(bytes) * 10) >> (10 * power);
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {}", UNITS[power]),
        (whole, tenths) => format!("{whole}.{tenths} {}", UNITS[power]),
    }
}

/// Reads a duration: `7d`, `12h`, `30m`, `45s`, `1500ms`, or a number of seconds.
pub fn parse_duration(given: &str) -> Result<Duration, InvalidQuantity> {
    let (number, unit) =
        split(given, "is not a duration; write a whole number and a unit, such as 7d or 90m")?;
    let factor = factor(&DURATION_UNITS, unit, 1_000).ok_or_else(|| {
        let known: Vec<&str> = DURATION_UNITS.iter().map(|(unit, _)| *unit).collect();
        refuse(given, format!("has the unknown unit {unit:?}; write one of {}", known.join(", ")))
    })?;
    let millis = number.checked_mul(factor);
    millis
        .map(Duration::from_millis)
        .ok_or_else(|| refuse(given, "is longer than can be counted in milliseconds".into()))
}

/// Writes a duration so that [`parse_duration`] reads the same, as far as milliseconds go: in the largest
/// unit that leaves a whole number.
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let exact = DURATION_UNITS.iter().find(|(_, factor)| millis.is_multiple_of(u128::from(*factor)));
    match exact {
        Some((unit, factor)) if millis > 0 => format!("{}{unit}", millis / u128::from(*factor)),
        _ => "0s".into(),
    }
}

fn refuse(given: &str, problem: String) -> InvalidQuantity {
    InvalidQuantity { given: given.chars().take(80).collect(), problem }
}

/// The number and what follows it.
fn split<'a>(given: &'a str, problem: &str) -> Result<(u64, &'a str), InvalidQuantity> {
    let text = given.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    if number.is_empty() || !unit.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return Err(refuse(given, problem.into()));
    }
    Ok((number.parse().map_err(|_| refuse(given, "is too large a number".into()))?, unit))
}

fn factor(units: &[(&str, u64)], unit: &str, without: u64) -> Option<u64> {
    if unit.is_empty() {
        return Some(without);
    }
    units.iter().find(|(known, _)| known.eq_ignore_ascii_case(unit)).map(|(_, factor)| *factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_for_people_have_few_digits() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1 KiB"),
            (73_854_704 << 10, "70.4 GiB"),
            (5 << 30, "5 GiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(show_size(bytes), shown);
        }
    }

    #[test]
    fn sizes_are_read_in_binary_and_decimal_units() {
        for (text, bytes) in [
            ("2GiB", 2 << 30),
            ("64 MiB", 64 << 20),
            ("4kib", 4096),
            ("500MB", 500_000_000),
            ("3kB", 3000),
            ("1TB", 1_000_000_000_000),
            ("7B", 7),
            ("4096", 4096),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn durations_are_read_in_days_to_milliseconds() {
        for (text, seconds) in [("7d", 604_800), ("12h", 43_200), ("30m", 1_800), ("45 S", 45), ("90", 90)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse_duration("1500ms"), Ok(Duration::from_millis(1500)));
    }

    #[test]
    fn a_wrong_quantity_is_told_how_to_be_right() {
        let size = |text| parse_size(text).unwrap_err().to_string();
        assert_eq!(
            size("2G"),
            "\"2G\" has the unknown unit \"G\"; write one of B, kB, KiB, MB, MiB, GB, GiB, TB, TiB"
        );
        let no_size = "is not a size; write a whole number and a unit, such as 64MiB or 500MB";
        for text in ["", "MiB", "1.5GiB", "-1", "1GiB!"] {
            assert_eq!(size(text), format!("{text:?} {no_size}"));
        }
        assert_eq!(size("99999999999999999999"), "\"99999999999999999999\" is too large a number");
        assert_eq!(size("99999999TiB"), "\"99999999TiB\" is more bytes than can be counted");

        let duration = |text| parse_duration(text).unwrap_err().to_string();
        assert_eq!(duration("2w"), "\"2w\" has the unknown unit \"w\"; write one of d, h, m, s, ms");
        let no_duration = "is not a duration; write a whole number and a unit, such as 7d or 90m";
        for text in ["", "d", "1.5h", "1h30m", "soon"] {
            assert_eq!(duration(text), format!("{text:?} {no_duration}"));
        }
        assert_eq!(
            duration("999999999999999999d"),
            "\"999999999999999999d\" is longer than can be counted in milliseconds"
        );
    }

    #[test]
    fn quantities_are_written_in_the_unit_that_reads_best() {
        for (bytes, text) in
            [(0, "0B"), (64 << 20, "64MiB"), (500_000_000, "500MB"), (1 << 40, "1TiB"), (1025, "1025B")]
        {
            assert_eq!(format_size(bytes), text);
        }
        for (millis, text) in [(0, "0s"), (604_800_000, "7d"), (5_400_000, "90m"), (1_500, "1500ms")] {
            assert_eq!(format_duration(Duration::from_millis(millis)), text);
        }
    }

    proptest! {
        #[test]
        fn a_written_size_reads_back_as_it_was(bytes: u64, shift in 0..64_u32) {
            for bytes in [bytes, bytes >> shift, (bytes >> shift) << shift] {
                prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
            }
        }

        #[test]
        fn a_written_duration_reads_back_as_it_was(number in 0..u64::MAX / 86_400_000, unit in 0..5_usize) {
            let duration = Duration::from_millis(number * DURATION_UNITS[unit].1);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_a_reader_panic(text: String) {
            let _ = (parse_size(&text), parse_duration(&text));
        }
    }
}
