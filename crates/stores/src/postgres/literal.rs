//! Values within statements. Every value of every statement passes through here.
//!
//! Statements are sent by the simple protocol, with their values in them: one round trip, nothing prepared, and
//! so nothing that a pooler could send to another connection.

use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{GroupId, HostId};
use ephor_core::store::StoreError;

/// A text. The form with E reads the same whatever the server's settings say of backslashes; the encoding is
/// UTF-8 on every connection, so that a quote is a quote. (A NUL would end the statement: see `session.rs`.)
pub(super) fn text(value: &str) -> String {
    format!("E'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

pub(super) fn optional_text(value: Option<&str>) -> String {
    value.map_or_else(|| "NULL".to_owned(), text)
}

pub(super) fn host(host: Option<&HostId>) -> String {
    optional_text(host.map(ToString::to_string).as_deref())
}

pub(super) fn optional_number(value: Option<i64>) -> String {
    value.map_or_else(|| "NULL::bigint".to_owned(), |number| number.to_string())
}

pub(super) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A number for PostgreSQL, which counts to 2^63 - 1.
pub(super) fn stored(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number)
        .map_err(|_| StoreError::Refused { message: format!("{number} is beyond what PostgreSQL can count") })
}

pub(super) fn epoch(epoch: Epoch) -> Result<i64, StoreError> {
    stored(epoch.get())
}

/// An epoch to look for: one that PostgreSQL cannot count is none that it stored.
pub(super) fn epoch_to_match(epoch: Epoch) -> i64 {
    i64::try_from(epoch.get()).unwrap_or(-1)
}

/// An array of values that are literals already.
pub(super) fn array(values: impl Iterator<Item = String>, kind: &str) -> String {
    format!("ARRAY[{}]::{kind}[]", values.collect::<Vec<_>>().join(","))
}

/// A group as its records are keyed: its three names contain no spaces.
pub(super) fn group(group: &GroupId) -> String {
    text(&format!("{} {} {}", group.namespace, group.hub, group.group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_where_it_ends() {
        for (value, literal) in [
            ("", "E''"),
            ("plain", "E'plain'"),
            ("O'Brien", "E'O''Brien'"),
            ("'; DROP TABLE x; --", "E'''; DROP TABLE x; --'"),
            (r"\", r"E'\\'"),
            (r"\'", r"E'\\'''"),
            (r"a\nb", r"E'a\\nb'"),
            ("日本\n", "E'日本\n'"),
        ] {
            assert_eq!(text(value), literal);
        }
        assert_eq!(optional_text(None), "NULL");
        assert_eq!(array(["a", "b"].map(text).into_iter(), "text"), "ARRAY[E'a',E'b']::text[]");
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        assert_eq!(stored(i64::MAX as u64).unwrap(), i64::MAX);
        assert!(matches!(stored(1 << 63), Err(StoreError::Refused { .. })));
        assert_eq!(epoch_to_match(Epoch::MAX), i64::MAX);
        assert_eq!(epoch_to_match(Epoch::from_stored(1 << 63)), -1);
    }
}
