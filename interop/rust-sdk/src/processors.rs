//! Interoperability tests with the SDK's event processors on its checkpoint store in memory: one processor,
//! and two that share the partitions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use azure_core::time::Duration as Interval;
use azure_messaging_eventhubs::models::StartPositions;
use azure_messaging_eventhubs::processor::PartitionClient;
use azure_messaging_eventhubs::{
    EventDataBatchOptions, EventProcessor, InMemoryCheckpointStore, ProcessorStrategy, StartLocation,
    StartPosition,
};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::oneshot;

use crate::client::{Failure, Way, equal, last, producer, send_all};
use crate::{Operation, operation};

const HUB: &str = "rust-sdk-processors";
const PARTITIONS: [&str; 4] = ["0", "1", "2", "3"];
const CHECKPOINT_EVERY: i64 = 5;
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(500);

/// The partitions that a processor receives, and the numbers it was handed of each that it ever received.
#[derive(Default)]
struct Told {
    owned: Vec<String>,
    events: BTreeMap<String, Vec<i64>>,
    /// Why it had to be started again.
    ends: Vec<String>,
}

/// One processor at work, in a thread of its own: what it streams cannot go from one to another.
struct Member {
    told: Arc<Mutex<Told>>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Member {
    fn start(store: &Arc<InMemoryCheckpointStore>) -> Result<Self, Failure> {
        let (told, store) = (Arc::<Mutex<Told>>::default(), store.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn({
            let told = told.clone();
            move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = keep_running(store, told) => {}
                        _ = stopped => {}
                    }
                });
            }
        });
        Ok(Self { told, stop, thread })
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owned(&self) -> Vec<String> {
        self.told().owned.clone()
    }

    /// For whoever reads that it failed.
    fn standing(&self) -> String {
        let told = self.told();
        format!("one has {:?}, and ended with {:?}", told.owned, told.ends)
    }

    fn sequences(&self, partition: &str) -> Vec<i64> {
        self.told().events.get(partition).cloned().unwrap_or_default()
    }

    /// Its end without a word, as of a process that is killed: this processor gives nothing back in either case.
    async fn kill(self) -> Result<BTreeMap<String, Vec<i64>>, Failure> {
        drop(self.stop);
        tokio::task::spawn_blocking(|| self.thread.join()).await?.map_err(|_| "a processor panicked")?;
        Ok(std::mem::take(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner).events))
    }
}

/// Starts the processor again whenever it ends, as whoever operates it does. It ends at a claim that another one
/// was faster with: its store in memory calls that an error, and a processor ends at any error of its store.
async fn keep_running(store: Arc<InMemoryCheckpointStore>, told: Arc<Mutex<Told>>) {
    loop {
        let end = run(store.clone(), told.clone()).await.err().map(|error| error.to_string());
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        told.owned.clear();
        told.ends.push(end.unwrap_or_else(|| "it ended by itself".into()));
        drop(told);
        tokio::time::sleep(PAUSE).await;
    }
}

async fn run(store: Arc<InMemoryCheckpointStore>, told: Arc<Mutex<Told>>) -> Result<(), Failure> {
    let position = StartPosition { location: StartLocation::Earliest, inclusive: false };
    let processor = EventProcessor::builder()
        .with_load_balancing_strategy(ProcessorStrategy::Balanced)
        .with_update_interval(Interval::milliseconds(500))
        .with_partition_expiration_duration(Interval::seconds(3))
        .with_start_positions(StartPositions { default: position, ..StartPositions::default() })
        .build(Way::given()?.consumer(HUB, "$Default").await?, store)
        .await?;
    tokio::select! {
        outcome = processor.run() => Ok(outcome?),
        () = hand_out(&processor, told) => Ok(()),
    }
}

async fn hand_out(processor: &EventProcessor, told: Arc<Mutex<Told>>) {
    let mut partitions = FuturesUnordered::new();
    loop {
        tokio::select! {
            next = processor.next_partition_client() => match next {
                Ok(client) => partitions.push(receive(client, told.clone())),
                Err(_) => return,
            },
            Some(()) = partitions.next() => {}
        }
    }
}

/// One partition, until it goes to another.
async fn receive(client: Arc<PartitionClient>, told: Arc<Mutex<Told>>) {
    let locked = || told.lock().unwrap_or_else(PoisonError::into_inner);
    let partition = client.get_partition_id().to_owned();
    locked().owned.push(partition.clone());
    let mut stream = client.stream_events();
    while let Some(Ok(event)) = stream.next().await {
        let Some(sequence) = event.sequence_number() else { break };
        locked().events.entry(partition.clone()).or_default().push(sequence);
        if (sequence + 1) % CHECKPOINT_EVERY == 0 && client.update_checkpoint(&event).await.is_err() {
            break;
        }
    }
    locked().owned.retain(|owned| *owned != partition);
}

async fn wait(what: &str, mut condition: impl FnMut() -> bool) -> Result<(), Failure> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > PATIENCE {
            return Err(format!("waited {} s for {what}", PATIENCE.as_secs()).into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Sends so many more to each partition.
async fn send(count: usize) -> Result<(), Failure> {
    let client = producer(HUB).await?;
    for partition in PARTITIONS {
        let options =
            EventDataBatchOptions { partition_id: Some(partition.to_owned()), ..Default::default() };
        send_all(&client, (0..count).map(|_| "event"), options).await?;
    }
    Ok(client.close().await?)
}

async fn share() -> Result<(), Failure> {
    let store = Arc::new(InMemoryCheckpointStore::new());
    let (first, second) = (Member::start(&store)?, Member::start(&store)?);
    wait("two partitions for each", || first.owned().len() == 2 && second.owned().len() == 2)
        .await
        .map_err(|error| format!("{error}; {}; {}", first.standing(), second.standing()))?;
    send(28).await?; // checkpoints at 24
    for member in [&first, &second] {
        for partition in member.owned() {
            wait("28 events", || member.sequences(&partition).len() >= 28).await?;
            equal(member.sequences(&partition), (0..28).collect(), &format!("received of {partition}"))?;
        }
    }
    let (moved, kept) = (first.owned(), second.owned());
    first.kill().await?;
    wait("all partitions with the other", || second.owned().len() == PARTITIONS.len()).await?;
    send(2).await?;
    for (partitions, from) in [(moved, 25), (kept, 0)] {
        for partition in partitions {
            wait("the last event", || second.sequences(&partition).last() == Some(&29)).await?;
            equal(
                second.sequences(&partition),
                (from..30).collect(),
                &format!("then received of {partition}"),
            )?;
        }
    }
    second.kill().await?;
    Ok(())
}

/// From the first event, with nothing of the above known.
async fn alone() -> Result<(), Failure> {
    send(2).await?;
    let mut expected = BTreeMap::new();
    for partition in PARTITIONS {
        expected.insert(partition.to_owned(), (0..=last(HUB, partition).await?).collect::<Vec<_>>());
    }
    let store = Arc::new(InMemoryCheckpointStore::new());
    let member = Member::start(&store)?;
    let complete = || expected.iter().all(|(partition, all)| member.sequences(partition).len() >= all.len());
    wait("all events", complete).await.map_err(|error| format!("{error}; {}", member.standing()))?;
    equal(member.kill().await?, expected, "received")
}

pub fn operations() -> Vec<Operation> {
    vec![
        operation("two processors share, and one goes on from the other's checkpoints", share()),
        operation("receive all partitions at once", alone()),
    ]
}
