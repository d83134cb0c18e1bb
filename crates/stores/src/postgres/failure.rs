//! Maps PostgreSQL's errors to store errors that say what happened and what to do.

use std::time::Duration;

use ephor_core::record::NoEpochLeft;
use ephor_core::store::StoreError;

/// Why a call was not carried out.
#[derive(Debug)]
pub(super) enum Failure {
    Sqlx(sqlx::Error),
    Store(StoreError),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sqlx(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<NoEpochLeft> for Failure {
    fn from(error: NoEpochLeft) -> Self {
        Self::Store(error.into())
    }
}

pub(super) fn damaged(what: String) -> Failure {
    Failure::Store(StoreError::Damaged { what })
}

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// It may pass by itself.
    Passes,
    /// The server is overloaded.
    Throttles,
    /// An operator must act.
    Refuses,
    /// The data is damaged.
    Damages,
}

/// Classes by a prefix of the SQLSTATE; the first match counts.
const STATES: &[(&str, Class, &str)] = &[
    ("28P01", Class::Refuses, "the password is wrong: correct the URL"),
    (
        "28",
        Class::Refuses,
        "the server does not accept this user from this machine: see pg_hba.conf; where it asks for TLS, \
         leave sslmode out of the URL, or write sslmode=verify-full",
    ),
    ("3D000", Class::Refuses, "there is no such database: create it, or correct the URL"),
    ("42501", Class::Refuses, "this user lacks a right: it must own the schema, or be allowed to create it"),
    (
        "25006",
        Class::Passes,
        "the server accepts no writes: it is a standby, or this user is set to read only; name the primary",
    ),
    ("53300", Class::Throttles, "the server has no connection left: raise max_connections, or use a pooler"),
    ("53100", Class::Passes, "the server's disk is full: make room there"),
    (
        "55P03",
        Class::Passes,
        "a transaction holds the checkpoint of this partition: one that saves in its own transaction should commit soon",
    ),
    ("57P", Class::Passes, "the server is starting or stopping: wait"),
    (
        "42P01",
        Class::Refuses,
        "a table is missing: drop the schema, which the next host creates again, or restore it",
    ),
    ("3F000", Class::Refuses, "the schema is missing"),
    ("XX001", Class::Damages, "the server reports damaged data"),
    ("XX002", Class::Damages, "the server reports a damaged index: REINDEX may help"),
    ("40", Class::Passes, "too many calls changed the same records at the same time"),
    ("08", Class::Passes, "the connection is lost"),
    ("53", Class::Passes, "the server is short of a resource"),
    ("55", Class::Passes, "the server is not in a state to do this"),
    ("57", Class::Passes, "the server cancelled the statement"),
    ("58", Class::Passes, "the server's disk or operating system failed"),
    ("42", Class::Refuses, "the tables differ from those of this release"),
    ("22", Class::Refuses, "the server rejects a value"),
    ("23", Class::Refuses, "the server rejects a record"),
    ("0A", Class::Refuses, "the server cannot do this: PostgreSQL 12 or later is needed"),
];

const NO_TLS: (Class, &str) = (
    Class::Refuses,
    "no secure connection: the server offers no TLS, and without it the password can be read on the way; switch \
     ssl on in postgresql.conf, or add sslmode=disable to the URL if you trust everybody on this network",
);

const NOT_TRUSTED: (Class, &str) = (
    Class::Refuses,
    "no secure connection: this machine does not trust the issuer of the server's certificate; add \
     sslrootcert=FILE to the URL, with the certificate of that issuer. sslmode=require accepts any certificate, \
     if you trust everybody on this network",
);

const WRONG_NAME: (Class, &str) = (
    Class::Refuses,
    "no secure connection: the server's certificate is for another name; name the host as the certificate does, \
     or give the server one for this name. sslmode=verify-ca accepts any name",
);

const EXPIRED: (Class, &str) = (
    Class::Refuses,
    "no secure connection: the server's certificate is not valid at this time; renew it on the server, or set this \
     machine's clock right",
);

const NO_AGREEMENT: (Class, &str) = (
    Class::Refuses,
    "no secure connection: this machine and the server agree on no version of TLS (TLS 1.2 or later is needed), or the \
     server requires a certificate of this host (sslcert and sslkey in the URL)",
);

/// Errors of certificates, by the words of the TLS library.
const CERTIFICATES: &[(&str, (Class, &str))] = &[
    ("UnknownIssuer", NOT_TRUSTED),
    ("BadSignature", NOT_TRUSTED),
    ("CaUsedAsEndEntity", NOT_TRUSTED),
    ("not valid for", WRONG_NAME),
    ("NotValidForName", WRONG_NAME),
    ("expired", EXPIRED),
    ("Expired", EXPIRED),
    ("not valid yet", EXPIRED),
    ("NotValidYet", EXPIRED),
];

fn of_tls(text: &str) -> (Class, &'static str) {
    match CERTIFICATES.iter().find(|(words, _)| text.contains(words)) {
        Some((_, known)) => *known,
        None if text.contains(DECLINED) => NO_TLS,
        None if text.contains("peer certificate") => NOT_TRUSTED,
        None => NO_AGREEMENT,
    }
}

/// Whether an I/O error is one of TLS.
fn is_of_tls(text: &str) -> bool {
    ["certificate", "HandshakeFailure", "ProtocolVersion", "fatal alert"]
        .iter()
        .any(|word| text.contains(word))
}

/// The driver's words for a server without TLS.
const DECLINED: &str = "does not support TLS";

fn of_state(code: &str) -> (Class, &'static str) {
    let found = STATES.iter().find(|(state, _, _)| code.starts_with(state));
    found.map_or((Class::Passes, "the server reports an error"), |(_, class, advice)| (*class, *advice))
}

fn classify(error: &sqlx::Error) -> (Class, &'static str) {
    match error {
        sqlx::Error::Database(error) => of_state(error.code().as_deref().unwrap_or("")),
        // The driver reports an untrusted certificate as an I/O error.
        sqlx::Error::Io(error) if is_of_tls(&error.to_string()) => of_tls(&error.to_string()),
        sqlx::Error::Tls(error) => of_tls(&error.to_string()),
        sqlx::Error::Io(_) => (Class::Passes, "the server cannot be reached: is it up, and the URL right?"),
        sqlx::Error::Configuration(_) => (Class::Refuses, "the URL cannot be used"),
        _ => (Class::Passes, "the server sent an unreadable answer"),
    }
}

/// The store error for the caller. `place` is the URL without its password.
pub(super) fn of(failure: Failure, place: &str) -> StoreError {
    let error = match failure {
        Failure::Store(error) => return error,
        Failure::Sqlx(error) => error,
    };
    let (class, advice) = classify(&error);
    let message = format!("{place}: {advice} ({error})");
    match class {
        Class::Passes => StoreError::Unavailable(message.into()),
        Class::Throttles => StoreError::Throttled(message.into()),
        Class::Refuses => StoreError::Refused { message },
        Class::Damages => StoreError::Damaged { what: message },
    }
}

pub(super) fn too_late(place: &str, limit: Duration) -> StoreError {
    let message = format!("{place}: no answer within {limit:?}: is the server up, and not overloaded?");
    StoreError::Unavailable(message.into())
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(|code| code.into_owned())
}

/// Whether the statement was rolled back because of a conflict with another one.
pub(super) fn is_conflict(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| code == "40001" || code == "40P01")
}

/// Whether the connection is lost or the server closes it.
pub(super) fn is_broken(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => true,
        _ => code(error).is_some_and(|code| code.starts_with("57P") || code.starts_with("08")),
    }
}

/// Whether tables are missing.
pub(super) fn is_missing(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| code == "42P01" || code == "3F000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_of_one_class() {
        for (code, class, words) in [
            ("28P01", Class::Refuses, "password"),
            ("28000", Class::Refuses, "pg_hba"),
            ("3D000", Class::Refuses, "no such database"),
            ("42501", Class::Refuses, "lacks a right"),
            ("25006", Class::Passes, "primary"),
            ("53300", Class::Throttles, "max_connections"),
            ("53100", Class::Passes, "disk is full"),
            ("53200", Class::Passes, "short of"),
            ("55P03", Class::Passes, "commit soon"),
            ("57P01", Class::Passes, "starting or stopping"),
            ("57P03", Class::Passes, "starting or stopping"),
            ("57014", Class::Passes, "cancelled the statement"),
            ("40001", Class::Passes, "same records"),
            ("40P01", Class::Passes, "same records"),
            ("08006", Class::Passes, "lost"),
            ("58030", Class::Passes, "disk"),
            ("42P01", Class::Refuses, "table is missing"),
            ("42703", Class::Refuses, "differ from those of this release"),
            ("3F000", Class::Refuses, "schema is missing"),
            ("22021", Class::Refuses, "value"),
            ("XX001", Class::Damages, "damaged"),
            ("XX002", Class::Damages, "damaged"),
            ("XX000", Class::Passes, "an error"),
            ("99999", Class::Passes, "an error"),
            ("", Class::Passes, "an error"),
        ] {
            let (found, advice) = of_state(code);
            assert_eq!(found, class, "{code}");
            assert!(advice.contains(words), "{code}: {advice}");
        }
    }

    #[test]
    fn no_state_is_hidden_by_one_before_it() {
        for (index, (state, _, _)) in STATES.iter().enumerate() {
            let first = STATES.iter().position(|(other, _, _)| state.starts_with(other));
            assert_eq!(first, Some(index), "{state}");
        }
    }

    #[test]
    fn what_is_wrong_with_tls_is_told_apart() {
        for (said, words) in [
            ("invalid peer certificate: UnknownIssuer", "sslrootcert=FILE"),
            ("invalid peer certificate: BadSignature", "sslrootcert=FILE"),
            ("invalid peer certificate: certificate not valid for name \"db\"; it is for x", "another name"),
            ("invalid peer certificate: NotValidForName", "another name"),
            ("invalid peer certificate: certificate expired: verified at time 7", "clock"),
            ("invalid peer certificate: NotValidYet", "clock"),
            ("received fatal alert: HandshakeFailure", "agree on no version"),
            ("server does not support TLS", "offers no TLS"),
        ] {
            for error in [sqlx::Error::Tls(said.into()), sqlx::Error::Io(std::io::Error::other(said))] {
                if matches!(error, sqlx::Error::Io(_)) && said.contains(DECLINED) {
                    continue;
                }
                let mapped = of(error.into(), "postgres://ada@db/fleet");
                assert!(
                    matches!(&mapped, StoreError::Refused { message } if message.contains(words)),
                    "{mapped}"
                );
            }
        }
    }

    #[test]
    fn what_the_driver_says_is_classified() {
        let lost = sqlx::Error::Io(std::io::Error::other("gone"));
        assert!(is_broken(&lost) && !is_conflict(&lost) && !is_missing(&lost));
        let error = of(lost.into(), "postgres://ada@db/fleet");
        assert!(matches!(&error, StoreError::Unavailable(_)), "{error}");
        let tls = of(sqlx::Error::Tls("no".into()).into(), "postgres://ada@db/fleet");
        assert!(
            matches!(&tls, StoreError::Refused { message } if message.contains("no secure connection")),
            "{tls}"
        );
    }
}
