//! `BlobStore`: connects or opens a store, and implements `Store` with the methods of the session.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};
use ephor_core::store::{
    Capabilities, ClaimOutcome, DesiredState, GiveUpOutcome, GroupOrigin, RenewalOutcome, SaveOutcome,
    SaveRequest, SeekOutcome, SeekRequest, Store, StoreError, StoreFuture, View,
};

use crate::OpenError;
use crate::azblob::CLOCK_RESOLUTION;
use crate::azblob::address::{BlobAddress, Layout};
use crate::azblob::options::{BlobOptions, InvalidSettings, RENEW_LIMIT};
use crate::azblob::service::container::Container;
use crate::azblob::service::credential::{AccountKey, BlobCredential, Sas};
use crate::azblob::session::{ContainerCreation, Session};

/// A store in a container of an Azure Storage account. Clones share its connections: one store serves all hosts of a
/// process.
///
/// ```no_run
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use ephor_core::store::Store;
/// use ephor_stores::azblob::{BlobOptions, BlobStore};
///
/// let text = "AccountName=contoso;AccountKey=c2VjcmV0;Container=leases";
/// let store = BlobStore::connect(text, BlobOptions::default()).await?;
/// println!("{:?}", store.groups().await?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct BlobStore {
    session: Arc<Session>,
}

impl BlobStore {
    /// Connects: [`new`](Self::new), then [`check`](Self::check).
    pub async fn connect(text: &str, options: BlobOptions) -> Result<Self, OpenError> {
        let store = Self::new(text, options)?;
        store.check().await?;
        Ok(store)
    }

    /// Connects for tools: [`new_existing`](Self::new_existing), then [`check`](Self::check). None if there is
    /// no container.
    pub async fn connect_existing(text: &str, options: BlobOptions) -> Result<Option<Self>, OpenError> {
        let store = Self::new_existing(text, options)?;
        if !store.exists().await? {
            return Ok(None);
        }
        store.check().await?;
        Ok(Some(store))
    }

    /// A store at `azblob://ACCOUNT/CONTAINER[/PREFIX]` or at a connection string. It connects with its first
    /// call, and then creates the container if it does not exist. This call itself does no I/O. The credentials
    /// are in the connection string or in the environment (`AZURE_STORAGE_KEY`, `AZURE_STORAGE_SAS_TOKEN`), or
    /// come from Entra ID.
    pub fn new(text: &str, options: BlobOptions) -> Result<Self, InvalidSettings> {
        let address = BlobAddress::parse(text)?;
        let credential = find_credential(&address)?;
        Self::with_creation(&address, credential, options, ContainerCreation::Allowed)
    }

    /// As [`new`](Self::new), with your own credential.
    pub fn with_credential(
        address: &BlobAddress,
        credential: BlobCredential,
        options: BlobOptions,
    ) -> Result<Self, InvalidSettings> {
        Self::with_creation(address, credential, options, ContainerCreation::Allowed)
    }

    /// A store for tools: it creates no container.
    pub fn new_existing(text: &str, options: BlobOptions) -> Result<Self, InvalidSettings> {
        let address = BlobAddress::parse(text)?;
        let credential = find_credential(&address)?;
        Self::with_creation(&address, credential, options, ContainerCreation::Never)
    }

    fn with_creation(
        address: &BlobAddress,
        credential: BlobCredential,
        mut options: BlobOptions,
        creation: ContainerCreation,
    ) -> Result<Self, InvalidSettings> {
        if address.layout != Layout::Sdk {
            return Err(InvalidSettings::Address {
                problem: "the container of an old Event Processor Host is read-only: export its positions, and import \
                          them into another store"
                    .into(),
            });
        }
        if let Some(shared_with) = address.shared_with {
            options.shared_with = shared_with;
        }
        if let Some(case) = address.case {
            options.case = case;
        }
        if let Some(version) = &address.service_version {
            options.service_version.clone_from(version);
        }
        options.check()?;
        let container = Container::new(address, credential, &options)?;
        let session = Session::new(container, address.prefix.clone(), options, creation);
        Ok(Self { session: Arc::new(session) })
    }

    /// Checks that the container can be used, and creates it if that is allowed, so that errors that an operator
    /// must fix appear at the start.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.session.check().await
    }

    /// Warnings about account settings that are unsuitable for leases, as far as they can be detected: soft
    /// delete, versioning, a hierarchical namespace. They are also logged at the first use of the store.
    pub async fn account_warnings(&self) -> Vec<String> {
        self.session.account_warnings().await
    }

    /// Whether the container exists. Unlike all other calls this one creates none.
    pub async fn exists(&self) -> Result<bool, StoreError> {
        self.session.container.exists().await
    }
}

/// The credential: from the text, from the environment, or from Entra ID.
pub(super) fn find_credential(address: &BlobAddress) -> Result<BlobCredential, InvalidSettings> {
    if let Some(credential) = &address.credential {
        return Ok(credential.clone());
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let refuse = |what, problem: &str| Err(InvalidSettings::Option { what, problem: problem.to_owned() });
    if let Some(key) = variable("AZURE_STORAGE_KEY") {
        return match AccountKey::from_base64(&key) {
            Some(key) => Ok(BlobCredential::AccountKey(key)),
            None => refuse(
                "AZURE_STORAGE_KEY",
                "it is not valid base64: copy it again, including the = at its end",
            ),
        };
    }
    if let Some(sas) = variable("AZURE_STORAGE_SAS_TOKEN") {
        return match Sas::new(&sas) {
            Some(sas) => Ok(BlobCredential::Sas(sas)),
            None => refuse("AZURE_STORAGE_SAS_TOKEN", "it contains no sig=: copy it again, to its end"),
        };
    }
    crate::azblob::service::entra::credential(&address.account).map(BlobCredential::Entra)
}

impl fmt::Debug for BlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobStore").field("place", &self.session.container.place).finish_non_exhaustive()
    }
}

impl Store for BlobStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            wakes: false,
            fences_checkpoints: !self.session.shared_with_other_sdks(),
            keeps_history: true,
            clock_resolution: CLOCK_RESOLUTION,
            shared_with_other_sdks: self.session.shared_with_other_sdks(),
        }
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        Box::pin(self.session.groups())
    }

    fn init_group<'a>(&'a self, group: &'a GroupId, origin: &'a GroupOrigin) -> StoreFuture<'a, GroupOrigin> {
        Box::pin(self.session.init_group(group, origin))
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        Box::pin(self.session.view(group))
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, DesiredState> {
        Box::pin(self.session.heartbeat(group, record))
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        Box::pin(self.session.retire(group, host))
    }

    fn set_desired_state<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        desired: DesiredState,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.session.set_desired_state(group, host, desired))
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, ClaimOutcome> {
        Box::pin(self.session.claim(group, request))
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        self.renew_within(group, duration, tokens, RENEW_LIMIT)
    }

    fn renew_within<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
        limit: Duration,
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        Box::pin(self.session.renew(group, duration, tokens, limit))
    }

    fn transfer<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a TransferRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        Box::pin(self.session.transfer(group, request))
    }

    fn release<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a ReleaseRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        Box::pin(self.session.release(group, request))
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, SaveOutcome> {
        Box::pin(self.session.save(group, request))
    }

    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, SeekOutcome> {
        Box::pin(self.session.seek(group, request))
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        Box::pin(self.session.history(group, partition, max))
    }

    /// Never returns: the service sends no notifications.
    fn changed<'a>(&'a self, _group: &'a GroupId, _host: &'a HostId) -> BoxFuture<'a, ()> {
        Box::pin(std::future::pending())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_no_key_where_entra_id_cannot_be_used_is_told_where_to_put_one() {
        let address = "BlobEndpoint=http://127.0.0.1:7/contoso;AccountName=contoso;Container=leases";
        let address = BlobAddress::parse(address).unwrap();
        let credential = BlobCredential::Entra(crate::azblob::service::entra::credential("contoso").unwrap());
        let error = BlobStore::with_credential(&address, credential, BlobOptions::default()).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("AZURE_STORAGE_KEY") && error.contains("https"), "{error}");
    }

    #[test]
    fn only_with_other_sdks_nothing_is_fenced_and_no_epoch_keeps_anybody_out() {
        for (shared_with, shared) in [("ephor", false), ("other-sdks", true)] {
            let place = "AccountName=contoso;AccountKey=c2VjcmV0;Container=leases";
            let text = format!("{place};SharedWith={shared_with}");
            let can = BlobStore::new(&text, BlobOptions::default()).unwrap().capabilities();
            assert_eq!(
                (can.shared_with_other_sdks, can.fences_checkpoints),
                (shared, !shared),
                "{shared_with}"
            );
        }
    }
}
