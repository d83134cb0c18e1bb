//! Tests of whole hosts on an Azure Blob store while the service fails for a while, also for longer than a
//! lease.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ephor::memory::MemoryHub;
use ephor::{
    BoxError, CheckpointPolicy, Event, EventProcessor, EventProcessorHost, EventProcessorOptions,
    PartitionContext, PartitionId, PartitionManagerOptions,
};
use ephor_core::store::Store;
use ephor_stores::azblob::BlobStore;

use crate::fixture::{PATIENCE, wait};
use crate::proxy::{Fate, Proxy};
use crate::server::{open, place, shared};

const PARTITIONS: u32 = 4;
const LEASE: Duration = Duration::from_secs(6);

/// When each call began, and how often each event was done.
#[derive(Default)]
struct Records {
    last_call: Mutex<Option<Instant>>,
    done: Mutex<BTreeMap<(PartitionId, u64), usize>>,
}

struct RecordingProcessor(Arc<Records>);

impl EventProcessor for RecordingProcessor {
    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        *self.0.last_call.lock().unwrap() = Some(Instant::now());
        tokio::time::sleep(Duration::from_millis(2)).await;
        let mut done = self.0.done.lock().unwrap();
        let partition = context.partition();
        events.iter().for_each(|event| *done.entry((partition, event.sequence.0)).or_default() += 1);
        Ok(())
    }
}

async fn join(hub: &MemoryHub, place: &str, name: &str, records: &Arc<Records>) -> EventProcessorHost {
    let manager = PartitionManagerOptions {
        lease_duration: LEASE,
        renew_interval: LEASE / 5,
        slow_scan: Duration::from_millis(800),
        fast_scan: Duration::from_millis(300),
        fence_margin: Duration::from_millis(1_500),
        store_timeout: Duration::from_secs(1),
        ..PartitionManagerOptions::default()
    };
    let options = EventProcessorOptions {
        checkpoint: CheckpointPolicy::every_events(10),
        max_batch_size: 20,
        ..EventProcessorOptions::default()
    };
    let records = records.clone();
    let host = EventProcessorHost::builder(hub.clone(), open(place))
        .host_name(name)
        .manager_options(manager)
        .options(options)
        .processor(move |_| RecordingProcessor(records.clone()))
        .unwrap();
    host.start().await.unwrap();
    host
}

async fn until<T: std::fmt::Debug>(what: &str, mut look: impl AsyncFnMut() -> Result<(), T>) {
    let began = Instant::now();
    while let Err(instead) = look().await {
        assert!(began.elapsed() < PATIENCE * 3 / 4, "{what}: {instead:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn shared_evenly(hosts: &[EventProcessorHost]) {
    until("each has its share", async || {
        let owned: Vec<usize> = hosts.iter().map(|host| host.snapshot().unwrap().partitions.len()).collect();
        if owned == [2, 2] { Ok(()) } else { Err(owned) }
    })
    .await;
}

/// Positions as a bystander sees them: none may ever be behind the one before.
async fn watch(store: BlobStore, group: ephor_core::ids::GroupId, over: Arc<AtomicBool>) {
    let mut highest: BTreeMap<PartitionId, u64> = BTreeMap::new();
    while !over.load(Ordering::SeqCst) {
        for (partition, checkpoint) in store.view(&group).await.unwrap().checkpoints {
            let Some(finished) = checkpoint.position.finished() else { continue };
            let before = highest.insert(partition, finished.0).unwrap_or(0);
            assert!(before <= finished.0, "{partition:?} went back from {before} to {finished}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn faults_move_nothing_and_an_outage_stops_everything_until_it_is_over() {
    wait(async {
        let proxy = Proxy::start(shared().port).await;
        let (direct, place) = {
            let place = place();
            (open(&place), proxy.place(&place, shared().port))
        };
        let hub = MemoryHub::new("homes", PARTITIONS).unwrap();
        let records: Arc<Records> = Arc::default();
        let hosts = [join(&hub, &place, "a", &records).await, join(&hub, &place, "b", &records).await];
        let (over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (loading, count, log) = (over.clone(), sent.clone(), hub.clone());
        let load = tokio::spawn(async move {
            while !loading.load(Ordering::SeqCst) {
                for partition in (0..PARTITIONS).map(PartitionId) {
                    log.send(partition, "event").unwrap();
                }
                count.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        shared_evenly(&hosts).await;
        let group = hosts[0].group().clone();
        let watcher = tokio::spawn(watch(direct.clone(), group.clone(), over.clone()));
        let epochs = async || {
            let view = direct.view(&group).await.unwrap();
            view.leases.iter().map(|lease| (lease.partition, lease.token())).collect::<Vec<_>>()
        };
        let before = epochs().await;

        // One request in five fares badly, each in its own way.
        proxy.rule(|asked| match asked.place % 25 {
            3 => Fate::Answered(503, "ServerBusy"),
            8 => Fate::Lost,
            13 => Fate::Answered(429, "TooManyRequests"),
            18 => Fate::Unanswered,
            23 => Fate::Late(Duration::from_millis(700)),
            _ => Fate::Through,
        });
        tokio::time::sleep(LEASE * 2).await;
        proxy.rule(|_| Fate::Through);
        assert_eq!(epochs().await, before, "nothing changed hands");

        // Gone for longer than a lease: all is still before the leases are over.
        proxy.rule(|_| Fate::Lost);
        let gone = Instant::now();
        tokio::time::sleep(LEASE + Duration::from_secs(2)).await;
        let last = records.last_call.lock().unwrap().unwrap();
        assert!(last.duration_since(gone) < LEASE, "{:?} after it was gone", last.duration_since(gone));
        let owned: usize = hosts.iter().map(|host| host.snapshot().unwrap().partitions.len()).sum();
        assert_eq!(owned, 0, "every host has stopped by itself");
        proxy.rule(|_| Fate::Through);
        shared_evenly(&hosts).await;

        over.store(true, Ordering::SeqCst);
        load.await.unwrap();
        let sent = sent.load(Ordering::SeqCst);
        until("every event is done", async || {
            let done = records.done.lock().unwrap();
            let missing = |key: &(PartitionId, u64)| !done.contains_key(key);
            let mut all = (0..PARTITIONS).flat_map(|p| (0..sent).map(move |event| (PartitionId(p), event)));
            all.find(missing).map_or(Ok(()), Err)
        })
        .await;
        watcher.await.unwrap();
        for host in hosts {
            let report = host.stop(Duration::from_secs(10)).await.unwrap();
            assert!(report.is_clean(), "{report}");
        }
        let view = direct.view(&group).await.unwrap();
        for partition in (0..PARTITIONS).map(PartitionId) {
            let finished = view.checkpoint(partition).unwrap().position.finished().unwrap();
            assert_eq!(finished.0 + 1, sent, "{partition:?}");
        }
    });
}
