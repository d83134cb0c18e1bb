//! One hub: opens its log, its receivers and its readers, describes it, and closes it. Its changes are in
//! `hub/changes.rs`, its `EventSource` for hosts in the same process in `hub/source.rs`.

mod changes;
mod source;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use ephor_core::ids::{ConsumerGroup, HubName, LogId, Namespace, PartitionId};
use ephor_core::position::StartPosition;
use ephor_core::source::{OpenError, OpenRequest, SourceError};
use ephor_core::time::{Clock, Timestamp};
use ephor_wire::address::same_name;

use crate::appender::{Appender, LogSize, Partitions, Stored};
use crate::batch::StoredBatch;
use crate::catalog::HubRecord;
use crate::committer::{Answer, CommitQueue, ShouldStore};
use crate::config::{Durability, NamespaceConfig, Retention};
use crate::disk_reserve::DiskReserve;
use crate::error::{HubError, SendError};
use crate::files::Files;
use crate::health::Problem;
use crate::journal::{Cursor, Damage, Journal, JournalConfig, Log, Payload, RecoveryReport};
use crate::offset::first_from;
use crate::partition::{Ended, NextEvent, Partition, ReceiverDescription};
use crate::producer::HubProducer;
use crate::receiver::{HubReceiver, source_error};
use crate::time::{ClockReading, HubClock};

/// A hub. Clones are the same hub.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    namespace: Namespace,
    name: HubName,
    config: NamespaceConfig,
    files: Arc<dyn Files>,
    folder: String,
    clock: Arc<dyn Clock>,
    /// Held while the record is changed, also while the change waits for the disk.
    changing: Mutex<()>,
    /// The content of `hub.json`. Never held while waiting for the disk.
    record: Mutex<HubRecord>,
    max_event_bytes: u64,
    log_id: LogId,
    partitions: Partitions,
    log: Arc<Log>,
    size: Arc<LogSize>,
    commit_queue: CommitQueue,
    round_robin: AtomicU32,
    report: RecoveryReport,
}

/// Describes a hub.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HubDescription {
    /// Its name.
    pub name: HubName,
    /// Identifies its log. A hub that is deleted and created again gets a new id.
    pub log: LogId,
    /// When it was created.
    pub created_at: Timestamp,
    /// The number of partitions.
    pub partitions: u32,
    /// How long events are kept.
    pub retention: Retention,
    /// Larger events are refused.
    pub max_event_bytes: u64,
    /// Its consumer groups, `$Default` first.
    pub groups: Vec<ConsumerGroup>,
    /// The guarantee of an acknowledgement.
    pub durability: Durability,
    /// The size of its log in bytes.
    pub log_bytes: u64,
    /// The number of segment files.
    pub segments: usize,
}

impl Hub {
    /// Opens the log of the hub that `record` describes, or creates it.
    pub(crate) fn open(
        files: Arc<dyn Files>,
        folder: &str,
        record: HubRecord,
        config: NamespaceConfig,
        clock: Arc<dyn Clock>,
        reserve: Arc<DiskReserve>,
    ) -> Result<Self, HubError> {
        let retention = config.effective_retention(record.retention);
        let journal_config = JournalConfig {
            segment_bytes: config.segment_bytes,
            sync: config.durability == Durability::Disk,
            retention_age: retention.age,
            retention_bytes: retention.bytes,
        };
        let name = record.name.clone();
        let broken =
            |error: std::io::Error| HubError::Broken { name: name.to_string(), reason: error.to_string() };
        let identity = identity(&record.log_id);
        let reading = ClockReading::of(&*clock);
        let mut journal =
            Journal::open(files.clone(), folder, identity, record.partitions, journal_config, reading.wall)
                .map_err(broken)?;
        let hub_clock =
            HubClock::new(reading, journal.newest_stamp(), journal.proven(), journal.clock_samples().clone());
        if let Some(behind) = hub_clock.behind() {
            tracing::warn!(
                hub = %record.name,
                seconds = behind.as_secs(),
                "the wall clock is behind the newest event. If the clock is wrong, set it. If it stays there, new \
                 events carry its time, but no earlier time than the hub's proven time, until the clock has run \
                 without a jump for a day"
            );
        }
        journal.set_proven_time(hub_clock.time().proven, hub_clock.clock_samples());
        let now = hub_clock.time().stamp;
        if !hub_clock.may_yet_catch_up() {
            journal.clock_is_at(now);
        }
        journal.hold_if_time_is_lost(now);
        journal.cap_stored_times(now);
        let freed = journal.expire(hub_clock.time()).and_then(|expired| journal.remove_files(expired));
        if let Err(error) = freed {
            tracing::warn!(hub = %record.name, %error, "could not free old segments; retrying later");
        }
        let firsts = journal.first_numbers();
        let states = journal.partitions().iter().zip(firsts).enumerate();
        let partitions: Vec<_> =
            states.map(|(id, (state, first))| Partition::new(id as u32, first, *state)).collect();
        let partitions: Partitions = Arc::new(RwLock::new(partitions));
        let (log, report) = (journal.log().clone(), journal.report().clone());
        let recent = usize::try_from(config.recent_bytes).unwrap_or(usize::MAX);
        let appender = Appender::new(journal, hub_clock, reserve, partitions.clone(), recent);
        let size = appender.size();
        let commit_queue = match config.durability {
            Durability::Memory => CommitQueue::direct(appender, clock.clone()),
            Durability::Disk | Durability::PageCache => {
                CommitQueue::with_committer(appender, clock.clone(), config.queue_bytes, record.name.as_str())
                    .map_err(broken)?
            }
        };
        Ok(Self(Arc::new(Inner {
            namespace: config.name.clone(),
            name: record.name.clone(),
            max_event_bytes: record.max_event_bytes,
            log_id: record.log_id.clone(),
            changing: Mutex::default(),
            record: Mutex::new(record),
            config,
            files,
            folder: folder.to_owned(),
            clock,
            partitions,
            log,
            size,
            commit_queue,
            round_robin: AtomicU32::new(0),
            report,
        })))
    }

    /// The hub's name.
    pub fn name(&self) -> &HubName {
        &self.0.name
    }

    /// Returns a producer that sends to this hub.
    pub fn producer(&self) -> HubProducer {
        HubProducer::new(self.clone())
    }

    /// Describes the hub as of the last commit. Does not wait for the disk.
    pub fn describe(&self) -> HubDescription {
        let record = self.record().clone();
        let (log_bytes, segments) = self.0.size.get();
        HubDescription {
            name: record.name,
            log: record.log_id,
            created_at: record.created_at,
            partitions: record.partitions,
            retention: self.0.config.effective_retention(record.retention),
            max_event_bytes: record.max_event_bytes,
            groups: [ConsumerGroup::default_group()].into_iter().chain(record.groups).collect(),
            durability: self.0.config.durability,
            log_bytes,
            segments,
        }
    }

    /// Returns the number of partitions.
    pub fn partition_count(&self) -> u32 {
        self.0.partitions.read().unwrap_or_else(PoisonError::into_inner).len() as u32
    }

    /// Returns what an acknowledgement guarantees.
    pub fn durability(&self) -> Durability {
        self.0.config.durability
    }

    /// Returns what opening the log found.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.0.report
    }

    /// Returns the damage that is known. Everything else is served.
    pub fn damage(&self) -> Vec<Damage> {
        self.0.log.damage.all()
    }

    /// Returns the problems that keep the hub from storing events. Does not wait for the disk.
    pub fn health(&self) -> Vec<Problem> {
        let name = || self.0.name.clone();
        let gone = self.0.commit_queue.committer_stopped().then(|| Problem::CommitterStopped { hub: name() });
        gone.map_or_else(
            || self.0.commit_queue.health().problems(&self.0.name, self.0.clock.now()),
            |gone| vec![gone],
        )
    }

    /// Lists the receivers that are open now.
    pub fn receivers(&self) -> Vec<ReceiverDescription> {
        self.partitions().iter().flat_map(|partition| partition.receivers()).collect()
    }

    /// Opens a receiver in a consumer group, by the epoch rules.
    pub async fn receiver(&self, request: OpenRequest) -> Result<HubReceiver, OpenError> {
        self.open_receiver(request, NextEvent::Accepted).await
    }

    /// Like [`Self::receiver`], but begins at no sequence number that is still to come, as Azure Event Hubs does. There
    /// a receiver that wants the next event begins after the last one.
    pub async fn receiver_at_event(&self, request: OpenRequest) -> Result<HubReceiver, OpenError> {
        self.open_receiver(request, NextEvent::Refused).await
    }

    async fn open_receiver(
        &self,
        request: OpenRequest,
        to_come: NextEvent,
    ) -> Result<HubReceiver, OpenError> {
        let OpenRequest { group, partition: id, start, epoch, receiver: name, .. } = request;
        let not_found = |what: String| OpenError::Source(SourceError::NotFound { what });
        let group = find_group(&self.record(), &group)
            .ok_or_else(|| not_found(format!("consumer group {group:?} of hub {:?}", self.0.name)))?;
        let partition = self.partition(id)?;
        let now = self.0.clock.now();
        // Checked first: a stale owner must get the epoch error, whatever its start position is.
        partition.admit(&group, &name, epoch, (now, self.0.config.vanish_after))?;
        let mut receiver = self.reader_at(partition.clone(), start, to_come).await?;
        let admission = partition.enter(&group, &name, epoch, self.0.clock.now())?;
        receiver.admission = Some((group.clone(), admission));
        // The group may have been deleted while the start position was searched.
        match find_group(&self.record(), &group) {
            Some(_) => Ok(receiver),
            None => Err(not_found(format!("consumer group {group:?} of hub {:?}", self.0.name))),
        }
    }

    /// Opens a reader for tools. It belongs to no consumer group, so it disconnects no receiver and is never disconnected.
    pub async fn reader(
        &self,
        partition: PartitionId,
        start: StartPosition,
    ) -> Result<HubReceiver, OpenError> {
        let partition = self.partition(partition)?;
        self.reader_at(partition, start, NextEvent::Accepted).await
    }

    async fn reader_at(
        &self,
        partition: Arc<Partition>,
        start: StartPosition,
        to_come: NextEvent,
    ) -> Result<HubReceiver, OpenError> {
        let located =
            partition.locate(&start, to_come).map_err(|message| OpenError::InvalidPosition { message })?;
        let (next, not_before) = match (located, &start) {
            (Some(next), _) => (next, None),
            (None, StartPosition::EnqueuedTime(time)) => {
                (self.find_time(&partition, *time).await?, Some(*time))
            }
            (None, _) => (0, None),
        };
        let asked = match start {
            StartPosition::Sequence { number, inclusive } => Some(number.0 + u64::from(!inclusive)),
            StartPosition::Offset { offset, inclusive } => first_from(&offset, inclusive, u64::MAX),
            _ => None,
        };
        Ok(HubReceiver {
            partition,
            log: self.0.log.clone(),
            clock: self.0.clock.clone(),
            admission: None,
            cursor: Cursor::at(next),
            not_before,
            ahead: VecDeque::<StoredBatch>::new(),
            ahead_bytes: 0,
            reading: None,
            last_enqueued: None,
            // The events from the requested position on that retention has freed.
            missed: asked.map_or(0, |asked| next.saturating_sub(asked)),
        })
    }

    /// Returns the number of the first event enqueued at `time` or later; the next number if there is none yet.
    async fn find_time(&self, partition: &Arc<Partition>, time: Timestamp) -> Result<u64, SourceError> {
        // Events that arrive during the search are filtered by their time when they are read.
        let end = partition.properties().last.map_or(0, |last| last.sequence.next().0);
        let (log, id) = (self.0.log.clone(), partition.id.0);
        let find = move || log.find_time(id, time);
        let runtime = tokio::runtime::Handle::try_current().ok().filter(|_| self.0.files.may_block());
        let found = match runtime {
            Some(runtime) => {
                runtime.spawn_blocking(find).await.map_err(|error| SourceError::Unavailable(error.into()))?
            }
            None => find(),
        };
        Ok(found.map_err(source_error)?.unwrap_or(end))
    }

    pub(crate) fn max_event_bytes(&self) -> u64 {
        self.0.max_event_bytes
    }

    pub(crate) fn next_round_robin(&self, partitions: u32) -> PartitionId {
        PartitionId(self.0.round_robin.fetch_add(1, Ordering::Relaxed).checked_rem(partitions).unwrap_or(0))
    }

    pub(crate) async fn store(&self, partition: PartitionId, payload: Payload) -> Result<Stored, SendError> {
        self.0.commit_queue.store(partition.0, payload).await
    }

    pub(crate) async fn enqueue(
        &self,
        partition: PartitionId,
        payload: Payload,
        wanted: ShouldStore,
        answer: Answer,
    ) -> Result<(), SendError> {
        self.0.commit_queue.enqueue(partition.0, payload, wanted, answer).await
    }

    /// Closes the hub gracefully: stores what is queued, ends the receivers, closes the log.
    pub(crate) fn close(&self, ended: &Ended) -> Result<(), HubError> {
        self.0.commit_queue.close(ended.why());
        // Waits for a change of the record under way; later changes find the hub closed.
        let _changing = self.changing();
        let mut appender = self.0.commit_queue.appender();
        appender.end(ended.why());
        self.partitions().iter().for_each(|partition| partition.end(ended));
        appender.journal.close().map_err(HubError::disk(format!("could not close hub {:?}", self.0.name)))
    }

    /// Returns the folder of its log.
    pub(crate) fn folder(&self) -> &str {
        &self.0.folder
    }

    fn partition(&self, id: PartitionId) -> Result<Arc<Partition>, SourceError> {
        let partitions = self.0.partitions.read().unwrap_or_else(PoisonError::into_inner);
        let found = partitions.get(id.0 as usize).cloned();
        found
            .ok_or_else(|| SourceError::NotFound { what: format!("partition {id} of hub {:?}", self.0.name) })
    }

    fn partitions(&self) -> Vec<Arc<Partition>> {
        self.0.partitions.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self) -> MutexGuard<'_, HubRecord> {
        self.0.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hub({}/{})", self.0.namespace, self.0.name)
    }
}

/// Finds a group by its name, compared without case, and returns the name it was created with.
fn find_group(record: &HubRecord, asked: &ConsumerGroup) -> Option<ConsumerGroup> {
    let default = ConsumerGroup::default_group();
    if same_name(default.as_str(), asked.as_str()) {
        return Some(default);
    }
    record.groups.iter().find(|group| same_name(group.as_str(), asked.as_str())).cloned()
}

/// Returns the number that is part of every checksum of this log: the log id, which is 16 hexadecimal digits.
pub(crate) fn identity(log: &LogId) -> u64 {
    u64::from_str_radix(log.as_str(), 16)
        .unwrap_or_else(|_| u64::from(crc32c::crc32c(log.as_str().as_bytes())))
}
