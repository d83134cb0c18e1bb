//! Reads and writes durations as whole numbers with units, such as `1m 30s`, for serde.
//!
//! ```
//! use std::time::Duration;
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Options {
//!     #[serde(with = "ephor_core::duration_setting")]
//!     wait: Duration,
//! }
//!
//! let options: Options = serde_json::from_str(r#"{"wait":"1m 30s"}"#).unwrap();
//! assert_eq!(options.wait, Duration::from_secs(90));
//! ```

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;

/// The units in nanoseconds, largest first.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// The error of a text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} {problem}; write whole numbers with the units d, h, m, s, ms, us or ns, such as \"30s\" or \"1m 30s\""
)]
pub struct InvalidDuration {
    given: String,
    problem: String,
}

/// Reads a duration: `30s`, `1m 30s`, `500ms`. Larger units come first, and each at most once.
pub fn parse(given: &str) -> Result<Duration, InvalidDuration> {
    let refuse = |problem: String| InvalidDuration { given: given.chars().take(80).collect(), problem };
    let mut rest = given.trim();
    if rest.is_empty() {
        return Err(refuse("is not a duration".into()));
    }
    let mut smaller_units = &UNITS[..];
    let mut nanos = 0_u128;
    while !rest.is_empty() {
        let (digits, after) = split_while(rest, |c| c.is_ascii_digit());
        let (unit, after) = split_while(after.trim_start(), |c| c.is_alphabetic());
        let number: u128 = match digits.parse() {
            Ok(number) => number,
            Err(_) if digits.is_empty() => return Err(refuse("is not a duration".into())),
            Err(_) => return Err(refuse("is too long".into())),
        };
        let Some(place) = smaller_units.iter().position(|(known, _)| *known == unit) else {
            return Err(refuse(match unit {
                "" => "has a number without a unit".into(),
                _ if UNITS.iter().any(|(known, _)| *known == unit) => {
                    format!("has the unit {unit:?} twice, or after a smaller one")
                }
                _ => format!("has the unknown unit {unit:?}"),
            }));
        };
        let part = number.checked_mul(smaller_units[place].1);
        nanos = part.and_then(|part| nanos.checked_add(part)).ok_or_else(|| refuse("is too long".into()))?;
        smaller_units = &smaller_units[place + 1..];
        rest = after.trim_start();
    }
    let seconds = u64::try_from(nanos / NANOS_OF_SECOND).map_err(|_| refuse("is too long".into()))?;
    Ok(Duration::new(seconds, (nanos % NANOS_OF_SECOND) as u32))
}

const NANOS_OF_SECOND: u128 = 1_000_000_000;

fn split_while(text: &str, matches: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !matches(c)).unwrap_or(text.len()))
}

/// Writes a duration so that [`parse`] reads the same: `1m 30s`, `0s`.
pub fn format(duration: Duration) -> String {
    let mut nanos = duration.as_nanos();
    let mut parts = vec![];
    for (unit, size) in UNITS {
        let number = nanos / size;
        nanos %= size;
        if number > 0 {
            parts.push(format!("{number}{unit}"));
        }
    }
    if parts.is_empty() { "0s".into() } else { parts.join(" ") }
}

/// Writes a duration; see [`format`].
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(*duration))
}

/// Writes a measured duration, in whole milliseconds.
pub fn millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serialize(&whole_millis(*duration), serializer)
}

fn whole_millis(duration: Duration) -> Duration {
    Duration::new(duration.as_secs(), duration.subsec_millis() * 1_000_000)
}

/// Reads a duration; see [`parse`].
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(Text)
}

struct Text;

impl Visitor<'_> for Text {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration as text with its unit, such as \"30s\" or \"1m 30s\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        parse(text).map_err(E::custom)
    }
}

/// The same for a duration that may be missing.
pub mod option {
    use std::fmt;
    use std::time::Duration;

    use serde::de::{self, Deserializer, Visitor};
    use serde::ser::Serializer;

    /// Writes a duration, or nothing.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.serialize_some(&super::format(*duration)),
            None => serializer.serialize_none(),
        }
    }

    /// Writes a measured duration in whole milliseconds, or nothing.
    pub fn millis<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&duration.map(super::whole_millis), serializer)
    }

    /// Reads a duration, or nothing.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        deserializer.deserialize_option(Optional)
    }

    struct Optional;

    impl<'de> Visitor<'de> for Optional {
        type Value = Option<Duration>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            super::Text.expecting(f)
        }

        fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            super::deserialize(deserializer).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_and_written_with_their_units() {
        for (text, duration) in [
            ("30s", Duration::from_secs(30)),
            ("1m 30s", Duration::from_secs(90)),
            ("500ms", Duration::from_millis(500)),
            ("1d 2h 3m 4s 5ms 6us 7ns", Duration::new(93_784, 5_006_007)),
            ("0s", Duration::ZERO),
        ] {
            assert_eq!(parse(text), Ok(duration));
            assert_eq!(format(duration), text);
        }
        for (text, seconds) in [("90s", 90), ("1m30s", 90), (" 2 h ", 7_200), ("0ms", 0)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_duration_is_refused_and_told_how_to_write_it() {
        for (text, part) in [
            ("", "is not a duration"),
            ("soon", "is not a duration"),
            ("-3s", "is not a duration"),
            ("30", "has a number without a unit"),
            ("1.5s", "has a number without a unit"),
            ("30 sec", "has the unknown unit \"sec\""),
            ("30S", "has the unknown unit \"S\""),
            ("30s 1m", "has the unit \"m\" twice, or after a smaller one"),
            ("1s 1s", "has the unit \"s\" twice"),
            ("99999999999999999999d", "is too long"),
            ("9999999999999999999999999999999999999999999s", "is too long"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(part) && error.contains("such as \"30s\" or \"1m 30s\""), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_written_duration_reads_back_as_it_was(seconds: u64, nanos in 0..1_000_000_000_u32) {
            let duration = Duration::new(seconds, nanos);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}
