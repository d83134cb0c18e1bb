//! Formats the message of an error together with the messages of its causes.
//!
//! The message of an error of Ephor contains those of its causes, which are its `source` as well, for programs that
//! decide by them. A plain walk along the chain of sources would print them twice; [`with_causes`] does not.

use std::error::Error;
use std::iter;

/// The message of an error and those of its causes, separated by colons. A cause whose message is contained in what is
/// before it is left out, because many errors repeat their causes.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in iter::successors(error.source(), |&cause| cause.source()) {
        let message = cause.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::source::{OpenError, SourceError};
    use crate::store::StoreError;

    /// An error whose message does not contain that of its cause.
    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect to db.example")]
    struct CannotConnect(#[source] io::Error);

    /// An error whose message does.
    #[derive(Debug, thiserror::Error)]
    #[error("login failed: {0}")]
    struct LoginFailed(#[source] CannotConnect);

    #[test]
    fn a_message_has_every_cause_once() {
        let error = LoginFailed(CannotConnect(io::Error::other("connection refused")));
        assert_eq!(with_causes(&error), "login failed: cannot connect to db.example: connection refused");
    }

    #[test]
    fn a_cause_is_in_the_message_and_is_the_source_as_well() {
        let cause = || Box::new(CannotConnect(io::Error::other("connection refused")));
        let errors: [Box<dyn Error>; 4] = [
            Box::new(StoreError::Unavailable(cause())),
            Box::new(StoreError::Throttled(cause())),
            Box::new(SourceError::Unavailable(cause())),
            Box::new(OpenError::from(SourceError::Unavailable(cause()))),
        ];
        for error in errors {
            let message = error.to_string();
            assert!(message.ends_with(": cannot connect to db.example: connection refused"), "{message}");
            assert!(error.source().is_some_and(|cause| cause.is::<CannotConnect>()), "{error:?}");
            assert_eq!(with_causes(&*error), message, "nothing is printed twice");
        }
    }
}
