//! Interoperability tests while the server is killed and started again on the same data and port.
//!
//! A sender of this client reconnects by itself. A receiver either fails or silently starts again at its first position, so
//! the test opens a new receiver after the last event, as an application has to, and drops duplicates.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use azure_messaging_eventhubs::ProducerClient;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::Operation;
use crate::client::{Failure, Way, equal, last, to, tries};
use crate::reader::{Reader, Reading, sequences, text, texts};

const HUB: &str = "rust-sdk-restart";
const KILLS: usize = 3;
const PAUSE: Duration = Duration::from_millis(50);
/// A send that takes longer is given up: one that is under way may not notice that the peer is gone.
const MAX_SEND_TIME: Duration = Duration::from_secs(2);

fn patient() -> Result<Way, Failure> {
    Ok(Way { retries: tries(100), ..Way::given()? })
}

/// Asks the runner, which owns the server, and waits until it is back.
async fn restart_server() -> Result<(), Failure> {
    println!("restart");
    let mut line = String::new();
    BufReader::new(tokio::io::stdin()).read_line(&mut line).await?;
    equal(line.trim(), "restarted", "the runner")
}

/// A sender that tries until it is acknowledged.
struct Persistent {
    partition: &'static str,
    client: Option<ProducerClient>,
}

impl Persistent {
    fn to(partition: &'static str) -> Self {
        Self { partition, client: None }
    }

    async fn send(&mut self, text: &str) {
        while !matches!(tokio::time::timeout(MAX_SEND_TIME, self.try_to(text)).await, Ok(Ok(()))) {
            self.client = None;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_to(&mut self, text: &str) -> Result<(), Failure> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(patient()?.producer(HUB).await?),
        };
        Ok(client.send_event(text.to_owned(), to(self.partition)).await?)
    }
}

/// A receiver that goes on behind the last event it handed out.
struct Resuming {
    partition: &'static str,
    reader: Option<Reader>,
    /// The numbers that it was handed.
    seen: BTreeSet<i64>,
    /// How many of them again.
    again: usize,
}

impl Resuming {
    fn of(partition: &'static str) -> Self {
        Self { partition, reader: None, seen: BTreeSet::new(), again: 0 }
    }

    /// Goes on until this number was handed out, and every one before it.
    async fn until(&mut self, end: i64) -> Result<(), Failure> {
        while !self.seen.contains(&end) {
            match self.try_next().await {
                Ok(sequence) if self.seen.insert(sequence) => {}
                Ok(_) => self.again += 1,
                Err(_lost) => {
                    self.reader = None;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        equal(self.seen.iter().copied().collect::<Vec<i64>>(), (0..=end).collect(), "handed out")
    }

    async fn try_next(&mut self) -> Result<i64, Failure> {
        let last = self.seen.last().copied().unwrap_or(-1);
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => {
                let reading = Reading::of(HUB).partition(self.partition).after(last).by(patient()?);
                none.insert(reading.open().await?)
            }
        };
        Ok(reader.next().await?.sequence_number().ok_or("no sequence number")?)
    }
}

async fn idle() -> Result<String, Failure> {
    let (mut sender, mut receiver) = (Persistent::to("0"), Resuming::of("0"));
    for half in [0..20, 20..40] {
        if half.start > 0 {
            restart_server().await?;
        }
        for number in half.clone() {
            sender.send(&number.to_string()).await;
        }
        receiver.until(half.end - 1).await?;
    }
    let events = Reading::of(HUB).read(40).await?;
    equal(texts(&events), (0..40).map(|number| number.to_string()).collect(), "stored")?;
    Ok(format!("{} handed out twice", receiver.again))
}

/// Killed three times. Repeats come only from the client: a sender that tries again, a receiver that begins again.
async fn busy() -> Result<String, Failure> {
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
    let sending = tokio::spawn(send_on(stop.clone(), acknowledged.clone()));
    let mut receiver = Resuming::of("1");
    for kill in 0..=KILLS {
        let count = acknowledged.load(Ordering::Relaxed) + 50;
        while acknowledged.load(Ordering::Relaxed) < count {
            // Beside the sending, until the server is gone.
            let received = i64::try_from(receiver.seen.len())?;
            receiver.until(received).await?;
        }
        if kill < KILLS {
            restart_server().await?;
        }
    }
    stop.store(true, Ordering::Relaxed);
    sending.await?;
    let end = last(HUB, "1").await?;
    receiver.until(end).await?;

    let events = Reading::of(HUB).partition("1").read(usize::try_from(end + 1)?).await?;
    equal(sequences(&events), (0..=end).collect(), "sequence")?;
    let mut stored: Vec<i64> = Vec::new();
    for event in &events {
        stored.push(text(event).parse()?);
    }
    equal(stored.is_sorted(), true, "order")?;
    stored.dedup();
    equal(stored.clone(), (0..acknowledged.load(Ordering::Relaxed)).collect(), "stored and acknowledged")?;
    let twice = events.len() - stored.len();
    let told = format!(
        "{} sent, {twice} stored twice by a retry, {} handed out twice",
        stored.len(),
        receiver.again
    );
    if twice <= KILLS { Ok(told) } else { Err(format!("{told}, by {KILLS} kills").into()) }
}

async fn send_on(stop: Arc<AtomicBool>, acknowledged: Arc<AtomicI64>) {
    let mut sender = Persistent::to("1");
    while !stop.load(Ordering::Relaxed) {
        sender.send(&acknowledged.load(Ordering::Relaxed).to_string()).await;
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

pub fn operations() -> Vec<Operation> {
    vec![
        ("killed and restarted while idle", Box::pin(idle())),
        ("killed and restarted while sending and receiving", Box::pin(busy())),
    ]
}
