//! How a storage account is used, and what is wrong with how it was asked for.

use std::time::Duration;

use super::names::Case;

/// See [`BlobOptions::service_version`].
pub const DEFAULT_SERVICE_VERSION: &str = "2021-12-02";

/// See [`BlobOptions::call_limit`].
pub const DEFAULT_CALL_LIMIT: Duration = Duration::from_secs(10);

/// See [`BlobOptions::at_once`].
pub const DEFAULT_AT_ONCE: usize = 32;

/// How long a renewal takes at most for a caller who does not say how long it waits.
pub(super) const RENEW_LIMIT: Duration = Duration::from_secs(4);

/// Who else owns partitions of the same group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Neighbours {
    /// Hosts of Ephor alone: checkpoints are fenced, and everything that a store promises holds. A host renews all its
    /// leases with one write, which no other SDK looks at: it would take them for expired.
    #[default]
    None,
    /// Also processors of other SDKs. They write checkpoints without looking, and nothing can stop them.
    Sdk,
}

/// How a storage account is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobOptions {
    /// Who else owns partitions of the same group.
    pub neighbours: Neighbours,
    /// How names are written.
    pub case: Case,
    /// The version of the service's interface, as a date. Azure Stack Hub needs `2017-11-09`.
    pub service_version: String,
    /// A request that takes longer fails: whether it was carried out is then unknown.
    pub call_limit: Duration,
    /// So many requests of one call are under way at a time.
    pub at_once: usize,
}

impl Default for BlobOptions {
    fn default() -> Self {
        Self {
            neighbours: Neighbours::None,
            case: Case::Small,
            service_version: DEFAULT_SERVICE_VERSION.to_owned(),
            call_limit: DEFAULT_CALL_LIMIT,
            at_once: DEFAULT_AT_ONCE,
        }
    }
}

/// Why a store cannot be made of a text and options. It shows no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text names no place in a storage account.
    #[error("the Azure Blob store cannot be read: {problem}")]
    Address {
        /// What is wrong, and what to write.
        problem: String,
    },
    /// An option that makes no sense.
    #[error("{what}: {problem}")]
    Option {
        /// Which.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// There is nothing to show to the account.
    #[error(
        "nothing opens the storage account {account}: give a connection string with AccountKey or \
         SharedAccessSignature, set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or sign in to Entra ID ({problem})"
    )]
    NoCredential {
        /// The account.
        account: String,
        /// What Entra ID said.
        problem: String,
    },
}

impl BlobOptions {
    pub(super) fn check(&self) -> Result<(), ConnectError> {
        let refuse = |what, problem: &str| Err(ConnectError::Option { what, problem: problem.to_owned() });
        let date = self.service_version.as_bytes();
        let is_date = date.len() == 10
            && date.iter().enumerate().all(|(place, byte)| match place {
                4 | 7 => *byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        if !is_date {
            return refuse("service_version", "write a date, such as 2021-12-02");
        }
        if self.service_version.as_str() < "2015-02-21" {
            return refuse("service_version", "2015-02-21 is the oldest that is spoken here");
        }
        if self.call_limit.is_zero() {
            return refuse("call_limit", "it is zero: nothing could ever be done");
        }
        if self.at_once == 0 {
            return refuse("at_once", "it is zero: nothing could ever be done");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_fine_and_nonsense_is_refused() {
        assert_eq!(BlobOptions::default().check(), Ok(()));
        let stack_hub = BlobOptions { service_version: "2017-11-09".into(), ..BlobOptions::default() };
        assert_eq!(stack_hub.check(), Ok(()));
        for version in ["", "latest", "2017/11/09", "2011-08-18"] {
            let options = BlobOptions { service_version: version.into(), ..BlobOptions::default() };
            assert!(options.check().is_err(), "{version}");
        }
        assert!(BlobOptions { at_once: 0, ..BlobOptions::default() }.check().is_err());
        assert!(BlobOptions { call_limit: Duration::ZERO, ..BlobOptions::default() }.check().is_err());
    }
}
