//! Sends single requests to one container, each with its condition and its time limit, and maps errors.
//!
//! A failed condition is a value. No write is repeated that may have been carried out: the caller finds
//! out what a lost answer means. Reads are repeated after a broken connection, and so are requests that
//! never left this machine.

mod answers;
mod connect;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use azure_core::error::Error;
use azure_core::http::headers::{HeaderName, Headers};
use azure_core::http::{Etag, RequestContent};
use azure_storage_blob::models::{
    BlobClientAcquireLeaseOptions, BlobClientDeleteOptions, BlobClientSetMetadataOptions,
    BlobContainerClientListBlobsOptions, BlockBlobClientUploadOptions, ListBlobsIncludeItem,
    ListBlobsResponse,
};
use azure_storage_blob::{BlobContainerClient, BlobServiceClient};
use ephor_core::store::StoreError;
use ephor_core::time::Timestamp;
use futures_util::TryStreamExt;

use crate::azblob::layout::metadata::Metadata;
use crate::azblob::service::error_mapping;
use crate::azblob::service::sas_expiry::SasExpiry;
pub(in crate::azblob) use answers::{Blob, Listed, Read, Stamp, Write};
use answers::{DATE, NO_BLOB, NO_CONTAINER, VERSION, is_lost_race, listed, metadata, quoted};

/// The maximum number of times a repeatable request is sent.
const MAX_ATTEMPTS: usize = 3;

/// A prefix that no blob has.
pub(in crate::azblob) const NOTHING: &str = "ephor/nothing";

/// A container of a storage account.
pub(in crate::azblob) struct Container {
    client: BlobContainerClient,
    /// The address for messages, without secrets.
    pub(in crate::azblob) place: String,
    limit: Duration,
    service: BlobServiceClient,
    /// Whether an answer has shown that the account keeps versions.
    versions: AtomicBool,
    /// The expiry of the signature, if it has one.
    expiry: Option<SasExpiry>,
}

impl Container {
    /// Whether the container exists.
    pub(in crate::azblob) async fn exists(&self) -> Result<bool, StoreError> {
        let what = "looking for the container";
        match self.send(what, error_mapping::broke, || self.client.get_properties(None)).await? {
            Ok(_) => Ok(true),
            Err(error) => match error_mapping::answer(&error) {
                Some((404, NO_CONTAINER)) => Ok(false),
                // A signature for the container may list its blobs, but not read its properties.
                Some((403, _)) => self.exists_to_list().await,
                _ => Err(self.failed(&error, what)),
            },
        }
    }

    async fn exists_to_list(&self) -> Result<bool, StoreError> {
        let what = "looking for the container by a listing";
        match self.ask_page(NOTHING, None, what).await? {
            Ok(_) => Ok(true),
            Err(error) if matches!(error_mapping::answer(&error), Some((404, NO_CONTAINER))) => Ok(false),
            Err(error) => Err(self.failed(&error, what)),
        }
    }

    /// Creates the container. Succeeds if it exists already.
    pub(in crate::azblob) async fn make(&self) -> Result<(), StoreError> {
        let what = "creating the container";
        match self.send(what, error_mapping::was_not_sent, || self.client.create(None)).await? {
            Ok(_) => Ok(()),
            Err(error) if matches!(error_mapping::answer(&error), Some((409, "ContainerAlreadyExists"))) => {
                Ok(())
            }
            Err(error) => Err(self.failed(&error, what)),
        }
    }

    /// Whether the account has a hierarchical namespace.
    pub(in crate::azblob) async fn has_folders(&self) -> bool {
        let what = "asking for the kind of account";
        let header = HeaderName::from_static("x-ms-is-hns-enabled");
        let said = |headers: &Headers| {
            headers.get_optional_str(&header).map(|value| value.eq_ignore_ascii_case("true"))
        };
        // A signature for the container may ask only there, and an emulator answers only for the account.
        let here = self.send(what, error_mapping::was_not_sent, || self.client.get_account_info(None)).await;
        if let Some(said) = here.ok().and_then(Result::ok).and_then(|answer| said(answer.headers())) {
            return said;
        }
        let there =
            self.send(what, error_mapping::was_not_sent, || self.service.get_account_info(None)).await;
        there.ok().and_then(Result::ok).and_then(|answer| said(answer.headers())).unwrap_or(false)
    }

    /// Whether the account keeps deleted and overwritten blobs; false if this credential may not ask.
    pub(in crate::azblob) async fn keeps_deleted(&self) -> bool {
        let what = "asking for the account's settings";
        let settings = || async { self.service.get_properties(None).await?.into_model() };
        let answer = self.send(what, error_mapping::was_not_sent, settings).await;
        let Ok(Ok(settings)) = answer else { return false };
        settings.delete_retention_policy.and_then(|policy| policy.enabled).unwrap_or(false)
    }

    /// Whether an answer has shown that the account keeps earlier versions of blobs.
    pub(in crate::azblob) fn keeps_versions(&self) -> bool {
        self.versions.load(Ordering::Relaxed)
    }

    /// Reads a blob's metadata, if the blob exists.
    pub(in crate::azblob) async fn head(&self, name: &str) -> Result<Read, StoreError> {
        let what = format!("reading {name}");
        let blob = self.client.blob_client(name);
        match self.send(&what, error_mapping::broke, || blob.get_properties(None)).await? {
            Ok(answer) => {
                let headers = answer.headers();
                let stamp = self.stamp(headers, &what)?;
                let blob = Blob { metadata: metadata(headers), stamp };
                Ok(Read { at: self.time(headers, &DATE, &what)?, blob: Some(blob) })
            }
            Err(error) => {
                // The error has the service's time, too.
                let headers = match error.kind() {
                    azure_core::error::ErrorKind::HttpResponse { raw_response: Some(raw), .. } => {
                        raw.headers()
                    }
                    _ => return Err(self.failed(&error, &what)),
                };
                match error_mapping::answer(&error) {
                    Some((404, NO_BLOB)) => Ok(Read { at: self.time(headers, &DATE, &what)?, blob: None }),
                    _ => Err(self.failed(&error, &what)),
                }
            }
        }
    }

    /// Reads a blob with its body.
    pub(in crate::azblob) async fn body(&self, name: &str) -> Result<Option<(Blob, String)>, StoreError> {
        let what = format!("reading {name}");
        let blob = self.client.blob_client(name);
        let whole = || async {
            let answer = blob.download(None).await?;
            let headers = answer.headers;
            Ok((headers, answer.body.collect().await?))
        };
        match self.send(&what, error_mapping::broke, whole).await? {
            Ok((headers, body)) => {
                let text = String::from_utf8_lossy(&body).into_owned();
                Ok(Some((Blob { metadata: metadata(&headers), stamp: self.stamp(&headers, &what)? }, text)))
            }
            Err(error) => match error_mapping::answer(&error) {
                Some((404, NO_BLOB)) => Ok(None),
                _ => Err(self.failed(&error, &what)),
            },
        }
    }

    /// Lists all blobs with this prefix and their metadata; also returns the service's time of the last page.
    pub(in crate::azblob) async fn list(&self, prefix: &str) -> Result<(Timestamp, Vec<Listed>), StoreError> {
        let what = format!("listing {prefix}");
        let mut marker = None;
        let mut found = Vec::new();
        loop {
            let (at, next) = self.page(prefix, marker, &mut found, &what).await?;
            match next.filter(|next| !next.is_empty()) {
                Some(next) => marker = Some(next),
                None => return Ok((at, found)),
            }
        }
    }

    async fn page(
        &self,
        prefix: &str,
        marker: Option<String>,
        found: &mut Vec<Listed>,
        what: &str,
    ) -> Result<(Timestamp, Option<String>), StoreError> {
        let page = self.ask_page(prefix, marker, what).await?;
        let page = page.map_err(|error| self.failed(&error, what))?;
        let Some((headers, model)) = page else { return Ok((Timestamp(0), None)) };
        let at = self.time(&headers, &DATE, what)?;
        found.extend(model.blob_items.into_iter().filter_map(|item| listed(item, at)));
        Ok((at, model.next_marker))
    }

    async fn ask_page(
        &self,
        prefix: &str,
        marker: Option<String>,
        what: &str,
    ) -> Result<Result<Option<(Headers, ListBlobsResponse)>, Error>, StoreError> {
        let page = || async {
            let options = BlobContainerClientListBlobsOptions {
                prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
                include: Some(vec![ListBlobsIncludeItem::Metadata]),
                marker: marker.clone(),
                ..Default::default()
            };
            let mut pages = self.client.list_blobs(Some(options))?.into_pages();
            let page = pages.try_next().await?;
            let Some(page) = page else { return Ok(None) };
            let headers = page.headers().clone();
            Ok(Some((headers, page.into_model()?)))
        };
        self.send(what, error_mapping::broke, page).await
    }

    /// Creates a blob, if it does not exist.
    pub(in crate::azblob) async fn create(
        &self,
        name: &str,
        metadata: &Metadata,
        body: &str,
    ) -> Result<Write, StoreError> {
        self.put(name, metadata, body, None).await
    }

    /// Replaces a blob and its body, if it is in this state. An account with soft delete keeps the old blob, so
    /// records that change often are written by [`update`](Self::update).
    pub(in crate::azblob) async fn replace(
        &self,
        name: &str,
        metadata: &Metadata,
        body: &str,
        etag: &str,
    ) -> Result<Write, StoreError> {
        self.put(name, metadata, body, Some(etag)).await
    }

    async fn put(
        &self,
        name: &str,
        metadata: &Metadata,
        body: &str,
        etag: Option<&str>,
    ) -> Result<Write, StoreError> {
        let what = format!("writing {name}");
        let blob = self.client.blob_client(name).block_blob_client();
        let upload = || {
            let options = BlockBlobClientUploadOptions {
                metadata: Some(metadata.clone().into_iter().collect()),
                if_match: etag.map(quoted),
                if_none_match: etag.is_none().then(|| Etag::from("*")),
                ..Default::default()
            };
            let content = RequestContent::from(body.as_bytes().to_vec());
            blob.upload(content, Some(options))
        };
        let outcome = self.send(&what, error_mapping::was_not_sent, upload).await?;
        let headers = outcome.map(|answer| answer.raw_response.headers().clone());
        self.written(headers, &what)
    }

    /// Replaces a blob's metadata, if it is in this state.
    pub(in crate::azblob) async fn update(
        &self,
        name: &str,
        metadata: &Metadata,
        etag: &str,
    ) -> Result<Write, StoreError> {
        let what = format!("writing {name}");
        let blob = self.client.blob_client(name);
        let metadata = metadata.clone().into_iter().collect();
        let update = || {
            let options = BlobClientSetMetadataOptions { if_match: Some(quoted(etag)), ..Default::default() };
            blob.set_metadata(&metadata, Some(options))
        };
        let outcome = self.send(&what, error_mapping::was_not_sent, update).await?;
        self.written(outcome.map(|answer| answer.headers().clone()), &what)
    }

    /// Deletes a blob, in this state or in any. Succeeds if it does not exist or is in another state.
    pub(in crate::azblob) async fn delete(&self, name: &str, etag: Option<&str>) -> Result<(), StoreError> {
        let what = format!("deleting {name}");
        let blob = self.client.blob_client(name);
        let delete = || {
            let options = BlobClientDeleteOptions { if_match: etag.map(quoted), ..Default::default() };
            blob.delete(Some(options))
        };
        match self.send(&what, error_mapping::was_not_sent, delete).await? {
            Ok(_) => Ok(()),
            Err(error) if is_lost_race(&error) => Ok(()),
            Err(error) => Err(self.failed(&error, &what)),
        }
    }

    /// Takes the service's lease of a blob; false if another process holds it.
    pub(in crate::azblob) async fn lease(
        &self,
        name: &str,
        seconds: i32,
        id: &str,
    ) -> Result<bool, StoreError> {
        let what = format!("taking the lease of {name}");
        let blob = self.client.blob_client(name);
        let acquire = || {
            let options = BlobClientAcquireLeaseOptions {
                proposed_lease_id: Some(id.to_owned()),
                ..Default::default()
            };
            blob.acquire_lease(seconds, Some(options))
        };
        match self.send(&what, error_mapping::was_not_sent, acquire).await? {
            Ok(_) => Ok(true),
            Err(error) if matches!(error_mapping::answer(&error), Some((409, _))) => Ok(false),
            Err(error) => Err(self.failed(&error, &what)),
        }
    }

    /// Releases the service's lease of a blob. If that fails, the lease expires.
    pub(in crate::azblob) async fn unlease(&self, name: &str, id: &str) {
        let what = format!("giving back the lease of {name}");
        let blob = self.client.blob_client(name);
        let outcome =
            self.send(&what, error_mapping::was_not_sent, || blob.release_lease(id.to_owned(), None)).await;
        if !matches!(outcome, Ok(Ok(_))) {
            tracing::debug!(name, "a blob lease could not be released; it expires");
        }
    }

    /// Maps an error. An expired signature is reported as such, whatever code the service sends.
    fn failed(&self, error: &Error, what: &str) -> StoreError {
        let over =
            self.expiry.as_ref().filter(|_| matches!(error_mapping::answer(error), Some((401 | 403, _))));
        let expired =
            over.and_then(|expiry| expiry.refusal(error_mapping::said_at(error), &self.place, what));
        expired.unwrap_or_else(|| error_mapping::of(error, &self.place, what))
    }

    fn written(&self, outcome: Result<Headers, Error>, what: &str) -> Result<Write, StoreError> {
        match outcome {
            Ok(headers) => {
                if headers.get_optional_str(&VERSION).is_some()
                    && !self.versions.swap(true, Ordering::Relaxed)
                {
                    tracing::warn!(
                        store = self.place,
                        "{}",
                        crate::azblob::service::account_checks::VERSIONS
                    );
                }
                Ok(Write::Done(self.stamp(&headers, what)?))
            }
            Err(error) if is_lost_race(&error) => Ok(Write::Refused),
            Err(error) => Err(self.failed(&error, what)),
        }
    }

    /// Sends a request within the limit, and again if that is harmless.
    #[expect(clippy::disallowed_methods, reason = "requests to a service take real time")]
    async fn send<T, F: Future<Output = Result<T, Error>>>(
        &self,
        what: &str,
        harmless: fn(&Error) -> bool,
        request: impl Fn() -> F,
    ) -> Result<Result<T, Error>, StoreError> {
        let all = async {
            let mut attempt = 1;
            loop {
                match request().await {
                    Err(error) if attempt < MAX_ATTEMPTS && harmless(&error) => attempt += 1,
                    outcome => return outcome,
                }
            }
        };
        let late = |_| error_mapping::too_late(&self.place, what, self.limit);
        tokio::time::timeout(self.limit, all).await.map_err(late)
    }
}
