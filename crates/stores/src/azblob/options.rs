//! The options of an Azure Blob store beyond its address and its credentials, and the errors of all three.

use std::time::Duration;

use ephor_core::time::Timestamp;

use crate::azblob::layout::blob_names::Case;

/// See [`BlobOptions::service_version`].
pub const DEFAULT_SERVICE_VERSION: &str = "2021-12-02";

/// See [`BlobOptions::call_limit`].
pub const DEFAULT_CALL_LIMIT: Duration = Duration::from_secs(10);

/// See [`BlobOptions::max_concurrent_requests`].
pub const DEFAULT_MAX_CONCURRENT_REQUESTS: usize = 32;

/// The limit of a renewal for callers that set none.
pub(super) const RENEW_LIMIT: Duration = Duration::from_secs(4);

/// The other owners of partitions of the same group. A URL writes `shared-with=ephor` or
/// `shared-with=other-sdks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharedWith {
    /// Only hosts of Ephor own partitions (`ephor` in a URL). Checkpoints are fenced, and all guarantees of a
    /// store hold. A host renews all its leases with one write, which other SDKs do not read: to them the
    /// leases look expired.
    #[default]
    EphorOnly,
    /// Processors of other SDKs own partitions, too (`other-sdks` in a URL). They overwrite checkpoints
    /// unconditionally, so checkpoints are not fenced.
    OtherSdks,
}

/// The options of an Azure Blob store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobOptions {
    /// The other owners of partitions of the same group.
    pub shared_with: SharedWith,
    /// The case of the names of blobs.
    pub case: Case,
    /// The version of the service's interface, as a date. Azure Stack Hub needs `2017-11-09`.
    pub service_version: String,
    /// The time limit of a request. After it the request fails, and its outcome is unknown.
    pub call_limit: Duration,
    /// The maximum number of concurrent requests of one call.
    pub max_concurrent_requests: usize,
}

impl Default for BlobOptions {
    fn default() -> Self {
        Self {
            shared_with: SharedWith::EphorOnly,
            case: Case::Lower,
            service_version: DEFAULT_SERVICE_VERSION.to_owned(),
            call_limit: DEFAULT_CALL_LIMIT,
            max_concurrent_requests: DEFAULT_MAX_CONCURRENT_REQUESTS,
        }
    }
}

/// Why a text or options cannot be used. It shows no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSettings {
    /// The text names no container of a storage account.
    #[error("the address of the Azure Blob store is invalid: {problem}")]
    Address {
        /// The problem, and what to write.
        problem: String,
    },
    /// An option is invalid.
    #[error("{what}: {problem}")]
    Option {
        /// The option.
        what: &'static str,
        /// The problem.
        problem: String,
    },
    /// There are no credentials.
    #[error(
        "there are no credentials for the storage account {account}: give a connection string with AccountKey or \
         SharedAccessSignature, set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or sign in to Entra ID ({problem})"
    )]
    NoCredential {
        /// The account.
        account: String,
        /// The error of Entra ID.
        problem: String,
    },
}

impl BlobOptions {
    pub(super) fn check(&self) -> Result<(), InvalidSettings> {
        let refuse = |what, problem: &str| Err(InvalidSettings::Option { what, problem: problem.to_owned() });
        let date = &self.service_version;
        if date.len() != 10 || format!("{date}T00:00:00Z").parse::<Timestamp>().is_err() {
            return refuse("service_version", "write a date, such as 2021-12-02");
        }
        if self.service_version.as_str() < "2015-02-21" {
            return refuse("service_version", "the oldest supported version is 2015-02-21");
        }
        if self.call_limit.is_zero() {
            return refuse("call_limit", "it is zero: set a value above zero");
        }
        if self.max_concurrent_requests == 0 {
            return refuse("max_concurrent_requests", "it is zero: set a value above zero");
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
        for version in ["", "latest", "2017/11/09", "2017-13-09", "2011-08-18"] {
            let options = BlobOptions { service_version: version.into(), ..BlobOptions::default() };
            assert!(options.check().is_err(), "{version}");
        }
        assert!(BlobOptions { max_concurrent_requests: 0, ..BlobOptions::default() }.check().is_err());
        assert!(BlobOptions { call_limit: Duration::ZERO, ..BlobOptions::default() }.check().is_err());
    }
}
