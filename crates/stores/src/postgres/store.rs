//! `PostgresStore`: implements `Store` with the methods of the session, and saves in a transaction of the
//! user (`save_in`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};
use ephor_core::position::SequenceNumber;
use ephor_core::store::{
    Capabilities, ClaimOutcome, DesiredState, GiveUpOutcome, GroupOrigin, RenewalOutcome, SaveOutcome,
    SaveRequest, SeekOutcome, SeekRequest, Store, StoreError, StoreFuture, View,
};

use super::connections::Purpose;
use super::error_mapping;
use super::listener::Listener;
use super::options::{InvalidSettings, PostgresOptions, connect_options};
use super::rows;
use super::session::{Session, TablePolicy};
use super::waiting_hosts::{self, Wakers};
use crate::{OpenError, StoreUrl};

/// The store's times are milliseconds.
const CLOCK_RESOLUTION: Duration = Duration::from_millis(1);

/// A store in a PostgreSQL database. Clones share its connections: one store serves all hosts of a process.
///
/// ```no_run
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use ephor_core::store::Store;
/// use ephor_stores::postgres::{PostgresOptions, PostgresStore};
///
/// let url = "postgres://ada:secret@db.example/fleet";
/// let store = PostgresStore::connect(url, PostgresOptions::default()).await?;
/// println!("{:?}", store.groups().await?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

struct Inner {
    session: Session,
    wakers: Arc<Wakers>,
    /// None if the options switch listening off.
    listener: Option<Listener>,
}

impl PostgresStore {
    /// Connects: [`new`](Self::new), then [`check`](Self::check).
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Self, OpenError> {
        let store = Self::new(url, options)?;
        store.check().await?;
        Ok(store)
    }

    /// Connects for tools: [`new_existing`](Self::new_existing), then [`check`](Self::check). None if there are
    /// no tables.
    pub async fn connect_existing(url: &str, options: PostgresOptions) -> Result<Option<Self>, OpenError> {
        let store = Self::new_existing(url, options)?;
        if !store.exists().await? {
            return Ok(None);
        }
        store.check().await?;
        Ok(Some(store))
    }

    /// A store that connects with its first call, and then creates its tables if they do not exist. This call
    /// itself does no I/O.
    pub fn new(url: &str, options: PostgresOptions) -> Result<Self, InvalidSettings> {
        Self::with_policy(url, options, TablePolicy::CreateOrMigrate)
    }

    /// A store for tools. It neither creates tables nor migrates those of an earlier release, because that
    /// would lock the hosts of that release out. Calls fail then, and say so.
    pub fn new_existing(url: &str, options: PostgresOptions) -> Result<Self, InvalidSettings> {
        Self::with_policy(url, options, TablePolicy::RequireCurrent)
    }

    fn with_policy(
        url: &str,
        options: PostgresOptions,
        tables: TablePolicy,
    ) -> Result<Self, InvalidSettings> {
        options.check()?;
        let connect = connect_options(url)?;
        let place = StoreUrl::Postgres(url.to_owned()).to_string();
        let wakers = Arc::new(Wakers::default());
        let channel = waiting_hosts::channel(&options.schema);
        let listener = options.listen.then(|| Listener::new(connect.clone(), channel, wakers.clone()));
        let session = Session::new(connect, options, tables, place);
        Ok(Self { inner: Arc::new(Inner { session, wakers, listener }) })
    }

    /// Connects, and creates or migrates the tables if that is allowed, so that errors that an operator
    /// must fix appear at the start. Refuses a server that acknowledges commits before they are on disk.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.session().call(self.session().check_durability()).await
    }

    /// Whether the tables exist. Unlike all other calls this one creates none.
    pub async fn exists(&self) -> Result<bool, StoreError> {
        self.session().call(self.session().has_tables()).await
    }

    /// Saves a position inside your own transaction, so that your effects and the position are committed
    /// together or not at all.
    ///
    /// The transaction contains the effects of the events from `first` up to the position of `request`.
    /// Commit it only if the result is [`SaveOutcome::Saved`]:
    ///
    /// - [`SaveOutcome::Fenced`]: another host owns the partition now. Roll back, and stop.
    /// - [`SaveOutcome::Behind`]: effects from `first` on are stored already, by a commit whose answer was lost.
    ///   Roll back, skip the events up to the stored position, and process the remaining ones again.
    ///
    /// The fence is the checkpoint's row, which stays locked until the transaction ends. Leases are not
    /// locked, so renewals continue, but no host can take the partition over meanwhile. Therefore call
    /// this last, right before the commit; the server ends the transaction if it is then idle for
    /// [`PostgresOptions::transaction_idle`].
    ///
    /// The transaction must be one of the database that contains the store.
    pub async fn save_in(
        &self,
        transaction: &mut sqlx::Transaction<'_, sqlx::Postgres>,
        group: &GroupId,
        request: &SaveRequest,
        first: SequenceNumber,
    ) -> Result<SaveOutcome, StoreError> {
        let saved = self.session().save_in(transaction, group, request, first).await;
        saved.map_err(|error| error_mapping::of(error, &self.session().place))
    }

    fn session(&self) -> &Session {
        &self.inner.session
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresStore").field(&self.session().place).finish()
    }
}

impl Store for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            wakes: self.inner.listener.is_some(),
            fences_checkpoints: true,
            keeps_history: true,
            clock_resolution: CLOCK_RESOLUTION,
            shared_with_other_sdks: false,
        }
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        Box::pin(self.session().call(self.session().groups()))
    }

    fn init_group<'a>(&'a self, group: &'a GroupId, origin: &'a GroupOrigin) -> StoreFuture<'a, GroupOrigin> {
        Box::pin(self.session().call(self.session().init_group(group, origin)))
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        Box::pin(self.session().call(self.session().view(Purpose::Ownership, group)))
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, DesiredState> {
        Box::pin(self.session().call(async move {
            if let Some(listener) = &self.inner.listener {
                listener.start().await;
                self.inner.wakers.register(group, &record.id);
            }
            self.session().heartbeat(group, record).await
        }))
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        Box::pin(self.session().call(async move {
            self.session().retire(group, host).await?;
            self.inner.wakers.unregister(group, host);
            Ok(())
        }))
    }

    fn set_desired_state<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        desired: DesiredState,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.session().call(self.session().set_desired_state(group, host, desired)))
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, ClaimOutcome> {
        Box::pin(self.session().call(self.session().claim(group, request)))
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        Box::pin(self.session().call(self.session().renew(group, duration, tokens)))
    }

    fn transfer<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a TransferRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        Box::pin(self.session().call(self.session().transfer(group, request)))
    }

    fn release<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a ReleaseRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        Box::pin(self.session().call(self.session().release(group, request)))
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, SaveOutcome> {
        Box::pin(self.session().call(self.session().save(group, request)))
    }

    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, SeekOutcome> {
        Box::pin(self.session().call(self.session().seek(group, request)))
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        Box::pin(self.session().call(async move {
            let rows = self.session().history(group, partition, max).await?;
            // Unreadable rows are left out.
            let read = |row| {
                rows::change(row)
                    .inspect_err(|why| tracing::warn!(%group, why, "a row of the history is unreadable"))
                    .ok()
            };
            Ok(rows.iter().filter_map(read).collect())
        }))
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(listener) = &self.inner.listener else {
                return std::future::pending().await;
            };
            let waker = self.inner.wakers.register(group, host);
            listener.start().await;
            waker.notified().await;
        })
    }
}
