//! Reads the service's answers: the states of blobs, times, and failed conditions.

use azure_core::error::Error;
use azure_core::http::Etag;
use azure_core::http::headers::{HeaderName, Headers};
use azure_core::time::parse_rfc7231;
use azure_storage_blob::models::BlobItem;
use ephor_core::store::StoreError;
use ephor_core::time::Timestamp;

use super::Container;
use crate::azblob::layout::metadata::Metadata;
use crate::azblob::service::error_mapping;

const ETAG: HeaderName = HeaderName::from_static("etag");
const LAST_MODIFIED: HeaderName = HeaderName::from_static("last-modified");
pub(super) const DATE: HeaderName = HeaderName::from_static("date");
pub(super) const VERSION: HeaderName = HeaderName::from_static("x-ms-version-id");
pub(super) const NO_BLOB: &str = "BlobNotFound";
pub(super) const NO_CONTAINER: &str = "ContainerNotFound";
const METADATA: &str = "x-ms-meta-";

/// A blob in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::azblob) struct Blob {
    pub(in crate::azblob) metadata: Metadata,
    pub(in crate::azblob) stamp: Stamp,
}

/// The state of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::azblob) struct Stamp {
    /// Without its quotes.
    pub(in crate::azblob) etag: String,
    /// The time of the last write, by the service's clock.
    pub(in crate::azblob) modified: Timestamp,
}

/// The result of a read, and the service's time.
pub(in crate::azblob) struct Read {
    pub(in crate::azblob) at: Timestamp,
    pub(in crate::azblob) blob: Option<Blob>,
}

/// A blob in a listing.
pub(in crate::azblob) struct Listed {
    pub(in crate::azblob) name: String,
    pub(in crate::azblob) blob: Blob,
    /// The service's time when it was listed.
    pub(in crate::azblob) at: Timestamp,
}

/// The outcome of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::azblob) enum Write {
    Done(Stamp),
    /// The condition failed: the blob is in another state, exists already, or does not exist.
    Refused,
}

impl Container {
    pub(super) fn stamp(&self, headers: &Headers, what: &str) -> Result<Stamp, StoreError> {
        let etag = headers.get_optional_str(&ETAG);
        let etag = etag.ok_or_else(|| error_mapping::unreadable(&self.place, what, "it has no ETag"))?;
        let modified = self.time(headers, &LAST_MODIFIED, what)?;
        Ok(Stamp { etag: unquoted(etag), modified })
    }

    pub(super) fn time(
        &self,
        headers: &Headers,
        name: &HeaderName,
        what: &str,
    ) -> Result<Timestamp, StoreError> {
        let time = headers.get_optional_str(name).and_then(|text| parse_rfc7231(text).ok());
        let why = || error_mapping::unreadable(&self.place, what, &format!("it has no {}", name.as_str()));
        let time = Timestamp(time.ok_or_else(why)?.unix_timestamp() * 1_000);
        if let Some(expiry) = &self.expiry {
            expiry.warn_at(time, &self.place);
        }
        Ok(time)
    }
}

/// Whether an error is a failed condition. A blob lease of another process is not.
pub(super) fn is_lost_race(error: &Error) -> bool {
    match error_mapping::answer(error) {
        Some((412, code)) => !code.starts_with("Lease"),
        Some((409, code)) => code == "BlobAlreadyExists",
        // Another server, such as a gateway, may also send 404.
        Some((404, code)) => code == NO_BLOB,
        _ => false,
    }
}

pub(super) fn quoted(etag: &str) -> Etag {
    Etag::from(format!("\"{etag}\""))
}

fn unquoted(etag: &str) -> String {
    etag.trim_matches('"').to_owned()
}

pub(super) fn metadata(headers: &Headers) -> Metadata {
    let pairs = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().to_ascii_lowercase();
        Some((name.strip_prefix(METADATA)?.to_owned(), value.as_str().to_owned()))
    });
    pairs.collect()
}

pub(super) fn listed(item: BlobItem, at: Timestamp) -> Option<Listed> {
    let properties = item.properties?;
    let values = item.metadata.and_then(|metadata| metadata.values).unwrap_or_default();
    let metadata = values.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    let modified = Timestamp(properties.last_modified?.unix_timestamp() * 1_000);
    let etag = unquoted(properties.etag?.as_ref());
    Some(Listed { name: item.name?, blob: Blob { metadata, stamp: Stamp { etag, modified } }, at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::azblob::address::BlobAddress;
    use crate::azblob::options::BlobOptions;
    use crate::azblob::service::sas_expiry::SasExpiry;

    #[test]
    fn the_date_of_an_answer_warns_of_a_signature_that_expires_soon() {
        let sas = "SharedAccessSignature=sv=2021-12-02&se=2030-01-09&sig=canary";
        let address = format!("BlobEndpoint=https://contoso.blob.example/;{sas}");
        let address = BlobAddress::parse(&address).unwrap();
        let credential = address.credential.clone().unwrap();
        let container = Container::new(&address, credential, &BlobOptions::default()).unwrap();
        let warnings_at = |date: &'static str| {
            let mut headers = Headers::new();
            headers.insert(DATE, date);
            container.time(&headers, &DATE, "a test").unwrap();
            container.expiry.as_ref().map(SasExpiry::warnings)
        };
        assert_eq!(warnings_at("Tue, 01 Jan 2030 00:00:00 GMT"), Some(0), "eight days before");
        assert_eq!(warnings_at("Thu, 03 Jan 2030 00:00:00 GMT"), Some(1), "six days before");
        assert_eq!(warnings_at("Tue, 08 Jan 2030 12:00:00 GMT"), Some(2), "half a day before");
    }
}
