//! Test helper: whole hosts on a PostgreSQL store, under load. It records every call of a processor, every
//! close, every error report, and, by a database trigger, every change of a checkpoint.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ephor::memory::MemoryHub;
use ephor::{
    BoxError, CheckpointPolicy, CloseReason, ErrorHandler, Event, EventProcessor, EventProcessorHost,
    EventProcessorOptions, HostError, OwnershipChange, PartitionContext, PartitionId,
    PartitionManagerOptions,
};
use ephor_core::ids::GroupId;
use ephor_core::store::Store;
use ephor_stores::postgres::{PostgresOptions, PostgresStore};

use crate::fixture::{PATIENCE, database_on, open_with, sql};
use crate::server::Server;
use crate::{proxy, proxy::Weather};

pub(crate) const PARTITIONS: u32 = 6;
/// Every so often, one event into every partition.
const PACE: Duration = Duration::from_millis(10);
/// The hosts look so often, and so much sooner while something is up.
const SCANS: [Duration; 2] = [Duration::from_millis(400), Duration::from_millis(100)];

/// Every change of a position, in order: a partition's row is locked from the change to its commit.
const AUDIT: &str = "
CREATE TABLE public.audit (number bigint GENERATED ALWAYS AS IDENTITY, partition bigint, epoch bigint, finished bigint);
CREATE FUNCTION public.audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.position IS DISTINCT FROM OLD.position THEN
        INSERT INTO public.audit (partition, epoch, finished)
        VALUES (NEW.partition, NEW.epoch, (NEW.position::json->>'finished')::bigint);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE ON ephor.checkpoints FOR EACH ROW EXECUTE FUNCTION public.audit();
";

/// A call of a processor, from its beginning.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) at: Instant,
    pub(crate) partition: PartitionId,
    pub(crate) epoch: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// A processor was closed.
#[derive(Clone, Debug)]
pub(crate) struct Closing {
    pub(crate) at: Instant,
    pub(crate) reason: CloseReason,
}

/// An error that a host reported to its error handler.
#[derive(Clone, Debug)]
pub(crate) struct Complaint {
    pub(crate) at: Instant,
    pub(crate) host: String,
    /// For how long it says that the store has been failing.
    pub(crate) failing_for: Option<Duration>,
    pub(crate) text: String,
}

#[derive(Default)]
pub(crate) struct Records {
    pub(crate) calls: Mutex<Vec<Call>>,
    /// The events of the calls that ended well.
    pub(crate) done: Mutex<BTreeMap<(PartitionId, u64), usize>>,
    pub(crate) closings: Mutex<Vec<Closing>>,
    pub(crate) complaints: Mutex<Vec<Complaint>>,
}

impl Records {
    pub(crate) fn complaints_since(&self, at: Instant) -> Vec<Complaint> {
        self.complaints.lock().unwrap().iter().filter(|complaint| complaint.at >= at).cloned().collect()
    }

    pub(crate) fn closings_since(&self, at: Instant) -> Vec<Closing> {
        self.closings.lock().unwrap().iter().filter(|closing| closing.at >= at).cloned().collect()
    }

    fn complain(&self, host: &str, error: &HostError) {
        let failing_for = match error {
            HostError::Store { failing_for, .. } => Some(*failing_for),
            HostError::SelfFenced { store_failing_for, .. } => *store_failing_for,
            _ => None,
        };
        let (host, text) = (host.to_owned(), error.to_string());
        self.complaints.lock().unwrap().push(Complaint { at: Instant::now(), host, failing_for, text });
    }
}

/// Writes down what it is called with.
struct RecordingProcessor(Arc<Records>);

impl EventProcessor for RecordingProcessor {
    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(()) };
        let (partition, epoch) = (context.partition(), context.epoch().get());
        let (first, last) = (first.sequence.0, last.sequence.0);
        self.0.calls.lock().unwrap().push(Call { at: Instant::now(), partition, epoch, first, last });
        tokio::time::sleep(Duration::from_millis(2)).await;
        let mut done = self.0.done.lock().unwrap();
        events.iter().for_each(|event| *done.entry((partition, event.sequence.0)).or_default() += 1);
        Ok(())
    }

    async fn close(&mut self, _: &PartitionContext, reason: CloseReason) -> Result<(), BoxError> {
        let closing = Closing { at: Instant::now(), reason };
        self.0.closings.lock().unwrap().push(closing);
        Ok(())
    }
}

/// Short times: a lease of this long.
pub(crate) fn short(lease_duration: Duration, store_timeout: Duration) -> PartitionManagerOptions {
    PartitionManagerOptions {
        lease_duration,
        renew_interval: lease_duration / 5,
        slow_scan: SCANS[0],
        fast_scan: SCANS[1],
        handover_timeout: Duration::from_secs(5),
        fence_margin: Duration::from_millis(500),
        store_timeout,
        ..PartitionManagerOptions::default()
    }
}

/// Waits for something to come true. What never does is told with what there is instead.
pub(crate) async fn until<T: std::fmt::Debug>(what: &str, mut look: impl AsyncFnMut() -> Result<(), T>) {
    let began = Instant::now();
    while let Err(instead) = look().await {
        assert!(began.elapsed() < PATIENCE, "{what}: {instead:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) struct Fleet {
    hub: MemoryHub,
    manager: PartitionManagerOptions,
    url: String,
    pub(crate) database: String,
    pub(crate) weather: Arc<Weather>,
    pub(crate) hosts: BTreeMap<&'static str, EventProcessorHost>,
    pub(crate) records: Arc<Records>,
    sent: Arc<[AtomicU64]>,
    over: Arc<AtomicBool>,
}

impl Fleet {
    /// Three hosts that talk to the server through a proxy, each with a store of its own as if it were in a
    /// process of its own; and events that come all the time.
    pub(crate) async fn start(server: &Server, manager: PartitionManagerOptions) -> Self {
        let database = database_on(server).await;
        let (port, weather) = proxy::start(server.port).await;
        let url = server.url(&database).replace(&format!(":{}/", server.port), &format!(":{port}/"));
        open_with(&url, PostgresOptions::default()).check().await.unwrap();
        sql(&server.url(&database), AUDIT).await;
        let hub = MemoryHub::new("homes", PARTITIONS).unwrap();
        let mut fleet = Self {
            hub,
            manager,
            url,
            database,
            weather,
            hosts: BTreeMap::new(),
            records: Arc::default(),
            sent: (0..PARTITIONS).map(|_| AtomicU64::new(0)).collect(),
            over: Arc::default(),
        };
        for name in ["a", "b", "c"] {
            fleet.join(name).await;
        }
        fleet.load();
        fleet
    }

    pub(crate) async fn join(&mut self, name: &'static str) {
        let records = self.records.clone();
        let on_error = ErrorHandler::new(move |error| records.complain(name, error));
        let options = EventProcessorOptions {
            checkpoint: CheckpointPolicy::every_events(10),
            max_batch_size: 20,
            on_error: Some(on_error),
            ..EventProcessorOptions::default()
        };
        let records = self.records.clone();
        let store = open_with(&self.url, PostgresOptions::default());
        let host = EventProcessorHost::builder(self.hub.clone(), store)
            .host_name(name)
            .manager_options(self.manager.clone())
            .options(options)
            .processor(move |_| RecordingProcessor(records.clone()))
            .unwrap();
        host.start().await.unwrap();
        self.hosts.insert(name, host);
    }

    fn load(&self) {
        let (hub, sent, over) = (self.hub.clone(), self.sent.clone(), self.over.clone());
        tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                for (partition, count) in sent.iter().enumerate() {
                    hub.send(PartitionId(partition as u32), "event").unwrap();
                    count.fetch_add(1, Ordering::SeqCst);
                }
                tokio::time::sleep(PACE).await;
            }
        });
    }

    pub(crate) fn group(&self) -> GroupId {
        self.hosts["a"].group().clone()
    }

    pub(crate) fn lease(&self) -> Duration {
        self.manager.lease_duration
    }

    pub(crate) fn sent(&self) -> Vec<u64> {
        self.sent.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    }

    /// Which partitions the hosts have, by their own word.
    pub(crate) fn owned(&self) -> BTreeMap<&'static str, Vec<u32>> {
        let owned = |host: &EventProcessorHost| {
            host.snapshot().unwrap().partitions.iter().map(|owned| owned.partition.0).collect()
        };
        self.hosts.iter().map(|(name, host)| (*name, owned(host))).collect()
    }

    /// Waits until each partition is owned by one host, and all hosts have as many.
    pub(crate) async fn balanced(&self) {
        let least = PARTITIONS as usize / self.hosts.len();
        until("all partitions are owned, in equal shares", async || {
            let owned = self.owned();
            let all: usize = owned.values().map(Vec::len).sum();
            let fair = owned.values().all(|share| (least..=least + 1).contains(&share.len()));
            if all == PARTITIONS as usize && fair { Ok(()) } else { Err(owned) }
        })
        .await;
    }

    /// Waits until everything that was sent before this call is processed.
    pub(crate) async fn caught_up(&self) {
        let sent = self.sent();
        until("everything that was sent is processed", async || {
            let done = self.records.done.lock().unwrap();
            let behind = |partition: u32| {
                let missing = |event: &u64| !done.contains_key(&(PartitionId(partition), *event));
                (0..sent[partition as usize]).rev().find(missing).map(|event| (partition, event))
            };
            (0..PARTITIONS).find_map(behind).map_or(Ok(()), Err)
        })
        .await;
    }

    /// Ends the load, waits for the last event, and stops all hosts in good order.
    pub(crate) async fn finish(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // One round of events may be on its way.
        tokio::time::sleep(PACE * 5).await;
        self.caught_up().await;
        for (name, host) in std::mem::take(&mut self.hosts) {
            let report = host.stop(Duration::from_secs(10)).await.unwrap();
            assert!(report.is_clean(), "{name}: {report}");
        }
    }
}

/// Every change of owner that is remembered, partition by partition.
pub(crate) async fn history(store: &PostgresStore, group: &GroupId) -> Vec<OwnershipChange> {
    let mut lines = vec![];
    for partition in (0..PARTITIONS).map(PartitionId) {
        lines.extend(store.history(group, Some(partition), 1_000).await.unwrap().into_iter().rev());
    }
    lines
}
