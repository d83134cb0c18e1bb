//! A hub, a store and any number of hosts in one test, on virtual time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ephor::admin::Admin;
use ephor::environment::Environment;
use ephor::memory::{MemoryHub, MemoryStore};
use ephor::{
    BuildError, EventProcessorHost, EventSource, HostBuilder, HostSnapshot, PartitionId, Position,
    SequenceNumber, StartError, StartPosition, StopReport, Store,
};
use ephor_core::ids::{ConsumerGroup, GroupId};

use crate::virtual_time::VirtualEnvironment;

/// The interval at which a condition is checked.
const LOOK: Duration = Duration::from_millis(10);
/// The time after which a wait for a condition fails.
const PATIENCE: Duration = Duration::from_secs(600);

/// The error of a condition that did not become true.
#[derive(thiserror::Error)]
#[error("{what} within {PATIENCE:?}:\n{state}")]
pub struct GaveUp {
    what: String,
    state: String,
}

impl fmt::Debug for GaveUp {
    /// The same as `Display`: a test that fails prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A hub, a store and hosts, for testing a processor.
///
/// ```
/// use ephor::PartitionId;
/// use ephor_testkit::TestFleet;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), ephor::BoxError> {
/// let mut fleet = TestFleet::new(4)?;
/// for name in ["a", "b"] {
///     fleet.start(name, |host| host.for_each_event(|_, _| async { Ok(()) })).await?;
/// }
/// fleet.until_balanced().await?;
/// for n in 0..100 {
///     fleet.hub().send(PartitionId(n % 4), format!("event {n}"))?;
/// }
/// fleet.until_caught_up().await?;
/// fleet.kill("a");
/// fleet.until_balanced().await?; // b has everything, half a virtual minute later
/// assert_eq!(fleet.snapshot("b").partitions.len(), 4);
/// # Ok(())
/// # }
/// ```
pub struct TestFleet {
    environment: VirtualEnvironment,
    hub: MemoryHub,
    store: Arc<dyn Store>,
    group: GroupId,
    hosts: BTreeMap<String, EventProcessorHost>,
}

impl TestFleet {
    /// A hub with this many partitions, and no hosts yet. Use it in a test with
    /// `#[tokio::test(start_paused = true)]`.
    pub fn new(partitions: u32) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let environment = VirtualEnvironment::new();
        let clock = Arc::new(environment.clone());
        let hub = MemoryHub::new("test", partitions)?.with_clock(clock.clone());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock));
        let group = GroupId {
            namespace: hub.namespace().clone(),
            hub: hub.hub().clone(),
            group: ConsumerGroup::default_group(),
        };
        Ok(Self { environment, hub, store, group, hosts: BTreeMap::new() })
    }

    /// The same fleet on another store.
    #[must_use]
    pub fn with_store(self, store: Arc<dyn Store>) -> Self {
        Self { store, ..self }
    }

    /// The same fleet on a hub that does not fence readers ([`MemoryHub::without_fencing`]).
    #[must_use]
    pub fn without_fencing(self) -> Self {
        Self { hub: self.hub.without_fencing(), ..self }
    }

    /// The hub, to which a test sends.
    pub fn hub(&self) -> &MemoryHub {
        &self.hub
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The consumer group of all hosts.
    pub fn group(&self) -> &GroupId {
        &self.group
    }

    /// The clock, the tasks and the random numbers on which everything runs.
    pub fn environment(&self) -> Arc<dyn Environment> {
        Arc::new(self.environment.clone())
    }

    /// Administration of this group.
    pub fn admin(&self) -> Admin {
        Admin::new(self.store.clone(), Arc::new(self.hub.clone()), self.group.clone(), "a test")
    }

    /// Starts a host. `finish` sets its options and its processor.
    pub async fn start(
        &mut self,
        name: &str,
        finish: impl FnOnce(HostBuilder) -> Result<EventProcessorHost, BuildError>,
    ) -> Result<(), FleetError> {
        if self.hosts.contains_key(name) {
            return Err(FleetError::NameInUse { name: name.into() });
        }
        let builder = EventProcessorHost::builder(self.hub.clone(), self.store.clone())
            .environment(self.environment())
            .host_name(name);
        let host = finish(builder)?;
        host.start().await?;
        self.hosts.insert(name.into(), host);
        Ok(())
    }

    /// A host that was started and neither stopped nor killed.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn host(&self, name: &str) -> &EventProcessorHost {
        let names: Vec<_> = self.hosts.keys().collect();
        self.hosts.get(name).unwrap_or_else(|| panic!("no host {name:?}, there are {names:?}"))
    }

    /// The partitions and the activity of a host at this moment.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn snapshot(&self, name: &str) -> HostSnapshot {
        self.host(name).snapshot().unwrap_or_else(|| panic!("the host {name:?} does not run"))
    }

    /// Stops a host gracefully.
    ///
    /// # Panics
    /// If there is no such host.
    pub async fn stop(&mut self, name: &str) -> StopReport {
        self.host(name);
        let Some(host) = self.hosts.remove(name) else { return StopReport::default() };
        host.stop(Duration::from_secs(30)).await.unwrap_or_default()
    }

    /// Ends a host as a crash does: nothing is closed, saved or released.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn kill(&mut self, name: &str) {
        self.host(name);
        drop(self.hosts.remove(name));
    }

    /// Lets time pass.
    pub async fn pass(&self, time: Duration) {
        use ephor_core::time::Clock;
        self.environment.sleep_until(self.environment.now() + time).await;
    }

    /// Waits until everything that was sent is finished.
    pub async fn until_caught_up(&self) -> Result<(), GaveUp> {
        self.until("the fleet did not catch up", || self.is_caught_up()).await
    }

    /// Waits until every partition has an owner and the load is even.
    pub async fn until_balanced(&self) -> Result<(), GaveUp> {
        self.until("the fleet did not become balanced", || self.is_balanced()).await
    }

    /// Waits until a condition holds.
    pub async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) -> Result<(), GaveUp> {
        for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
            if holds() {
                return Ok(());
            }
            self.pass(LOOK).await;
        }
        Err(GaveUp { what: what.into(), state: format!("{self:?}") })
    }

    fn is_caught_up(&self) -> bool {
        let finished = self.finished();
        self.hub.ends().iter().all(|(partition, last)| match last {
            None => true,
            Some(last) => finished.get(partition).is_some_and(|finished| finished >= last),
        })
    }

    fn is_balanced(&self) -> bool {
        let (partitions, hosts) = (self.hub.ends().len(), self.hosts.len());
        let owned: Vec<usize> = self.snapshots().map(|snapshot| snapshot.partitions.len()).collect();
        hosts > 0
            && owned.iter().sum::<usize>() == partitions
            && owned.iter().all(|&n| n >= partitions / hosts && n <= partitions.div_ceil(hosts))
    }

    /// The last event of each owned partition that need not be read any more: finished, or before
    /// the position at which reading started.
    pub fn finished(&self) -> BTreeMap<PartitionId, SequenceNumber> {
        let partitions = self.snapshots().flat_map(|snapshot| snapshot.partitions);
        partitions
            .filter_map(|owned| {
                let saved = owned.checkpoint.as_ref().and_then(|saved| behind(&saved.position));
                Some((owned.partition, owned.finished.max(saved)?))
            })
            .collect()
    }

    fn snapshots(&self) -> impl Iterator<Item = HostSnapshot> {
        self.hosts.values().filter_map(EventProcessorHost::snapshot)
    }
}

/// The event after which reading resumes.
fn behind(position: &Position) -> Option<SequenceNumber> {
    match position.start() {
        StartPosition::Sequence { number, inclusive: false } => Some(number),
        StartPosition::Sequence { number, inclusive: true } => number.0.checked_sub(1).map(SequenceNumber),
        _ => None,
    }
}

impl fmt::Debug for TestFleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for snapshot in self.snapshots() {
            write!(f, "{} {:?} share {}:", snapshot.host.name, snapshot.state, snapshot.share)?;
            writeln!(f)?;
            for owned in &snapshot.partitions {
                let finished = owned.finished.map_or("nothing".into(), |finished| finished.to_string());
                write!(
                    f,
                    "  {:?} in {:?}: {:?}, finished {finished}",
                    owned.partition, owned.epoch, owned.state
                )?;
                if let Some(failing) = &owned.failing {
                    write!(f, ", attempt {} failed: {}", failing.attempts, failing.error)?;
                }
                writeln!(f)?;
            }
        }
        write!(f, "hub: {:?}", self.hub.ends())
    }
}

/// The error of a host of the fleet that did not start.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// It was built with invalid settings.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Another host of this fleet has the name.
    #[error("a host {name:?} is in this fleet already")]
    NameInUse {
        /// The name.
        name: String,
    },
}
