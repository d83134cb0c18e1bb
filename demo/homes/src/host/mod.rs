//! The program that reads the hub: start reading here.
//!
//! Any number of these run at a time, on any number of machines. Those that share a store share the partitions: each
//! partition has one owner, who goes on where the last one stopped. What you write yourself is a processor, here
//! [`Clerk`]; what you choose is where events come from, where leases and checkpoints are kept, and where results go.
//!
//! | file | what it owns |
//! |---|---|
//! | `clerk.rs` | the processor: what is done with the events of a partition |
//! | `settings.rs` | how often, how long, how many, and why |
//! | `orders.rs` | what comes from outside: commands and signals |

mod clerk;
mod orders;
mod settings;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ephor::{BoxError, EventProcessorHost, EventProcessorOptions, EventSource, StartPosition, Store};
use ephor_eventhubs::{Builder, EventHubs};
use ephor_stores::StoreUrl;

use crate::consolidate::{Consolidation, Desk, Homes};
use crate::fleet::{ALARMS, CONSOLIDATE};
use crate::results::Place;

pub use clerk::Clerk;
pub use orders::{Orders, Pace};
pub use settings::{FLUSH_EVERY, STOP_LIMIT, STOP_TIME};

/// What a host must know.
#[derive(Clone)]
pub struct HostOptions {
    /// Its name, which no other host that runs may have.
    pub name: String,
    /// The connection string of the hub.
    pub hub: String,
    /// Certificates in PEM that are trusted besides those of the web, for a hub with one of its own.
    pub extra_root: Option<PathBuf>,
    /// Connects to a hub on another machine without TLS, if its connection string says so.
    pub allow_insecure: bool,
    /// The store of leases and checkpoints, such as `sqlite:PATH`.
    pub store: String,
    /// Where results go: a folder, or the connection string of a storage account.
    pub results: String,
    /// The container for them in a storage account.
    pub container: String,
    /// Whether a partition without checkpoint begins with the events that are yet to come, and not with the first.
    pub from_latest: bool,
    /// How often the state of homes is written: [`FLUSH_EVERY`].
    pub flush_every: Duration,
}

/// Runs until it is told to stop, or its parent is gone.
pub async fn run(options: HostOptions) -> Result<(), BoxError> {
    // Where events come from, where leases and checkpoints are kept, and where results go.
    let hub: Arc<dyn EventSource> = Arc::new(connect(&options).await?);
    let store: Arc<dyn Store> = ephor_stores::open(&options.store.parse::<StoreUrl>()?).await?;
    let results = Place::open(&options.results, &options.container).await?;

    // Two jobs with the same events: two consumer groups, each with its own leases and checkpoints.
    let mut orders = Orders::listen()?;
    let begins = if options.from_latest { StartPosition::Latest } else { StartPosition::Earliest };
    let job =
        Job { name: &options.name, hub: &hub, store: &store, results: &results, begins, pace: orders.pace() };
    let homes = job.host::<Homes>(CONSOLIDATE, "homes", options.flush_every)?;
    let alarms = job.host::<Desk>(ALARMS, "alarms", Duration::ZERO)?;

    // From here on it is the host that works: it claims its share of the partitions, hands over what others
    // should have, and tries again whatever fails.
    tokio::try_join!(homes.start(), alarms.start())?;
    let why = orders.stop().await;

    // In good order: finish what is in hand, write it, save how far we came, and let the others have it at once.
    let stops = async { tokio::join!(homes.stop(STOP_TIME), alarms.stop(STOP_TIME)) };
    let (homes, alarms) = tokio::time::timeout(STOP_LIMIT, stops).await.map_err(|_| LATE)?;
    eprintln!("{} stopped, {why}: homes: {}; alarms: {}", options.name, homes?, alarms?);
    Ok(())
}

const LATE: &str = "it did not stop in time; what it still owned waits until the leases run out";

/// What the jobs of this program have in common.
struct Job<'a> {
    name: &'a str,
    hub: &'a Arc<dyn EventSource>,
    store: &'a Arc<dyn Store>,
    results: &'a Place,
    begins: StartPosition,
    pace: Pace,
}

impl Job<'_> {
    /// A host that gives every partition it owns to a clerk.
    fn host<C: Consolidation + Sync>(
        &self,
        group: &str,
        kind: &'static str,
        flush_every: Duration,
    ) -> Result<EventProcessorHost, BoxError> {
        let (results, pace) = (self.results.clone(), self.pace.clone());
        let host = EventProcessorHost::builder_from(self.hub.clone(), self.store.clone())
            .consumer_group(group)
            .host_name(self.name)
            .options(EventProcessorOptions {
                initial_position: self.begins.clone().into(),
                ..settings::processing()
            })
            .manager_options(settings::managing())
            .processor(move |_| Clerk::<C>::new(results.clone(), kind, flush_every, pace.clone()))?;
        Ok(host)
    }
}

/// The hub of the connection string. It is connected when it is first used.
async fn connect(options: &HostOptions) -> Result<EventHubs, BoxError> {
    let builder = EventHubs::builder(&options.hub).options(settings::connecting()).client_name(&options.name);
    let builder = permitting(builder, options.allow_insecure);
    Ok(trusting(builder, options.extra_root.as_deref()).await?.build()?)
}

/// Connects without TLS to another machine, too, if that is said.
pub(crate) fn permitting(builder: Builder, insecure: bool) -> Builder {
    if insecure { builder.allow_insecure() } else { builder }
}

/// Trusts the certificates of a file, too, if there is one.
pub(crate) async fn trusting(builder: Builder, file: Option<&Path>) -> Result<Builder, BoxError> {
    let Some(file) = file else { return Ok(builder) };
    let read = tokio::fs::read(file).await;
    Ok(builder.extra_root(read.map_err(|error| format!("cannot read {}: {error}", file.display()))?))
}

impl fmt::Debug for HostOptions {
    /// Connection strings are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostOptions({}, flush every {:?})", self.name, self.flush_every)
    }
}
