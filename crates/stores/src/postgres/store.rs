//! The store itself.

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
    Capabilities, Claim, Founding, GiveAway, HostOrders, Renewal, Save, SaveRequest, Seek, SeekRequest,
    Store, StoreError, StoreFuture, View,
};

use super::bells::{self, Bells};
use super::failure;
use super::listener::Listener;
use super::options::{ConnectError, PostgresOptions, connect_options};
use super::rows;
use super::session::{Session, Tables};
use crate::StoreUrl;

/// The store's times are milliseconds.
const CLOCK_RESOLUTION: Duration = Duration::from_millis(1);

/// A store in a PostgreSQL database. Clones share its connections: one store serves all hosts of a process.
///
/// ```no_run
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use ephor_core::store::Store;
/// use ephor_stores::postgres::{PostgresOptions, PostgresStore};
///
/// let store = PostgresStore::connect("postgres://ada:secret@db.example/fleet", PostgresOptions::default())?;
/// store.check().await?;
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
    bells: Arc<Bells>,
    /// None if nobody shall listen.
    listener: Option<Listener>,
}

impl PostgresStore {
    /// A store that connects when it is first used, and creates its tables then if they are not there.
    pub fn connect(url: &str, options: PostgresOptions) -> Result<Self, ConnectError> {
        Self::new(url, options, Tables::Prepared)
    }

    /// A store for tools: it neither creates tables nor brings those of an earlier release up to date, for the
    /// hosts of that release would be refused from then on. Calls fail then, and say so.
    pub fn connect_existing(url: &str, options: PostgresOptions) -> Result<Self, ConnectError> {
        Self::new(url, options, Tables::AsTheyAre)
    }

    fn new(url: &str, options: PostgresOptions, tables: Tables) -> Result<Self, ConnectError> {
        options.check()?;
        let connect = connect_options(url)?;
        let place = StoreUrl::Postgres(url.to_owned()).to_string();
        let bells = Arc::new(Bells::default());
        let channel = bells::channel(&options.schema);
        let listener = options.listen.then(|| Listener::new(connect.clone(), channel, bells.clone()));
        let session = Session::new(connect, options, tables, place);
        Ok(Self { inner: Arc::new(Inner { session, bells, listener }) })
    }

    /// Connects, and makes the tables what they should be, if that is allowed: an error that a person must mend is told before
    /// anything starts. A server that acknowledges what is not on its disk is refused, too.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.session().call(self.session().check_durability()).await
    }

    /// Whether the tables are there. Unlike all other calls this one creates none.
    pub async fn exists(&self) -> Result<bool, StoreError> {
        self.session().call(self.session().has_tables()).await
    }

    /// Saves a position inside a transaction of yours, so that your effects and this progress are committed
    /// together or not at all.
    ///
    /// The transaction holds effects of the events from `first` up to the position of `request`. Only if the
    /// answer is [`Save::Saved`] may it be committed:
    ///
    /// - [`Save::Fenced`]: another host owns the partition now. Roll back, and be done.
    /// - [`Save::Behind`]: effects from `first` on are stored already, by a commit whose answer was lost. Roll
    ///   back, leave out the events up to the stored position, and begin anew with those that remain.
    ///
    /// The fence is the checkpoint's row, which stays locked until the transaction ends; leases are not
    /// touched, so that renewals go on. Nobody can take the partition over meanwhile. Therefore call this last,
    /// right before the commit; the server ends the transaction if it then does nothing for
    /// [`PostgresOptions::transaction_idle`].
    ///
    /// The transaction must be one of the database that the store is in.
    pub async fn save_in(
        &self,
        transaction: &mut sqlx::Transaction<'_, sqlx::Postgres>,
        group: &GroupId,
        request: &SaveRequest,
        first: SequenceNumber,
    ) -> Result<Save, StoreError> {
        let saved = self.session().save_in(transaction, group, request, first).await;
        saved.map_err(|error| failure::of(error, &self.session().place))
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
            epochless_neighbours: false,
        }
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        Box::pin(self.session().call(self.session().groups()))
    }

    fn found<'a>(&'a self, group: &'a GroupId, founding: &'a Founding) -> StoreFuture<'a, Founding> {
        Box::pin(self.session().call(self.session().found(group, founding)))
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        Box::pin(self.session().call(self.session().view(group)))
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, HostOrders> {
        Box::pin(self.session().call(async move {
            if let Some(listener) = &self.inner.listener {
                listener.start().await;
                self.inner.bells.hang(group, &record.id);
            }
            self.session().heartbeat(group, record).await
        }))
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        Box::pin(self.session().call(async move {
            self.session().retire(group, host).await?;
            self.inner.bells.take_down(group, host);
            Ok(())
        }))
    }

    fn order<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        orders: HostOrders,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.session().call(self.session().order(group, host, orders)))
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, Claim> {
        Box::pin(self.session().call(self.session().claim(group, request)))
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<Renewal>> {
        Box::pin(self.session().call(self.session().renew(group, duration, tokens)))
    }

    fn transfer<'a>(&'a self, group: &'a GroupId, request: &'a TransferRequest) -> StoreFuture<'a, GiveAway> {
        Box::pin(self.session().call(self.session().transfer(group, request)))
    }

    fn release<'a>(&'a self, group: &'a GroupId, request: &'a ReleaseRequest) -> StoreFuture<'a, GiveAway> {
        Box::pin(self.session().call(self.session().release(group, request)))
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, Save> {
        Box::pin(self.session().call(self.session().save(group, request)))
    }

    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, Seek> {
        Box::pin(self.session().call(self.session().seek(group, request)))
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        Box::pin(self.session().call(async move {
            let rows = self.session().history(group, partition, most).await?;
            // A line that cannot be read is left out: it hides none of the others.
            let read = |row| {
                rows::change(row)
                    .inspect_err(|why| tracing::warn!(%group, why, "a line of the history is unreadable"))
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
            let bell = self.inner.bells.hang(group, host);
            listener.start().await;
            bell.notified().await;
        })
    }
}
