//! A hub in memory, with the rules of Azure Event Hubs: ordered partitions, consumer groups, epochs,
//! retention. Epochs can be switched off, to simulate a source that does not fence readers, and faults of a
//! real hub can be injected.
//!
//!   send ─► LOG (one per partition) ─► receivers, by group and epoch

mod log;
mod partition;
mod producer;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use ephor_core::BoxFuture;
use ephor_core::event::NewEvent;
use ephor_core::ids::{ConsumerGroup, HubName, InvalidName, LogId, Namespace, PartitionId};
use ephor_core::partition_key;
use ephor_core::position::SequenceNumber;
use ephor_core::source::{
    EventSource, HubProperties, OpenError, OpenRequest, PartitionProperties, Receiver, SourceCapabilities,
    SourceError,
};
use ephor_core::time::Clock;

use self::partition::Partition;
pub use self::producer::MemoryProducer;
use crate::environment::SystemClock;

/// The namespace of a hub that was given none.
const DEFAULT_NAMESPACE: &str = "memory";

/// A hub in memory. Clones share one hub.
///
/// ```
/// # use ephor_host as ephor;
/// use ephor::memory::MemoryHub;
/// use ephor::PartitionId;
///
/// let hub = MemoryHub::new("homes", 4)?;
/// let alarms = hub.create_group("alarms")?;
/// let number = hub.send(PartitionId(0), "the door opened")?;
/// assert_eq!(number.0, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryHub {
    namespace: Namespace,
    name: HubName,
    clock: Arc<dyn Clock>,
    capabilities: SourceCapabilities,
    world: Arc<RwLock<World>>,
}

struct World {
    log: LogId,
    /// The number of times that the hub has been created.
    lives: u64,
    groups: BTreeSet<ConsumerGroup>,
    partitions: Vec<Arc<Partition>>,
    outage: Option<Arc<str>>,
    /// Counts the sends that leave the choice of the partition to the hub.
    round_robin: AtomicU32,
}

impl MemoryHub {
    /// A hub with this many empty partitions and the consumer group `$Default`, in the namespace
    /// `memory`, on the system's clock.
    pub fn new(name: &str, partitions: u32) -> Result<Self, InvalidName> {
        let (name, namespace): (HubName, Namespace) = (name.parse()?, DEFAULT_NAMESPACE.parse()?);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let world = World {
            log: log_id(&name, &*clock, 1),
            lives: 1,
            groups: BTreeSet::from([ConsumerGroup::default_group()]),
            partitions: (0..partitions).map(|id| Partition::new(PartitionId(id), None)).collect(),
            outage: None,
            round_robin: AtomicU32::new(0),
        };
        let capabilities = SourceCapabilities::EVENT_HUBS;
        Ok(Self { namespace, name, clock, capabilities, world: Arc::new(RwLock::new(world)) })
    }

    /// Ignores the epochs of receivers, as a source that does not fence readers: any number of them
    /// read side by side, and none is disconnected by another. For a hub that is not in use yet.
    pub fn without_fencing(mut self) -> Self {
        self.capabilities = SourceCapabilities::PLAIN_LOG;
        self
    }

    /// Takes enqueued times and the log id from this clock. For a hub that is not in use yet.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        let mut world = self.change();
        world.log = log_id(&self.name, &*self.clock, world.lives);
        drop(world);
        self
    }

    /// Puts the hub into another namespace. For a hub that is not in use yet.
    pub fn with_namespace(mut self, namespace: &str) -> Result<Self, InvalidName> {
        self.namespace = namespace.parse()?;
        Ok(self)
    }

    /// Creates a consumer group, or finds the existing one.
    pub fn create_group(&self, group: &str) -> Result<ConsumerGroup, InvalidName> {
        let group: ConsumerGroup = group.parse()?;
        self.change().groups.insert(group.clone());
        Ok(group)
    }

    /// A producer, as those of other hubs. The methods below send, too, and do not wait.
    pub fn producer(&self) -> MemoryProducer {
        MemoryProducer::new(self.clone())
    }

    /// Appends an event to a partition, and returns its number.
    pub fn send(
        &self,
        partition: PartitionId,
        body: impl Into<Bytes>,
    ) -> Result<SequenceNumber, SourceError> {
        self.send_event(partition, NewEvent::new(body))
    }

    /// Appends an event with its key and properties, and returns its number.
    pub fn send_event(&self, partition: PartitionId, event: NewEvent) -> Result<SequenceNumber, SourceError> {
        let world = self.read();
        world.answer()?;
        Ok(self.partition(&world, partition)?.append([event], self.clock.wall()))
    }

    /// Appends an event to the partition of this key, and returns the partition and the event's
    /// number. It is the partition that the service would choose, and always the same as long as
    /// the hub does not grow.
    pub fn send_with_key(
        &self,
        key: &str,
        body: impl Into<Bytes>,
    ) -> Result<(PartitionId, SequenceNumber), SourceError> {
        let partition = partition_key::partition_for(key, self.read().partitions.len() as u32);
        let event = NewEvent { partition_key: Some(key.into()), ..NewEvent::new(body) };
        Ok((partition, self.send_event(partition, event)?))
    }

    /// Appends events atomically: no receiver sees only a part of them. Returns the number of the
    /// first one, or the number of the next event to come if there are none.
    pub fn send_batch(
        &self,
        partition: PartitionId,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> Result<SequenceNumber, SourceError> {
        // Collected before anything is locked, because the iterator is the caller's code.
        let events: Vec<NewEvent> = events.into_iter().collect();
        let world = self.read();
        world.answer()?;
        Ok(self.partition(&world, partition)?.append(events, self.clock.wall()))
    }

    /// The newest event of each partition, in order, even during an outage.
    pub fn ends(&self) -> Vec<(PartitionId, Option<SequenceNumber>)> {
        let properties = self.true_properties().into_iter();
        properties.map(|one| (one.id, one.last.map(|last| last.sequence))).collect()
    }

    /// The true properties of each partition, in order, whatever the hub reports
    /// ([`hold_properties`](Self::hold_properties)).
    pub fn true_properties(&self) -> Vec<PartitionProperties> {
        self.read().partitions.iter().map(|partition| partition.properties()).collect()
    }

    /// Adds partitions until there are this many. A hub never shrinks.
    pub fn grow(&self, to: u32) {
        let mut world = self.change();
        let outage = world.outage.clone();
        let new = (world.partitions.len() as u32)..to;
        world.partitions.extend(new.map(|id| Partition::new(PartitionId(id), outage.clone())));
    }

    /// Drops the events before this one, as retention does. A slow receiver goes on at the oldest
    /// event that is left.
    pub fn forget_before(&self, partition: PartitionId, sequence: SequenceNumber) -> Result<(), SourceError> {
        self.partition(&self.read(), partition)?.forget_before(sequence);
        Ok(())
    }

    /// Deletes the hub and creates it again: empty, with this many partitions, the same consumer
    /// groups and another log id. All receivers lose their links.
    pub fn recreate(&self, partitions: u32) {
        let mut world = self.change();
        world.disconnect_all(&format!("hub {:?} was created again", self.name));
        world.lives += 1;
        world.log = log_id(&self.name, &*self.clock, world.lives);
        let outage = world.outage.clone();
        world.partitions =
            (0..partitions).map(|id| Partition::new(PartitionId(id), outage.clone())).collect();
    }

    /// Restarts the hub: all receivers lose their links, and with them their epochs. Events and log
    /// id stay.
    pub fn restart(&self) {
        self.change().disconnect_all("the hub was restarted");
    }

    /// Simulates a power failure of a hub that does not wait for its disk: each partition loses as
    /// many of its newest events as `lost` says, and passes over as many numbers, so that none is
    /// used twice. All receivers lose their links.
    pub fn lose_power(&self, lost: impl Fn(PartitionId) -> u64) {
        let world = self.change();
        world.disconnect_all("the hub lost its power");
        for partition in &world.partitions {
            let lost = lost(partition.id());
            partition.lose_newest(usize::try_from(lost).unwrap_or(usize::MAX), lost);
        }
    }

    /// Freezes the results of `partition_properties`, until this is called with false: properties
    /// that lag behind the receivers.
    pub fn hold_properties(&self, hold: bool) {
        self.change().partitions.iter().for_each(|partition| partition.hold_properties(hold));
    }

    /// Makes the hub behave as a replica that has not caught up: `partition_properties` is frozen
    /// as with [`hold_properties`](Self::hold_properties), and a receiver that wants to start
    /// beyond the end that it shows is refused. Open receivers get every event. Ends with
    /// `hold_properties(false)`.
    pub fn hold_opens(&self) {
        self.change().partitions.iter().for_each(|partition| partition.hold_opens());
    }

    /// Simulates damage in the middle of a log: the events with these numbers are lost without a
    /// report, and later events stay where they are.
    pub fn lose(&self, partition: PartitionId, numbers: Range<SequenceNumber>) -> Result<(), SourceError> {
        self.partition(&self.read(), partition)?.lose(&numbers);
        Ok(())
    }

    /// Opens receivers at any sequence number, where they wait for the log to reach it, until this
    /// is called with false.
    pub fn take_any_position(&self, any: bool) {
        self.change().partitions.iter().for_each(|partition| partition.take_any_position(any));
    }

    /// Simulates an outage: all calls fail as unavailable, until this is called with `None`.
    /// Receivers stay attached meanwhile.
    pub fn fail(&self, message: Option<&str>) {
        let outage: Option<Arc<str>> = message.map(Arc::from);
        let mut world = self.change();
        world.outage = outage.clone();
        world.partitions.iter().for_each(|partition| partition.fail(outage.clone()));
    }

    /// Cuts the links of all receivers of a partition: they have to be opened again.
    pub fn disconnect(&self, partition: PartitionId) -> Result<(), SourceError> {
        self.partition(&self.read(), partition)?.disconnect_all(&Arc::from("the link was cut"));
        Ok(())
    }

    fn partition<'a>(&self, world: &'a World, id: PartitionId) -> Result<&'a Arc<Partition>, SourceError> {
        let found = usize::try_from(id.0).ok().and_then(|index| world.partitions.get(index));
        found.ok_or_else(|| SourceError::NotFound { what: format!("partition {id} of hub {:?}", self.name) })
    }

    // No method leaves the state half changed, so a panic elsewhere does not corrupt it.
    fn read(&self) -> RwLockReadGuard<'_, World> {
        self.world.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, World> {
        self.world.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World {
    fn answer(&self) -> Result<(), SourceError> {
        self.outage.as_deref().map_or(Ok(()), |message| Err(unavailable(message)))
    }

    fn next_round_robin(&self, partitions: u32) -> PartitionId {
        PartitionId(self.round_robin.fetch_add(1, Ordering::Relaxed).checked_rem(partitions).unwrap_or(0))
    }

    fn disconnect_all(&self, message: &str) {
        let message = Arc::from(message);
        self.partitions.iter().for_each(|partition| partition.disconnect_all(&message));
    }
}

impl EventSource for MemoryHub {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn hub(&self) -> &HubName {
        &self.name
    }

    fn capabilities(&self) -> SourceCapabilities {
        self.capabilities
    }

    fn hub_properties(&self) -> BoxFuture<'_, Result<HubProperties, SourceError>> {
        Box::pin(async move {
            let world = self.read();
            world.answer()?;
            let partitions = world.partitions.iter().map(|partition| partition.id()).collect();
            Ok(HubProperties { partitions, log: Some(world.log.clone()) })
        })
    }

    fn partition_properties(
        &self,
        partition: PartitionId,
    ) -> BoxFuture<'_, Result<PartitionProperties, SourceError>> {
        Box::pin(async move {
            let world = self.read();
            world.answer()?;
            Ok(self.partition(&world, partition)?.told_properties())
        })
    }

    fn open(&self, request: OpenRequest) -> BoxFuture<'_, Result<Box<dyn Receiver>, OpenError>> {
        Box::pin(async move {
            // Held until the receiver is added, so that `recreate` cannot miss it.
            let world = self.read();
            world.answer()?;
            if !world.groups.contains(&request.group) {
                let what = format!("consumer group {:?} of hub {:?}", request.group, self.name);
                return Err(SourceError::NotFound { what }.into());
            }
            let partition = self.partition(&world, request.partition)?;
            let receiver = partition.open(request, self.capabilities, self.clock.now())?;
            Ok(Box::new(receiver) as Box<dyn Receiver>)
        })
    }
}

impl fmt::Debug for MemoryHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryHub({}/{})", self.namespace, self.name)
    }
}

/// The error of a hub that cannot be reached.
fn unavailable(message: &str) -> SourceError {
    SourceError::Unavailable(message.into())
}

/// Made from the time of creation and not from a random number, so that a simulated run can be
/// repeated.
fn log_id(name: &HubName, clock: &dyn Clock, lives: u64) -> LogId {
    LogId::new(&format!("{name}-{:x}-{lives}", clock.wall().0))
}
