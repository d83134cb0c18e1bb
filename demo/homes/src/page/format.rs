//! Formats numbers, sizes and times for the page.

use crate::time::CityTime;

/// `1,204`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 alarm`, `2 alarms`.
pub(super) fn counted(number: u64, one: &str, more: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { more })
}

/// A length of time from milliseconds: `0.4 s`, `12 s`, `3 min`, `2 h`, `4 days`.
pub(super) fn span(milliseconds: u64) -> String {
    let seconds = milliseconds / 1_000;
    match seconds {
        0..10 => format!("{}.{} s", seconds, milliseconds % 1_000 / 100),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Bytes: `412 MiB`, `1.2 GiB`.
pub(super) fn bytes(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    match bytes / MIB {
        0..1_024 => format!("{} MiB", bytes / MIB),
        mib => format!("{}.{} GiB", mib / 1_024, mib % 1_024 * 10 / 1_024),
    }
}

/// A part of a whole in percent: `41 %`.
pub(super) fn percent(part: u32, whole: u32) -> String {
    let share = f64::from(part) / f64::from(whole.max(1));
    format!("{:.0} %", share * 100.0)
}

/// A moment as seen from another: `14:02`, `yesterday 23:59`, `3 days ago`.
pub(super) fn when(moment: CityTime, now: CityTime) -> String {
    match now.day().saturating_sub(moment.day()) {
        0 => moment.hours_and_minutes(),
        1 => format!("yesterday {}", moment.hours_and_minutes()),
        days => format!("{days} days ago"),
    }
}

/// How long ago a moment was, in the city's time: `just now`, `3 min ago`.
pub(super) fn ago(moment: CityTime, now: CityTime) -> String {
    match now.0.saturating_sub(moment.0) {
        0..60_000 => "just now".to_owned(),
        passed => format!("{} ago", span(passed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(counted(1, "alarm", "alarms"), "1 alarm");
        assert_eq!(counted(2_000, "alarm", "alarms"), "2,000 alarms");
        assert_eq!((percent(1, 3), percent(1, 0)), ("33 %".to_owned(), "100 %".to_owned()));
    }

    #[test]
    fn lengths_of_time_are_as_exact_as_they_need_to_be() {
        let spans = [0, 450, 9_999, 10_000, 59_999, 60_000, 3_600_000, 172_800_000].map(span);
        assert_eq!(spans, ["0.0 s", "0.4 s", "9.9 s", "10 s", "59 s", "1 min", "1 h", "2 days"]);
    }

    #[test]
    fn memory_has_a_fitting_unit() {
        assert_eq!([0, 412 << 20, 1_229 << 20].map(bytes), ["0 MiB", "412 MiB", "1.2 GiB"]);
    }

    #[test]
    fn moments_are_told_from_today() {
        let noon = CityTime(5 * 86_400_000 + 12 * 3_600_000);
        let before = |minutes: u64| CityTime(noon.0 - minutes * 60_000);
        assert_eq!(when(before(58), noon), "11:02");
        assert_eq!(when(before(721), noon), "yesterday 23:59");
        assert_eq!(when(before(3 * 1_440), noon), "3 days ago");
        assert_eq!(
            [0, 3, 120].map(|minutes| ago(before(minutes), noon)),
            ["just now", "3 min ago", "2 h ago"]
        );
        assert_eq!(ago(CityTime(noon.0 + 60_000), noon), "just now", "a clock that is ahead");
    }
}
