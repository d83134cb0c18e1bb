//! Receives one partition in a background task.

use std::sync::Arc;
use std::time::Duration;

use azure_core_amqp::message::AmqpMessageBody;
use azure_messaging_eventhubs::models::ReceivedEventData;
use azure_messaging_eventhubs::{
    ConsumerClient, EventHubsError, EventReceiver, OpenReceiverOptions, StartLocation, StartPosition,
};
use futures::StreamExt;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use crate::client::{Failure, Way, equal, producer, to};

/// Until something that should happen counts as failed.
const PATIENCE: Duration = Duration::from_secs(50);
const PAUSE: Duration = Duration::from_millis(50);

/// A request for events: which ones, and how to receive them.
#[derive(Clone)]
pub struct Reading {
    hub: String,
    group: String,
    partition: String,
    position: StartPosition,
    level: Option<i64>,
    way: Option<Way>,
}

impl Reading {
    /// Partition 0 from its first event.
    pub fn of(hub: &str) -> Self {
        let position = StartPosition { location: StartLocation::Earliest, inclusive: false };
        let (hub, group, partition) = (hub.to_owned(), "$Default".to_owned(), "0".to_owned());
        Self { hub, group, partition, position, level: None, way: None }
    }

    pub fn partition(self, partition: &str) -> Self {
        Self { partition: partition.to_owned(), ..self }
    }

    pub fn group(self, group: &str) -> Self {
        Self { group: group.to_owned(), ..self }
    }

    pub fn from(self, location: StartLocation, inclusive: bool) -> Self {
        Self { position: StartPosition { location, inclusive }, ..self }
    }

    pub fn after(self, sequence: i64) -> Self {
        // There is no event in front of the first to name.
        if sequence < 0 { self } else { self.from(StartLocation::SequenceNumber(sequence), false) }
    }

    pub fn latest(self) -> Self {
        self.from(StartLocation::Latest, false)
    }

    pub fn level(self, level: Option<i64>) -> Self {
        Self { level, ..self }
    }

    pub fn by(self, way: Way) -> Self {
        Self { way: Some(way), ..self }
    }

    pub async fn open(&self) -> Result<Reader, Failure> {
        let way = self.way.clone().map_or_else(Way::given, Ok)?;
        let client = way.consumer(&self.hub, &self.group).await?;
        let options = OpenReceiverOptions {
            owner_level: self.level,
            start_position: Some(self.position.clone()),
            ..OpenReceiverOptions::default()
        };
        let opened = client.open_receiver_on_partition(self.partition.clone(), Some(options)).await?;
        let receiver = Arc::new(opened);
        let (sender, events) = unbounded_channel();
        let task = tokio::spawn({
            let receiver = receiver.clone();
            async move {
                let mut stream = receiver.stream_events();
                while let Some(event) = stream.next().await {
                    drop(sender.send(event));
                }
            }
        });
        Ok(Reader { reading: self.clone(), client, receiver, task, events })
    }

    /// Reads so many events with a link of its own, and closes it.
    pub async fn read(&self, count: usize) -> Result<Vec<ReceivedEventData>, Failure> {
        let mut reader = self.open().await?;
        let events = reader.take(count).await?;
        reader.close().await?;
        Ok(events)
    }
}

pub struct Reader {
    reading: Reading,
    client: ConsumerClient,
    receiver: Arc<EventReceiver>,
    task: JoinHandle<()>,
    events: UnboundedReceiver<Result<ReceivedEventData, EventHubsError>>,
}

impl Reader {
    pub async fn next(&mut self) -> Result<ReceivedEventData, Failure> {
        match tokio::time::timeout(PATIENCE, self.events.recv()).await {
            Ok(Some(event)) => Ok(event?),
            Ok(None) => Err("the stream of events ended".into()),
            Err(_) => Err(format!("no event within {} s", PATIENCE.as_secs()).into()),
        }
    }

    pub async fn take(&mut self, count: usize) -> Result<Vec<ReceivedEventData>, Failure> {
        let mut events = Vec::with_capacity(count);
        while events.len() < count {
            events.push(self.next().await?);
        }
        Ok(events)
    }

    /// The error that ends it, behind whatever it still receives.
    pub async fn error(&mut self) -> Result<EventHubsError, Failure> {
        loop {
            match tokio::time::timeout(PATIENCE, self.events.recv()).await {
                Ok(Some(Ok(_event))) => {}
                Ok(Some(Err(error))) => return Ok(error),
                Ok(None) => return Err("the stream of events ended without an error".into()),
                Err(_) => return Err(format!("no error within {} s", PATIENCE.as_secs()).into()),
            }
        }
    }

    /// Until the link is open, which shows when it receives what is sent now; nothing of that is left over.
    pub async fn attached(&mut self) -> Result<(), Failure> {
        let client = producer(&self.reading.hub).await?;
        let mut sent = 0;
        while self.events.is_empty() {
            if sent * PAUSE.as_millis() > PATIENCE.as_millis() {
                return Err("waited for a receiver to open".into());
            }
            client.send_event("are you there?", to(&self.reading.partition)).await?;
            sent += 1;
            tokio::time::sleep(PAUSE).await;
        }
        client.send_event("the last", to(&self.reading.partition)).await?;
        client.close().await?;
        while text(&self.next().await?) != "the last" {}
        Ok(())
    }

    /// It still receives what is sent now.
    pub async fn goes_on(&mut self) -> Result<(), Failure> {
        let client = producer(&self.reading.hub).await?;
        client.send_event("go on", to(&self.reading.partition)).await?;
        client.close().await?;
        equal(text(&self.next().await?), "go on".to_owned(), "received")
    }

    pub async fn close(self) -> Result<(), Failure> {
        self.task.abort();
        drop(self.task.await);
        let receiver = Arc::try_unwrap(self.receiver).map_err(|_| "the receiver is still in use")?;
        // One that was refused or stolen has no link to close.
        drop(receiver.close().await);
        Ok(self.client.close().await?)
    }
}

/// The body as one piece of bytes.
pub fn bytes(event: &ReceivedEventData) -> Vec<u8> {
    match &event.raw_amqp_message().body {
        AmqpMessageBody::Binary(parts) => parts.concat(),
        _ => Vec::new(),
    }
}

pub fn text(event: &ReceivedEventData) -> String {
    String::from_utf8_lossy(&bytes(event)).into_owned()
}

pub fn texts(events: &[ReceivedEventData]) -> Vec<String> {
    events.iter().map(text).collect()
}

pub fn sequences(events: &[ReceivedEventData]) -> Vec<i64> {
    events.iter().filter_map(ReceivedEventData::sequence_number).collect()
}
