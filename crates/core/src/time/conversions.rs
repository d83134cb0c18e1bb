//! Converts timestamps to and from text (RFC 3339) and the standard library's time.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Timestamp;

/// A text that is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a time: write it as 2018-04-15T01:23:45Z, with an offset such as +02:00 in place of Z if it is not UTC"
)]
pub struct InvalidTimestamp {
    text: String,
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    /// Reads RFC 3339: `2018-04-15T01:23:45.678Z` or `2018-04-15T03:23:45+02:00`. Parts of a millisecond are cut off.
    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        let invalid = |_| InvalidTimestamp { text: text.chars().take(64).collect() };
        let time = OffsetDateTime::parse(text.trim(), &Rfc3339).map_err(invalid)?;
        Ok(Self(i64::try_from(time.unix_timestamp_nanos().div_euclid(1_000_000)).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    /// `2018-04-15T01:23:45.000Z`; beyond the year 9999 the milliseconds since 1970.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(time) = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000) else {
            return write!(f, "{} ms after 1970-01-01", self.0);
        };
        let (date, (hours, minutes, seconds, ms)) = (time.date(), time.to_hms_milli());
        let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
        write!(f, "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(0) + after,
            Err(before) => Self(0) - before.duration(),
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let distance = Duration::from_millis(time.0.unsigned_abs());
        // 64 bits of milliseconds are less than a system time holds.
        let moved =
            if time.0 < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
        moved.unwrap_or(UNIX_EPOCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_written_as_dates_and_read_back() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_523_755_425_678, "2018-04-15T01:23:45.678Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (978_307_199_999, "2000-12-31T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (13_569_465_600_000, "2400-01-01T00:00:00.000Z"),
            (13_574_563_200_000, "2400-02-29T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp(ms).to_string(), text);
            assert_eq!(format!("{:?}", Timestamp(ms)), text);
            assert_eq!(text.parse(), Ok(Timestamp(ms)));
        }
        assert_eq!("2018-04-15T03:23:45.6789+02:00".parse(), Ok(Timestamp(1_523_755_425_678)));
        assert_eq!(Timestamp(i64::MAX).to_string(), format!("{} ms after 1970-01-01", i64::MAX));
        assert_eq!(Timestamp(i64::MIN).to_string(), format!("{} ms after 1970-01-01", i64::MIN));
    }

    #[test]
    fn a_text_that_is_not_a_time_is_refused_and_told_how_to_write_it() {
        for text in ["", "yesterday", "2018-04-15", "2018-02-30T00:00:00Z", "2018-04-15T01:23:45"] {
            let error = text.parse::<Timestamp>().unwrap_err().to_string();
            assert!(error.contains("write it as 2018-04-15T01:23:45Z"), "{error}");
        }
    }

    #[test]
    fn system_time_converts_both_ways() {
        for ms in [0, 1_523_755_425_678, -1_234, i64::MAX, i64::MIN] {
            let time = SystemTime::from(Timestamp(ms));
            if ms.unsigned_abs() < 1 << 50 {
                assert_eq!(Timestamp::from(time), Timestamp(ms));
            }
        }
        assert_eq!(Timestamp::from(UNIX_EPOCH - Duration::from_millis(3)), Timestamp(-3));
    }
}
