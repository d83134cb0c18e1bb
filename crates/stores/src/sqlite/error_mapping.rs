//! Maps SQLite's errors to store errors with a cause and advice.

use std::path::Path;

use ephor_core::store::{RefusalCause, StoreError};
use rusqlite::ErrorCode;

use super::records::TransactionError;

/// The kinds of errors, by SQLite's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Busy,
    Full,
    ReadOnly,
    Permission,
    NotADatabase,
    Corrupt,
    /// A failing disk, too little memory and the like: it may pass.
    Other,
}

/// Whether an error is an I/O error.
pub(super) fn is_io(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
}

pub(super) fn kind(error: &rusqlite::Error) -> Kind {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    // The tables are STRICT: another program has changed the file.
    if let InvalidColumnType(..)
    | FromSqlConversionFailure(..)
    | IntegralValueOutOfRange(..)
    | Utf8Error(..) = error
    {
        return Kind::Corrupt;
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Kind::Busy,
        Some(ErrorCode::DiskFull) => Kind::Full,
        Some(ErrorCode::ReadOnly) => Kind::ReadOnly,
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => Kind::Permission,
        Some(ErrorCode::NotADatabase) => Kind::NotADatabase,
        Some(ErrorCode::DatabaseCorrupt) => Kind::Corrupt,
        _ => Kind::Other,
    }
}

/// The advice for an error of a file that was opened successfully.
pub(super) fn advice(kind: Kind, path: &Path) -> String {
    let path = path.display();
    match kind {
        Kind::Busy => format!("another process holds the write lock of {path}"),
        Kind::Full => {
            format!("the disk that holds {path} is full: free some space; no restart is needed")
        }
        Kind::ReadOnly => {
            format!("{path} cannot be written: make the file, its folder and its disk writable")
        }
        Kind::Permission => format!("this user may not open {path}: give it access to the file"),
        Kind::NotADatabase | Kind::Corrupt => format!(
            "{path} is damaged: stop all hosts, move it aside together with {path}-wal and {path}-shm, and \
             put a backup in its place"
        ),
        Kind::Other => format!("{path} cannot be read or written"),
    }
}

/// The store error of a failed transaction.
pub(super) fn of_transaction(error: TransactionError, path: &Path) -> StoreError {
    match error {
        TransactionError::Damaged(what) => StoreError::Damaged { what },
        TransactionError::Refused(cause, message) => StoreError::refused(cause, message),
        TransactionError::Sqlite(error) => of_sqlite(&error, path),
    }
}

fn of_sqlite(error: &rusqlite::Error, path: &Path) -> StoreError {
    let kind = kind(error);
    let message = format!("{}: {error}", advice(kind, path));
    match kind {
        Kind::Busy | Kind::Full | Kind::Other => StoreError::Unavailable(message.into()),
        Kind::ReadOnly | Kind::Permission => StoreError::refused(RefusalCause::AccessDenied, message),
        Kind::NotADatabase | Kind::Corrupt => StoreError::refused(RefusalCause::Other, message),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn store_error(code: i32) -> StoreError {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        of_transaction(TransactionError::Sqlite(error), Path::new("/data/ephor.db"))
    }

    #[test]
    fn a_value_that_no_table_lets_in_is_damage() {
        let error = rusqlite::Error::InvalidColumnType(0, "drain".into(), rusqlite::types::Type::Text);
        let mapped = of_transaction(TransactionError::Sqlite(error), Path::new("/data/ephor.db"));
        assert!(
            matches!(&mapped, StoreError::Refused { message, .. } if message.contains("is damaged")),
            "{mapped}"
        );
    }

    #[test]
    fn what_passes_by_itself_is_unavailable_and_what_needs_a_person_is_refused() {
        for (code, passes, words) in [
            (ffi::SQLITE_BUSY, true, "write lock"),
            (ffi::SQLITE_LOCKED, true, "write lock"),
            (ffi::SQLITE_FULL, true, "is full: free some space"),
            (ffi::SQLITE_IOERR, true, "cannot be read or written"),
            (ffi::SQLITE_IOERR_SHMSIZE, true, "cannot be read or written"),
            (ffi::SQLITE_NOMEM, true, "cannot be read or written"),
            (ffi::SQLITE_READONLY, false, "cannot be written: make"),
            (ffi::SQLITE_PERM, false, "this user may not open"),
            (ffi::SQLITE_CORRUPT, false, "put a backup in its place"),
            (ffi::SQLITE_NOTADB, false, "put a backup in its place"),
        ] {
            let error = store_error(code);
            assert_eq!(matches!(error, StoreError::Unavailable(_)), passes, "{error}");
            assert_eq!(matches!(error, StoreError::Refused { .. }), !passes, "{error}");
            let text = error.to_string();
            assert!(text.contains(words) && text.contains("/data/ephor.db"), "{text}");
        }
    }
}
