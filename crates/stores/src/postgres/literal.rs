//! Encodes values as SQL literals: texts, names, times, epochs, arrays. Every text of a record or a request
//! is encoded here.
//!
//! Statements use the simple protocol, with their values in the text: one round trip and no prepared
//! statement, which a pooler could lose by choosing another connection.

use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{GroupId, HostId};
use ephor_core::store::{RefusalCause, StoreError};

/// A text. The form with E does not depend on the server's setting for backslashes. The encoding is UTF-8
/// on every connection, so that no quote is part of another character. `session.rs` refuses NUL, which
/// would end the statement.
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

/// A number as PostgreSQL stores it: at most 2^63 - 1.
pub(super) fn stored(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| {
        let message = format!("{number} exceeds the largest number that PostgreSQL stores");
        StoreError::refused(RefusalCause::Other, message)
    })
}

pub(super) fn epoch(epoch: Epoch) -> Result<i64, StoreError> {
    stored(epoch.get())
}

/// An epoch for a comparison. One that PostgreSQL cannot store matches no row.
pub(super) fn epoch_to_match(epoch: Epoch) -> i64 {
    i64::try_from(epoch.get()).unwrap_or(-1)
}

/// An array of literals.
pub(super) fn array(values: impl Iterator<Item = String>, kind: &str) -> String {
    format!("ARRAY[{}]::{kind}[]", values.collect::<Vec<_>>().join(","))
}

/// The key of a group: its three names, which contain no spaces, separated by spaces.
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
