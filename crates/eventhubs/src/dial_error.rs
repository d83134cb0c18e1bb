//! The error of a TCP or TLS connection that cannot be made, with a cause that callers can match.

use std::io;

use tokio_rustls::rustls::{CertificateError, Error as TlsError};

/// A hub that this client could not connect to. It is a source of `SourceError::Unavailable` and of
/// [`SendFailure::Unavailable`](crate::SendFailure::Unavailable).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot connect to {address}: {message}")]
#[non_exhaustive]
pub struct DialError {
    /// The host and the port.
    pub address: String,
    /// The cause.
    pub cause: DialErrorCause,
    /// The message of the operating system, or of TLS.
    pub message: String,
}

/// The cause of a [`DialError`], as far as something can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DialErrorCause {
    /// No hub answers at this address: the connection was refused, there is no route, or no answer came in
    /// time.
    NoAnswer,
    /// No authority that this machine trusts has issued the certificate of the hub.
    UntrustedCertificate,
    /// Any other cause.
    Other,
}

impl DialErrorCause {
    pub(crate) fn of_socket(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::TimedOut => Self::NoAnswer,
            _ => Self::Other,
        }
    }

    pub(crate) fn of_tls(error: Option<&TlsError>) -> Self {
        match error {
            Some(TlsError::InvalidCertificate(CertificateError::UnknownIssuer)) => Self::UntrustedCertificate,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_that_does_not_answer_is_told_apart_from_one_that_is_not_trusted() {
        // ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, ETIMEDOUT
        for code in [111, 113, 101, 110] {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!(DialErrorCause::of_socket(&error), DialErrorCause::NoAnswer, "{error}");
        }
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(DialErrorCause::of_socket(&reset), DialErrorCause::Other);
        let of_certificate = |error| DialErrorCause::of_tls(Some(&TlsError::InvalidCertificate(error)));
        assert_eq!(of_certificate(CertificateError::UnknownIssuer), DialErrorCause::UntrustedCertificate);
        assert_eq!(of_certificate(CertificateError::Expired), DialErrorCause::Other);
        assert_eq!(DialErrorCause::of_tls(None), DialErrorCause::Other);
    }
}
