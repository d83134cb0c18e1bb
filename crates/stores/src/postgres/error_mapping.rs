//! Maps PostgreSQL's errors to store errors with a cause and advice.

use std::time::Duration;

use ephor_core::record::NoEpochLeft;
use ephor_core::store::RefusalCause::{
    self, AccessDenied, Incompatible, InvalidCredentials, NoSecureConnection, NotFound, Other,
};
use ephor_core::store::StoreError;
use tokio_rustls::rustls::{self, CertificateError};

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
    Refuses(RefusalCause),
    /// The data is damaged.
    Damages,
}

/// Classes by a prefix of the SQLSTATE; the first match counts.
const STATES: &[(&str, Class, &str)] = &[
    ("28P01", Class::Refuses(InvalidCredentials), "the password is wrong: correct the URL"),
    (
        "28",
        Class::Refuses(AccessDenied),
        "the server does not accept this user from this machine: see pg_hba.conf; where it asks for TLS, \
         leave sslmode out of the URL, or write sslmode=verify-full",
    ),
    ("3D000", Class::Refuses(NotFound), "there is no such database: create it, or correct the URL"),
    (
        "42501",
        Class::Refuses(AccessDenied),
        "this user lacks a right: it must own the schema, or be allowed to create it",
    ),
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
        Class::Refuses(NotFound),
        "a table is missing: drop the schema, which the next host creates again, or restore it",
    ),
    ("3F000", Class::Refuses(NotFound), "the schema is missing"),
    ("XX001", Class::Damages, "the server reports damaged data"),
    ("XX002", Class::Damages, "the server reports a damaged index: REINDEX may help"),
    ("40", Class::Passes, "too many calls changed the same records at the same time"),
    ("08", Class::Passes, "the connection is lost"),
    ("53", Class::Passes, "the server is short of a resource"),
    ("55", Class::Passes, "the server is not in a state to do this"),
    ("57", Class::Passes, "the server cancelled the statement"),
    ("58", Class::Passes, "the server's disk or operating system failed"),
    ("42", Class::Refuses(Incompatible), "the tables differ from those of this release"),
    ("22", Class::Refuses(Other), "the server rejects a value"),
    ("23", Class::Refuses(Other), "the server rejects a record"),
    ("0A", Class::Refuses(Incompatible), "the server cannot do this: PostgreSQL 12 or later is needed"),
];

const NO_TLS: (Class, &str) = (
    Class::Refuses(NoSecureConnection),
    "no secure connection: the server offers no TLS, and without it the password can be read on the way; switch \
     ssl on in postgresql.conf, or add sslmode=disable to the URL if you trust everybody on this network",
);

const NOT_TRUSTED: (Class, &str) = (
    Class::Refuses(NoSecureConnection),
    "no secure connection: this machine does not trust the issuer of the server's certificate; add \
     sslrootcert=FILE to the URL, with the certificate of that issuer. sslmode=require accepts any certificate, \
     if you trust everybody on this network",
);

const WRONG_NAME: (Class, &str) = (
    Class::Refuses(NoSecureConnection),
    "no secure connection: the server's certificate is for another name; name the host as the certificate does, \
     or give the server one for this name. sslmode=verify-ca accepts any name",
);

const EXPIRED: (Class, &str) = (
    Class::Refuses(NoSecureConnection),
    "no secure connection: the server's certificate is not valid at this time; renew it on the server, or set this \
     machine's clock right",
);

const NO_AGREEMENT: (Class, &str) = (
    Class::Refuses(NoSecureConnection),
    "no secure connection: this machine and the server agree on no version of TLS (TLS 1.2 or later is needed), or the \
     server requires a certificate of this host (sslcert and sslkey in the URL)",
);

const BAD_FILES: (Class, &str) = (
    Class::Refuses(NoSecureConnection),
    "no secure connection: a certificate or key that the URL names cannot be used, or its host is no name that a \
     certificate could have; correct the URL",
);

/// The driver's words for a server without TLS. It has no type for that.
const DECLINED: &str = "server does not support TLS";

fn of_certificate(error: &CertificateError) -> (Class, &'static str) {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext,
    };
    match error {
        NotValidForName | NotValidForNameContext { .. } => WRONG_NAME,
        Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. } => EXPIRED,
        _ => NOT_TRUSTED,
    }
}

/// The class and advice for an error of TLS; none if it does not say that TLS is set up wrongly.
fn of_tls(error: &rustls::Error) -> Option<(Class, &'static str)> {
    match error {
        rustls::Error::InvalidCertificate(error) => Some(of_certificate(error)),
        rustls::Error::AlertReceived(_) | rustls::Error::PeerIncompatible(_) => Some(NO_AGREEMENT),
        _ => None,
    }
}

/// The class and advice for an error of the driver before TLS, or of TLS.
fn of_driver(error: &(dyn std::error::Error + 'static)) -> (Class, &'static str) {
    match error.downcast_ref::<rustls::Error>() {
        Some(error) => of_tls(error).unwrap_or(NO_AGREEMENT),
        None if error.to_string() == DECLINED => NO_TLS,
        None => BAD_FILES,
    }
}

fn of_io(error: &std::io::Error) -> (Class, &'static str) {
    // The driver reports the errors of a handshake as those of the socket.
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()).and_then(of_tls);
    tls.unwrap_or((Class::Passes, "the server cannot be reached: is it up, and the URL right?"))
}

fn of_state(code: &str) -> (Class, &'static str) {
    let found = STATES.iter().find(|(state, _, _)| code.starts_with(state));
    found.map_or((Class::Passes, "the server reports an error"), |(_, class, advice)| (*class, *advice))
}

fn classify(error: &sqlx::Error) -> (Class, &'static str) {
    match error {
        sqlx::Error::Database(error) => of_state(error.code().as_deref().unwrap_or("")),
        sqlx::Error::Io(error) => of_io(error),
        sqlx::Error::Tls(error) => of_driver(&**error),
        sqlx::Error::Configuration(_) => (Class::Refuses(Other), "the URL cannot be used"),
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
        Class::Refuses(cause) => StoreError::refused(cause, message),
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
            ("28P01", Class::Refuses(InvalidCredentials), "password"),
            ("28000", Class::Refuses(AccessDenied), "pg_hba"),
            ("3D000", Class::Refuses(NotFound), "no such database"),
            ("42501", Class::Refuses(AccessDenied), "lacks a right"),
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
            ("42P01", Class::Refuses(NotFound), "table is missing"),
            ("42703", Class::Refuses(Incompatible), "differ from those of this release"),
            ("3F000", Class::Refuses(NotFound), "schema is missing"),
            ("22021", Class::Refuses(Other), "value"),
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
        use rustls::Error::{AlertReceived, InvalidCertificate};
        let at = rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_secs(7));
        for (error, words) in [
            (InvalidCertificate(CertificateError::UnknownIssuer), "sslrootcert=FILE"),
            (InvalidCertificate(CertificateError::BadSignature), "sslrootcert=FILE"),
            (InvalidCertificate(CertificateError::NotValidForName), "another name"),
            (InvalidCertificate(CertificateError::Expired), "clock"),
            (InvalidCertificate(CertificateError::ExpiredContext { time: at, not_after: at }), "clock"),
            (InvalidCertificate(CertificateError::NotValidYet), "clock"),
            (AlertReceived(rustls::AlertDescription::HandshakeFailure), "agree on no version"),
        ] {
            let io = std::io::Error::new(std::io::ErrorKind::InvalidData, error.clone());
            for error in [sqlx::Error::Tls(error.into()), sqlx::Error::Io(io)] {
                refuses(error, words);
            }
        }
        refuses(sqlx::Error::Tls(DECLINED.into()), "offers no TLS");
        refuses(sqlx::Error::Tls("Invalid certificate root.pem".into()), "correct the URL");
        let garbled = rustls::Error::DecryptError;
        let error = of(sqlx::Error::Io(std::io::Error::other(garbled)).into(), "postgres://ada@db/fleet");
        assert!(matches!(error, StoreError::Unavailable(_)), "a broken connection may pass: {error}");
    }

    fn refuses(error: sqlx::Error, words: &str) {
        let mapped = of(error.into(), "postgres://ada@db/fleet");
        assert_eq!(mapped.refusal_cause(), Some(NoSecureConnection), "{mapped}");
        assert!(mapped.to_string().contains(words), "{mapped}");
    }

    #[test]
    fn what_the_driver_says_is_classified() {
        let lost = sqlx::Error::Io(std::io::Error::other("gone"));
        assert!(is_broken(&lost) && !is_conflict(&lost) && !is_missing(&lost));
        let error = of(lost.into(), "postgres://ada@db/fleet");
        assert!(matches!(&error, StoreError::Unavailable(_)), "{error}");
        refuses(sqlx::Error::Tls("no".into()), "no secure connection");
    }
}
