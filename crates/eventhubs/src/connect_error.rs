//! The error of opening a client: invalid options, or a hub that cannot be reached or used.

use ephor_core::source::SourceError;

use crate::options::InvalidOptions;

/// The reason why a client cannot use its hub. It never repeats a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The connection string or an option is invalid; nothing was dialled.
    #[error(transparent)]
    Options(#[from] InvalidOptions),
    /// The hub cannot be reached, does not exist, or refuses the credential.
    #[error("{endpoint}: {error}")]
    Hub {
        /// The address and the hub.
        endpoint: String,
        /// The answer of the hub, or the reason why there is none.
        #[source]
        error: SourceError,
    },
}
