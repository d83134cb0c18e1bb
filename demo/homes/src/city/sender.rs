//! Sends the readings that are due to the hub, in the order of each partition, and retries until the hub has
//! acknowledged them.
//!
//! ```text
//! the walk ─ every 100 ms what is due ─► a queue for each partition ─► one batch at a time ─► the hub
//! ```
//!
//! *Sent readings.* A reading is noted right before the first attempt to send it, and from then on it is sent until the hub
//! acknowledges it. So the results can never say anything that the sent readings do not, and at the end both say the same. Only
//! a hard stop breaks this: what was noted and not acknowledged by then may be stored or not, and the report counts it.
//!
//! *A hub that is away.* Queues are short. When one is full, the walk waits, and the city's time stands still with it; when
//! the hub is back, time goes on as fast as ever. Nothing is dropped, and there is no flood.

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ephor::{Backoff, BoxError, NewEvent, PartitionId};
use ephor_eventhubs::{EventHubProducer, Target};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{ReadingSchedule, SentReadings};
use crate::reading::{PARTITIONS, Reading, key_of, partition_of};
use crate::time::CityTime;

/// How often due readings are collected.
const TICK: Duration = Duration::from_millis(100);
/// The longest step of real time: after a pause the city's time does not jump.
const MAX_STEP: Duration = Duration::from_secs(1);
/// Batches that wait for a partition: two seconds of them.
const QUEUE: usize = 20;
/// Between two attempts at a batch.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), max: Duration::from_secs(1) };

/// The target of readings: a hub, or a fake of a test.
pub trait Outbox: Clone + Send + Sync + 'static {
    /// Stores all of them in this order, or fails; then some may be stored all the same.
    fn send(
        &self,
        partition: PartitionId,
        events: Vec<NewEvent>,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;
}

impl Outbox for EventHubProducer {
    async fn send(&self, partition: PartitionId, events: Vec<NewEvent>) -> Result<(), BoxError> {
        self.send_batch(Target::Partition(partition), events).await?;
        Ok(())
    }
}

/// The state of the sensors, and their switches. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SensorControls(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    carbon_monoxide: AtomicBool,
    acknowledged: AtomicU64,
    in_flight: AtomicU64,
    resent: AtomicU64,
    reached: AtomicU64,
    waiting: AtomicBool,
}

impl SensorControls {
    /// Switches the carbon-monoxide detectors of all homes.
    pub fn set_carbon_monoxide(&self, on: bool) {
        self.0.carbon_monoxide.store(on, Ordering::Relaxed);
    }

    /// Whether they are on.
    pub fn carbon_monoxide(&self) -> bool {
        self.0.carbon_monoxide.load(Ordering::Relaxed)
    }

    /// Events that the hub has acknowledged, sensors' repeats among them.
    pub fn acknowledged(&self) -> u64 {
        self.0.acknowledged.load(Ordering::Relaxed)
    }

    /// Events that are due and not acknowledged yet.
    pub fn in_flight(&self) -> u64 {
        self.0.in_flight.load(Ordering::Relaxed)
    }

    /// Events that were sent once more, because the hub did not answer: some of them may be stored twice.
    pub fn resent(&self) -> u64 {
        self.0.resent.load(Ordering::Relaxed)
    }

    /// How far the city's time has come.
    pub fn reached(&self) -> CityTime {
        CityTime(self.0.reached.load(Ordering::Relaxed))
    }

    /// Whether the city's time stands still, because the hub does not take what is due.
    pub fn is_waiting(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed)
    }
}

/// The outcome of all readings that were due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendReport {
    /// Events that the hub has acknowledged.
    pub acknowledged: u64,
    /// Events that were sent at least once and never acknowledged: they are among the sent readings, and may be stored or not.
    pub unknown: u64,
    /// Events that were due and never sent. They are not among the sent readings.
    pub unsent: u64,
}

impl SendReport {
    /// Whether the hub has everything.
    pub fn is_clean(&self) -> bool {
        self.unknown == 0 && self.unsent == 0
    }
}

impl fmt::Display for SendReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events acknowledged", self.acknowledged)?;
        if !self.is_clean() {
            write!(f, ", {} unacknowledged that may be stored, {} never sent", self.unknown, self.unsent)?;
        }
        Ok(())
    }
}

/// The readings of one tick for one partition, and whether each is a repeat.
type Batch = Vec<(Reading, bool)>;

/// The sensors of all homes.
pub struct Sensors<O> {
    /// The schedule of readings.
    pub schedule: ReadingSchedule,
    /// How much faster than ours the city's time runs.
    pub speed: f64,
    /// The number of homes.
    pub homes: u32,
    /// The sent readings.
    pub sent_readings: SentReadings,
    /// The target.
    pub outbox: O,
    /// The state and the switches.
    pub sensor_controls: SensorControls,
}

impl<O> fmt::Debug for Sensors<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sensors({} homes)", self.homes)
    }
}

impl<O: Outbox> Sensors<O> {
    /// Walks through the city's time until `stop`. Then everything that was due is sent; what the hub has not acknowledged
    /// when `patience` is over is given up, and counted.
    pub async fn run(self, stop: impl Future<Output = ()>, patience: Duration) -> SendReport {
        let mut walk = Walk::new(self);
        tokio::select! {
            biased;
            () = stop => {}
            () = walk.go() => {}
        }
        walk.finish(patience).await
    }
}

struct Walk<O> {
    sensors: Sensors<O>,
    /// The partition of each home: asking for it takes a hash.
    partitions: Vec<u8>,
    queues: Vec<mpsc::Sender<Batch>>,
    senders: JoinSet<()>,
    /// Readings from the schedule that are in no queue yet. They are here, not in a future that may be dropped.
    pending: Vec<Batch>,
    /// Noted as sent.
    noted: Arc<AtomicU64>,
    taken: u64,
}

impl<O: Outbox> Walk<O> {
    fn new(sensors: Sensors<O>) -> Self {
        let partitions =
            (0..sensors.homes).map(|home| u8::try_from(partition_of(home).0).unwrap_or(u8::MAX)).collect();
        let (mut queues, mut senders) = (Vec::new(), JoinSet::new());
        let noted = Arc::new(AtomicU64::new(0));
        for partition in 0..PARTITIONS {
            let (queue, batches) = mpsc::channel(QUEUE);
            queues.push(queue);
            let line = Line {
                partition: PartitionId(partition),
                outbox: sensors.outbox.clone(),
                sent_readings: sensors.sent_readings.clone(),
                counters: sensors.sensor_controls.0.clone(),
                noted: noted.clone(),
            };
            senders.spawn(line.run(batches));
        }
        let pending = vec![Batch::new(); PARTITIONS as usize];
        Self { sensors, partitions, queues, senders, pending, noted, taken: 0 }
    }

    /// Takes what is due, tick by tick. The city's time is what has passed while nothing had to wait.
    async fn go(&mut self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut time = self.sensors.schedule.reached();
        let mut before = Instant::now();
        loop {
            tick.tick().await;
            // If the hub was away, what passed meanwhile does not count.
            let passed = before.elapsed().min(MAX_STEP).as_secs_f64() * 1_000.0 * self.sensors.speed;
            before = Instant::now();
            time = CityTime(time.0 + passed as u64);
            self.take_until(time).await;
        }
    }

    async fn take_until(&mut self, time: CityTime) {
        while self.sensors.schedule.reached() < time {
            let due = self.sensors.schedule.due(time, self.sensors.sensor_controls.carbon_monoxide());
            self.taken += due.len() as u64;
            self.sensors.sensor_controls.0.in_flight.fetch_add(due.len() as u64, Ordering::Relaxed);
            self.sensors
                .sensor_controls
                .0
                .reached
                .store(self.sensors.schedule.reached().0, Ordering::Relaxed);
            for (reading, repeat) in due {
                let partition = self.partitions.get(reading.home as usize).copied().unwrap_or(0);
                self.pending[usize::from(partition)].push((reading, repeat));
            }
            self.hand_out().await;
        }
    }

    /// Puts everything into the queues, and waits where one is full.
    async fn hand_out(&mut self) {
        for (batch, queue) in self.pending.iter_mut().zip(&self.queues) {
            if batch.is_empty() {
                continue;
            }
            if queue.capacity() == 0 {
                self.sensors.sensor_controls.0.waiting.store(true, Ordering::Relaxed);
            }
            // The place first, then the batch: nothing is lost if this is dropped while it waits.
            if let Ok(place) = queue.reserve().await {
                place.send(std::mem::take(batch));
            }
        }
        self.sensors.sensor_controls.0.waiting.store(false, Ordering::Relaxed);
    }

    async fn finish(mut self, patience: Duration) -> SendReport {
        let all = async {
            self.hand_out().await;
            self.queues.clear();
            while self.senders.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(patience, all).await;
        self.senders.shutdown().await;
        let acknowledged = self.sensors.sensor_controls.acknowledged();
        let noted = self.noted.load(Ordering::Relaxed);
        SendReport { acknowledged, unknown: noted - acknowledged, unsent: self.taken - noted }
    }
}

/// Sends to one partition: one batch at a time, so that the order stays.
struct Line<O> {
    partition: PartitionId,
    outbox: O,
    sent_readings: SentReadings,
    counters: Arc<Counters>,
    /// Events that are noted as sent, repeats counted too.
    noted: Arc<AtomicU64>,
}

impl<O: Outbox> Line<O> {
    async fn run(self, mut batches: mpsc::Receiver<Batch>) {
        while let Some(mut batch) = batches.recv().await {
            // What waits goes along: after a pause the hub gets a few large batches, not many small ones.
            while let Ok(more) = batches.try_recv() {
                batch.extend(more);
            }
            self.send(batch).await;
        }
    }

    async fn send(&self, mut batch: Batch) {
        let count = batch.len() as u64;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        for (reading, _) in &mut batch {
            reading.pushed = u64::try_from(now).unwrap_or(u64::MAX);
        }
        let events: Vec<NewEvent> = batch.iter().map(|(reading, _)| event_of(reading)).collect();
        self.sent_readings.note_all(batch.iter().filter(|(_, repeat)| !repeat).map(|(reading, _)| reading));
        self.noted.fetch_add(count, Ordering::Relaxed);
        let mut failures = 0;
        while let Err(error) = self.outbox.send(self.partition, events.clone()).await {
            failures += 1;
            if failures == 1 {
                tracing::warn!(partition = %self.partition, events = count, %error, "a batch was not acknowledged; retrying");
            }
            tokio::time::sleep(BACKOFF.delay(failures, fastrand::u64(..))).await;
            self.counters.resent.fetch_add(count, Ordering::Relaxed);
        }
        self.counters.acknowledged.fetch_add(count, Ordering::Relaxed);
        self.counters.in_flight.fetch_sub(count, Ordering::Relaxed);
    }
}

fn event_of(reading: &Reading) -> NewEvent {
    NewEvent { partition_key: Some(key_of(reading.home).into()), ..NewEvent::new(reading.encode()) }
}
