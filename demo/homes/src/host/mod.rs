//! The host program of the demo, which reads the hub and writes the results. Readers of the code should
//! begin here.
//!
//! Any number of hosts run at a time, on any number of machines. Hosts that share a store share the partitions: each partition
//! has one owner, which continues where the last one stopped. You write a processor, here [`HomesProcessor`]; you choose the
//! source of events, the store of leases and checkpoints, and the target of results.
//!
//! | file | what it owns |
//! |---|---|
//! | `homes_processor.rs` | the processor of a partition's events |
//! | `settings.rs` | intervals, durations and limits, with their reasons |
//! | `commands.rs` | commands on standard input, and signals |

mod commands;
mod homes_processor;
mod settings;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ephor::{BoxError, EventProcessorHost, EventProcessorOptions, EventSource, StartPosition, Store};
use ephor_eventhubs::{EventHub, EventHubBuilder};
use ephor_stores::StoreUrl;

use crate::consolidate::{Consolidation, Homes, OpenAlarms};
use crate::fleet::{ALARMS, CONSOLIDATE};
use crate::results::ResultStore;

pub use commands::{Commands, Slowdown};
pub use homes_processor::HomesProcessor;
pub use settings::{FLUSH_EVERY, STOP_LIMIT, STOP_TIME};

/// The options of a host.
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
    /// The target of results: a folder, or the connection string of a storage account.
    pub results: String,
    /// The container for them in a storage account.
    pub container: String,
    /// Whether a partition without checkpoint begins with the events that are yet to come, and not with the first.
    pub from_latest: bool,
    /// How often the state of homes is written: [`FLUSH_EVERY`].
    pub flush_every: Duration,
}

/// Runs until it gets a stop command or a signal, or its parent is gone.
pub async fn run(options: HostOptions) -> Result<(), BoxError> {
    // Where events come from, where leases and checkpoints are kept, and where results go.
    let hub: Arc<dyn EventSource> = Arc::new(connect(&options).await?);
    let store: Arc<dyn Store> = ephor_stores::open(&options.store.parse::<StoreUrl>()?).await?;
    let results = ResultStore::open(&options.results, &options.container).await?;

    // Two jobs with the same events: two consumer groups, each with its own leases and checkpoints.
    let mut commands = Commands::listen()?;
    let begins = if options.from_latest { StartPosition::Latest } else { StartPosition::Earliest };
    let job = Job {
        name: &options.name,
        hub: &hub,
        store: &store,
        results: &results,
        begins,
        slowdown: commands.slowdown(),
    };
    let homes = job.host::<Homes>(CONSOLIDATE, "homes", options.flush_every)?;
    let alarms = job.host::<OpenAlarms>(ALARMS, "alarms", Duration::ZERO)?;

    // From here on it is the host that works: it claims its share of the partitions, hands over what others
    // should have, and tries again whatever fails.
    tokio::try_join!(homes.start(), alarms.start())?;
    let why = commands.stop().await;

    // Graceful shutdown: finish the current batch, write it, save the checkpoint, and release the partitions.
    let stops = async { tokio::join!(homes.stop(STOP_TIME), alarms.stop(STOP_TIME)) };
    let (homes, alarms) = tokio::time::timeout(STOP_LIMIT, stops).await.map_err(|_| LATE)?;
    eprintln!("{} stopped, {why}: homes: {}; alarms: {}", options.name, homes?, alarms?);
    Ok(())
}

const LATE: &str = "the host did not stop in time; other hosts take over its partitions when its leases \
                    expire";

/// The settings that both jobs of this program share.
struct Job<'a> {
    name: &'a str,
    hub: &'a Arc<dyn EventSource>,
    store: &'a Arc<dyn Store>,
    results: &'a ResultStore,
    begins: StartPosition,
    slowdown: Slowdown,
}

impl Job<'_> {
    /// Creates a host with one processor for each partition that it owns.
    fn host<C: Consolidation + Sync>(
        &self,
        group: &str,
        kind: &'static str,
        flush_every: Duration,
    ) -> Result<EventProcessorHost, BoxError> {
        let (results, slowdown) = (self.results.clone(), self.slowdown.clone());
        let host = EventProcessorHost::builder(self.hub.clone(), self.store.clone())
            .consumer_group(group)
            .host_name(self.name)
            .options(EventProcessorOptions {
                initial_position: self.begins.clone().into(),
                ..settings::processing()
            })
            .manager_options(settings::managing())
            .processor(move |_| {
                HomesProcessor::<C>::new(results.clone(), kind, flush_every, slowdown.clone())
            })?;
        Ok(host)
    }
}

/// Creates the client of the hub. It connects when it is first used.
async fn connect(options: &HostOptions) -> Result<EventHub, BoxError> {
    let builder = EventHub::builder(&options.hub).options(settings::connecting()).client_name(&options.name);
    let builder = permitting(builder, options.allow_insecure);
    Ok(trusting(builder, options.extra_root.as_deref()).await?.build()?)
}

/// Connects without TLS to another machine, too, if that is said.
pub(crate) fn permitting(builder: EventHubBuilder, insecure: bool) -> EventHubBuilder {
    if insecure { builder.allow_insecure() } else { builder }
}

/// Trusts the certificates of a file, too, if there is one.
pub(crate) async fn trusting(
    builder: EventHubBuilder,
    file: Option<&Path>,
) -> Result<EventHubBuilder, BoxError> {
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
