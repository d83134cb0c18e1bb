//! Formats durations for people: in errors, tables and reports.

use std::time::Duration;

/// Writes a duration in two or three digits: `0.4 s`, `3 s`, `12 s`, `3m12s`, `5h07m`, `3d04h`. It is not meant to be read
/// back.
pub fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => {
            let tenths = format!("{:.1}", duration.as_secs_f64());
            format!("{} s", tenths.strip_suffix(".0").unwrap_or(&tenths))
        }
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_two_or_three_digits_and_a_unit() {
        for (millis, text) in [
            (0, "0 s"),
            (412, "0.4 s"),
            (3_000, "3 s"),
            (9_940, "9.9 s"),
            (10_000, "10 s"),
            (192_000, "3m12s"),
            (18_420_000, "5h07m"),
            (273_600_000, "3d04h"),
        ] {
            assert_eq!(duration_text(Duration::from_millis(millis)), text);
        }
    }
}
