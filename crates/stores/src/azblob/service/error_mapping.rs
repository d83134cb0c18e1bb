//! Maps the service's errors to store errors with a cause and advice. They contain no secret.

use std::error::Error as _;
use std::time::Duration;

use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::HeaderName;
use azure_core::time::parse_rfc7231;
use ephor_core::store::RefusalCause::{
    self, AccessDenied, Incompatible, InvalidCredentials, NotFound, Other,
};
use ephor_core::store::{StoreError, Throttling};
use ephor_core::time::Timestamp;

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// It may pass by itself.
    Passes,
    /// The service throttles.
    Throttles,
    /// An operator must act.
    Refuses(RefusalCause),
}

const NO_RIGHT: &str = "the key, signature or role lacks a right: it must allow to read, list, write and delete \
                        blobs (the role Storage Blob Data Contributor; in a signature the letters racwdl)";
const NOT_LET_IN: &str = "the account refuses access: the key or signature is not of this account, has expired, or \
                          lacks a right (the role Storage Blob Data Contributor; in a signature the letters racwdl), or the account's \
                          network rules keep this machine out";
const NO_CONTAINER: &str = "the container does not exist: create it, or correct its name";
const SIGNED_WRONG: &str = "the service does not accept the key or signature: is it of this account, whole, not \
                            expired and not replaced, and is this machine's clock right to a few minutes?";

/// Classes and advice by the service's error code.
const CODES: &[(&str, Class, &str)] = &[
    ("AuthenticationFailed", Class::Refuses(InvalidCredentials), SIGNED_WRONG),
    ("InvalidAuthenticationInfo", Class::Refuses(InvalidCredentials), SIGNED_WRONG),
    ("NoAuthenticationInformation", Class::Refuses(InvalidCredentials), SIGNED_WRONG),
    ("AuthorizationFailure", Class::Refuses(AccessDenied), NOT_LET_IN),
    ("AuthorizationPermissionMismatch", Class::Refuses(AccessDenied), NO_RIGHT),
    ("AuthorizationResourceTypeMismatch", Class::Refuses(AccessDenied), NO_RIGHT),
    ("AuthorizationServiceMismatch", Class::Refuses(AccessDenied), NO_RIGHT),
    ("InsufficientAccountPermissions", Class::Refuses(AccessDenied), NO_RIGHT),
    (
        "AuthorizationProtocolMismatch",
        Class::Refuses(InvalidCredentials),
        "this signature is for https only: use an https endpoint",
    ),
    (
        "AuthorizationSourceIPMismatch",
        Class::Refuses(InvalidCredentials),
        "this signature is not for this machine's address: create one that is, or one without an address",
    ),
    (
        "KeyBasedAuthenticationNotPermitted",
        Class::Refuses(InvalidCredentials),
        "this account accepts no keys: use Entra ID, or allow access by key in its configuration",
    ),
    (
        "PublicAccessNotPermitted",
        Class::Refuses(InvalidCredentials),
        "the request had no credentials: give a key or a signature, or sign in to Entra ID",
    ),
    ("ContainerNotFound", Class::Refuses(NotFound), NO_CONTAINER),
    ("ContainerBeingDeleted", Class::Passes, "the container is being deleted: wait, or name another"),
    ("ContainerDisabled", Class::Refuses(Other), "the container is disabled"),
    ("AccountIsDisabled", Class::Refuses(Other), "the account is disabled"),
    (
        "BlobImmutableDueToPolicy",
        Class::Refuses(Other),
        "a policy forbids changes of blobs: use a container without an immutability policy",
    ),
    (
        "LeaseIdMissing",
        Class::Refuses(Other),
        "another process holds a blob lease on this record, perhaps an old Event Processor Host in the same container: \
         stop it, or break the lease",
    ),
    (
        "InvalidHeaderValue",
        Class::Refuses(Incompatible),
        "the service does not accept a header: if it is an older one (Azure Stack Hub), set its version, such as \
         2017-11-09",
    ),
    (
        "UnsupportedHeader",
        Class::Refuses(Incompatible),
        "the service does not know a header: set its version",
    ),
    (
        "FeatureVersionMismatch",
        Class::Refuses(Incompatible),
        "the service does not support this in this version: set a later one",
    ),
    ("ServerBusy", Class::Throttles, "the service is busy: use fewer partitions or hosts per account"),
    ("TooManyRequests", Class::Throttles, "the service is busy: use fewer partitions or hosts per account"),
    ("OperationTimedOut", Class::Passes, "the service took too long"),
    ("InternalError", Class::Passes, "the service reports an internal error"),
];

/// The class and advice by the status, if there is no known code.
fn of_status(status: u16) -> (Class, &'static str) {
    match status {
        401 | 403 => (Class::Refuses(AccessDenied), NO_RIGHT),
        // The service names what is missing; this answer is from another server, perhaps for a short time.
        404 => (Class::Passes, "another server than the service answers at this address: check the endpoint"),
        429 | 503 => (Class::Throttles, "the service is busy: use fewer partitions or hosts per account"),
        400..=499 => (Class::Refuses(Other), "the service refuses"),
        _ => (Class::Passes, "the service reports an error"),
    }
}

/// The status and the error code of an answer.
pub(in crate::azblob) fn answer(error: &Error) -> Option<(u16, &str)> {
    match error.kind() {
        ErrorKind::HttpResponse { status, error_code, .. } => {
            Some((u16::from(*status), error_code.as_deref().unwrap_or_default()))
        }
        _ => None,
    }
}

fn header<'a>(error: &'a Error, name: &'static str) -> Option<&'a str> {
    match error.kind() {
        ErrorKind::HttpResponse { raw_response: Some(raw), .. } => {
            raw.headers().get_optional_str(&HeaderName::from_static(name))
        }
        _ => None,
    }
}

/// The pause that an answer asks for. A date is ignored, because this machine's clock may differ.
fn retry_after(error: &Error) -> Option<Duration> {
    header(error, "retry-after")?.trim().parse().ok().map(Duration::from_secs)
}

/// The time of the answer, by the service's clock.
pub(in crate::azblob) fn said_at(error: &Error) -> Option<Timestamp> {
    let time = parse_rfc7231(header(error, "date")?).ok()?;
    Some(Timestamp(time.unix_timestamp() * 1_000))
}

/// Whether a request was not sent, so that it can be sent again.
pub(in crate::azblob) fn was_not_sent(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Connection)
}

/// Whether the connection broke, so that a read can be sent again.
pub(in crate::azblob) fn broke(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Connection | ErrorKind::Io)
}

/// The innermost cause. The outer ones repeat the URL, which may contain a signature.
fn cause(error: &Error) -> String {
    let mut inner: Option<&dyn std::error::Error> = error.source();
    while let Some(next) = inner.and_then(std::error::Error::source) {
        inner = Some(next);
    }
    let text = inner.map_or_else(|| error.kind().to_string(), ToString::to_string);
    if text.contains("sig=") || text.contains("://") { "no further details".to_owned() } else { text }
}

/// The store error for the caller. `place` shows no secret.
pub(in crate::azblob) fn of(error: &Error, place: &str, what: &str) -> StoreError {
    let (class, advice, details) = match answer(error) {
        Some((status, code)) => {
            let known = CODES.iter().find(|(known, _, _)| *known == code);
            let (class, advice) =
                known.map_or_else(|| of_status(status), |(_, class, advice)| (*class, *advice));
            (class, advice, format!("{status} {code}"))
        }
        None => match error.kind() {
            ErrorKind::Credential => (Class::Passes, "Entra ID issued no token", cause(error)),
            ErrorKind::Connection | ErrorKind::Io => (
                Class::Passes,
                "the service cannot be reached: check that it is up and the endpoint is right",
                cause(error),
            ),
            _ => (Class::Passes, "the service sent an unreadable answer", cause(error)),
        },
    };
    let message = format!("{place}: {advice} ({what}: {})", details.trim());
    match class {
        Class::Passes => StoreError::Unavailable(message.into()),
        Class::Throttles => match retry_after(error) {
            Some(retry_after) => StoreError::Throttled(Throttling { message, retry_after }.into()),
            None => StoreError::Throttled(message.into()),
        },
        Class::Refuses(cause) => StoreError::refused(cause, message),
    }
}

/// A copy of an error, for another lease that it affects.
pub(in crate::azblob) fn copy_of(error: &StoreError) -> StoreError {
    match error {
        StoreError::Unavailable(cause) => StoreError::Unavailable(cause.to_string().into()),
        StoreError::Throttled(cause) => match error.retry_after().filter(|pause| !pause.is_zero()) {
            Some(retry_after) => {
                StoreError::Throttled(Throttling { message: cause.to_string(), retry_after }.into())
            }
            None => StoreError::Throttled(cause.to_string().into()),
        },
        StoreError::Damaged { what } => StoreError::Damaged { what: what.clone() },
        StoreError::Refused { cause, message } => StoreError::refused(*cause, message),
        // A kind that this store does not make.
        other => StoreError::Unavailable(other.to_string().into()),
    }
}

pub(in crate::azblob) fn too_late(place: &str, what: &str, limit: Duration) -> StoreError {
    StoreError::Unavailable(format!("{place}: no answer within {limit:?} ({what})").into())
}

pub(in crate::azblob) fn unreadable(place: &str, what: &str, why: &str) -> StoreError {
    StoreError::Unavailable(format!("{place}: the service sent an unreadable answer ({what}: {why})").into())
}

#[cfg(test)]
mod tests {
    use azure_core::http::StatusCode;

    use super::*;

    fn told(status: u16, code: &str) -> StoreError {
        let kind = ErrorKind::HttpResponse {
            status: StatusCode::from(status),
            error_code: (!code.is_empty()).then(|| code.to_owned()),
            raw_response: None,
        };
        of(&kind.into_error(), "azblob://contoso/homes", "reading a record")
    }

    #[test]
    fn every_answer_is_of_one_class_and_says_what_to_do() {
        for (status, code, cause, words) in [
            (403, "AuthenticationFailed", InvalidCredentials, "clock"),
            (403, "AuthorizationFailure", AccessDenied, "network rules"),
            (403, "AuthorizationPermissionMismatch", AccessDenied, "lacks a right"),
            (403, "", AccessDenied, "lacks a right"),
            (403, "KeyBasedAuthenticationNotPermitted", InvalidCredentials, "Entra ID"),
            (404, "ContainerNotFound", NotFound, "container does not exist"),
            (400, "InvalidHeaderValue", Incompatible, "2017-11-09"),
            (412, "LeaseIdMissing", Other, "blob lease"),
            (409, "BlobImmutableDueToPolicy", Other, "immutability"),
        ] {
            let error = told(status, code);
            assert_eq!(error.refusal_cause(), Some(cause), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        for (status, code) in [(503, "ServerBusy"), (429, "TooManyRequests"), (429, ""), (503, "")] {
            assert!(matches!(told(status, code), StoreError::Throttled(_)), "{status} {code}");
        }
        for (status, code) in
            [(500, "InternalError"), (500, "OperationTimedOut"), (502, ""), (404, ""), (404, "x")]
        {
            assert!(matches!(told(status, code), StoreError::Unavailable(_)), "{status} {code}");
        }
    }

    #[test]
    fn what_the_layers_below_say_is_told_without_a_signature() {
        for text in ["https://contoso.example/homes?sig=canary", "sv=1&sig=canary"] {
            let error = Error::with_error(ErrorKind::Io, std::io::Error::other(text), "failed");
            let error = of(&error, "azblob://contoso/homes", "reading").to_string();
            assert!(error.contains("it is up") && !error.contains("canary"), "{error}");
        }
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = Error::with_error(ErrorKind::Connection, refused, "failed");
        assert!(was_not_sent(&error) && broke(&error));
        assert!(of(&error, "p", "w").to_string().contains("connection refused"));
    }
}
