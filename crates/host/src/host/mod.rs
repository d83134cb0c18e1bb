//! The host `EventProcessorHost`, usually one per process: starts, runs and stops its tasks.
//!
//! | task | owns |
//! |---|---|
//! | [`manager`] | the scan loop: claims, requests, handovers |
//! | [`renewer`] | the renewal of leases |
//! | a pump per partition ([`crate::pump`]) | the processor and the receiver |

mod cooldowns;
mod fleet_tracker;
mod foreign_readers;
mod health;
mod heartbeat;
mod hosts_with_our_name;
mod hub_refresh;
mod known_epochs;
mod lag_refresh;
mod manager;
mod negotiation;
mod other_hubs_at_start;
mod other_hubs_while_running;
mod ownership;
pub(crate) mod ownership_changes;
mod pumps;
mod renewer;
mod running_host;
mod signals;
pub(crate) mod snapshot;
mod start;
mod start_timeout;
mod stop;
mod stop_progress;
mod stuck_calls;
#[cfg(feature = "mutations")]
mod switched_off_rules;
#[cfg(test)]
mod test_values;

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor_core::host_record::ReadHub;
use ephor_core::ids::{GroupId, HostId, HostName, PartitionId};
use ephor_core::rules::Rules;
use ephor_core::source::{EventSource, SourceError};
use ephor_core::store::{Store, StoreError};
use tokio::sync::{broadcast, watch};

use crate::admin::Admin;
use crate::environment::{Environment, TaskHandle};
use crate::error::{StoreCallError, another_hub};
use crate::options::{EventProcessorOptions, PartitionManagerOptions};
use crate::pump_interface::RunPump;
use crate::stop_report::StopReport;
use ownership_changes::{OwnershipChanges, OwnershipEvent};
use running_host::RunningHost;
use snapshot::HostSnapshot;

/// The error of a host that does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// It is running already.
    #[error("the host {host} is running already; stop it before starting it again")]
    AlreadyStarted {
        /// The host.
        host: HostId,
    },
    /// The hub refuses, and a retry would not help.
    #[error("cannot start on hub {hub}: {error}")]
    Hub {
        /// The hub.
        hub: String,
        /// The error of the hub.
        #[source]
        error: SourceError,
    },
    /// The hub has not answered within
    /// [`start_timeout`](EventProcessorOptions::start_timeout).
    #[error("the hub {hub} has not answered within {within:?} (start_timeout): {error}")]
    HubUnavailable {
        /// The hub.
        hub: String,
        /// The timeout.
        within: Duration,
        /// The error of the last attempt.
        #[source]
        error: SourceError,
    },
    /// The store refuses, and a retry would not help. Without a
    /// [`start_timeout`](EventProcessorOptions::start_timeout) a start does not wait for the store.
    #[error("cannot start on this store: {error}")]
    Store {
        /// The error of the store.
        #[source]
        error: StoreError,
    },
    /// The store has not answered within
    /// [`start_timeout`](EventProcessorOptions::start_timeout).
    #[error("the store has not answered within {within:?} (start_timeout): {error}")]
    StoreUnavailable {
        /// The timeout.
        within: Duration,
        /// The error of the last attempt.
        #[source]
        error: StoreCallError,
    },
    /// The hub has no partitions.
    #[error("the hub {hub} has no partitions, so there is nothing to process")]
    EmptyHub {
        /// The hub.
        hub: String,
    },
    /// A host of the same group, in the same store, reads another hub.
    #[error("cannot start: {}", another_hub(ours, host, theirs))]
    AnotherHub {
        /// The hub that this host reads.
        ours: ReadHub,
        /// The other host.
        host: HostId,
        /// The hub that it reads.
        theirs: ReadHub,
    },
}

/// The error of stopping a host that is not running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host is not running")]
pub struct NotRunning;

/// Runs your processor on its share of a hub's partitions.
///
/// It is cheap to clone, for example for a health endpoint: all clones are one host.
///
/// [`stop`](Self::stop) it when you are done (graceful shutdown). Dropping the last clone of a
/// running host is the same as a crash: nothing is closed, saved or released, and its partitions
/// wait until their leases expire.
///
/// ```
/// # use ephor_host as ephor;
/// use std::time::Duration;
/// use ephor::EventProcessorHost;
/// use ephor::memory::{MemoryHub, MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let hub = MemoryHub::new("homes", 4)?;
/// hub.send(ephor::PartitionId(2), "the front door is open")?;
///
/// let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
/// let host = EventProcessorHost::builder(hub, MemoryStore::default())
///     .host_name(ephor::host_name("doc"))
///     .for_each_event(move |context, event| {
///         let sender = sender.clone();
///         async move {
///             sender.send((context.partition(), event.text().map(str::to_string)))?;
///             Ok(())
///         }
///     })?;
/// host.start().await?;
/// let (partition, text) = seen.recv().await.expect("the event arrives");
/// assert_eq!((partition.0, text.as_deref()), (2, Some("the front door is open")));
///
/// let report = host.stop(Duration::from_secs(5)).await?;
/// assert!(report.is_clean());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EventProcessorHost(Arc<HostInner>);

struct HostInner {
    config: Config,
    changes: broadcast::Sender<OwnershipEvent>,
    state: Mutex<State>,
}

pub(crate) struct Config {
    pub(crate) source: Arc<dyn EventSource>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) group: GroupId,
    pub(crate) name: HostName,
    pub(crate) options: EventProcessorOptions,
    pub(crate) manager: PartitionManagerOptions,
    pub(crate) rules: Rules,
    pub(crate) run_pump: RunPump,
}

#[derive(Default)]
struct State {
    running: Option<Running>,
    /// Set while `start` is in progress.
    starting: Option<HostId>,
    paused: BTreeSet<PartitionId>,
}

impl State {
    /// Also `None` after a stop whose caller went away.
    fn running(&self) -> Option<&Running> {
        self.running.as_ref().filter(|running| running.ended.has_changed().is_ok())
    }
}

struct Running {
    host: Arc<RunningHost>,
    /// The report, once the host has stopped. Closed when the manager has ended.
    ended: watch::Receiver<Option<StopReport>>,
    _tasks: [TaskHandle; 2],
    _pulse: Option<TaskHandle>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let partitions = self.host.drop_pumps();
        if partitions > 0 {
            let (host, wait) = (&self.host.me, self.host.manager.lease_duration);
            tracing::warn!(%host, partitions, ?wait, "dropped while running: its partitions are free when their leases expire");
        }
    }
}

impl EventProcessorHost {
    pub(crate) fn new(config: Config) -> Self {
        let (changes, _) = broadcast::channel(ownership_changes::MAX_KEPT_CHANGES);
        Self(Arc::new(HostInner { config, changes, state: Mutex::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group of this host.
    pub fn group(&self) -> &GroupId {
        &self.0.config.group
    }

    /// The administration of this host's group: hosts, leases, checkpoints, seeks, drains. `by` is
    /// written into the history of the changes.
    pub fn admin(&self, by: impl Into<String>) -> Admin {
        let Config { store, source, group, .. } = &self.0.config;
        Admin::new(store.clone(), source.clone(), group.clone(), by)
    }

    /// Stops gracefully: drains, closes, checkpoints and releases everything, and leaves the fleet.
    /// Calls in flight that take longer than `within` are given up. If the store does not answer,
    /// it takes a few [`store_timeout`](PartitionManagerOptions::store_timeout)s more to find out;
    /// leases that are not released then expire.
    ///
    /// Another call meanwhile can shorten the time, but not extend it; all calls return the same report.
    ///
    /// Do not await it inside `process_events`: the stop waits for that call, and the call for the
    /// stop, until `within` is over and the call is given up. Start it in a task of its own.
    pub async fn stop(&self, within: Duration) -> Result<StopReport, NotRunning> {
        // Also one that has ended because of a stop whose caller went away: its report is still there.
        let (mut ended, host) = match &self.state().running {
            Some(running) => (running.ended.clone(), running.host.clone()),
            None => return Err(NotRunning),
        };
        let until = self.0.config.environment.now() + within;
        host.stop.send_if_modified(|stop| {
            let sooner = stop.is_none_or(|earlier| until < earlier);
            if sooner {
                *stop = Some(until);
            }
            sooner
        });
        let report = ended.wait_for(Option::is_some).await.ok().and_then(|report| report.clone());
        let report = report.ok_or(NotRunning)?;
        // Not another one that was started meanwhile.
        let running = self.state().running.take_if(|running| Arc::ptr_eq(&running.host, &host));
        if running.is_some() {
            tracing::info!(group = %self.0.config.group, host = %host.me, %report, "stopped");
        }
        Ok(report)
    }

    /// Starts, waits for `shutdown`, and stops, with `within` for the calls in flight. A shutdown
    /// during the start ends it, and the report is empty.
    pub async fn run_until(
        &self,
        shutdown: impl Future<Output = ()>,
        within: Duration,
    ) -> Result<StopReport, StartError> {
        let mut shutdown = pin!(shutdown);
        tokio::select! {
            biased;
            started = self.start() => started?,
            () = &mut shutdown => return Ok(StopReport::default()),
        }
        shutdown.await;
        // Only another `stop` could have come first, and then there is nothing left to report.
        Ok(self.stop(within).await.unwrap_or_default())
    }

    /// Stops delivering events of this partition, but keeps owning it, until
    /// [`resume`](Self::resume). A call in flight ends normally.
    pub fn pause(&self, partition: PartitionId) {
        self.set_paused(partition, true);
    }

    /// Continues a partition that was paused.
    pub fn resume(&self, partition: PartitionId) {
        self.set_paused(partition, false);
    }

    fn set_paused(&self, partition: PartitionId, paused: bool) {
        let mut state = self.state();
        let change = |set: &mut BTreeSet<PartitionId>| {
            if paused {
                set.insert(partition)
            } else {
                set.remove(&partition)
            };
        };
        change(&mut state.paused);
        if let Some(running) = state.running() {
            change(&mut running.host.status().paused);
            if let Some(slot) = running.host.slots().get(&partition) {
                slot.control.send_modify(|control| control.paused = paused);
            }
        }
    }

    /// The partitions and the activity of the host at this moment; `None` while it is not running.
    pub fn snapshot(&self) -> Option<HostSnapshot> {
        self.state().running().map(|running| HostSnapshot::of(&running.host))
    }

    /// Ownership changes from now on.
    pub fn changes(&self) -> OwnershipChanges {
        OwnershipChanges::new(self.0.changes.subscribe())
    }
}

impl fmt::Debug for EventProcessorHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventProcessorHost({:?}, {})", self.0.config.name, self.0.config.group)
    }
}
