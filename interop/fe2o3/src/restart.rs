//! Interoperability tests while the server is killed and started again on the same data and port.
//!
//! This library does not reconnect by itself; so an application does it here, in the simplest way: once more
//! from the last event, once more what was not acknowledged.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fe2o3_amqp::{Receiver, Sender};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::client::{Client, Failure, Shared, equal};
use crate::events::{event, send, sequences, stamp, texts};
use crate::reader::{Reading, read, take_one};
use crate::{Operation, operation};

const HUB: &str = "fe2o3-restart";
const KILLS: usize = 3;
/// Between two tries to connect.
const PAUSE: Duration = Duration::from_millis(50);
/// A send that takes longer is given up: in this library one that is under way may not notice that the peer is gone.
const MAX_SEND_TIME: Duration = Duration::from_secs(1);

/// Asks the runner, which owns the server, and waits until it is back.
async fn restart_server() -> Result<(), Failure> {
    println!("restart");
    let mut line = String::new();
    BufReader::new(tokio::io::stdin()).read_line(&mut line).await?;
    equal(line.trim(), "restarted", "the runner")
}

/// A sender that tries until it is acknowledged.
struct Persistent {
    partition: String,
    link: Option<(Client, Sender)>,
}

impl Persistent {
    fn to(partition: &str) -> Self {
        Self { partition: partition.to_owned(), link: None }
    }

    async fn send(&mut self, text: &str) {
        while !matches!(tokio::time::timeout(MAX_SEND_TIME, self.try_to(text)).await, Ok(Ok(()))) {
            self.link = None;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_to(&mut self, text: &str) -> Result<(), Failure> {
        let (_, sender) = match &mut self.link {
            Some(link) => link,
            none => {
                let mut client = Client::open(HUB).await?;
                let sender = client.sender(&format!("{HUB}/Partitions/{}", self.partition)).await?;
                none.insert((client, sender))
            }
        };
        send(sender, event(text)).await
    }
}

/// A receiver that goes on behind the last event it handed out.
struct Resuming {
    partition: String,
    last: i64,
    link: Option<(Client, Receiver)>,
}

impl Resuming {
    fn of(partition: &str) -> Self {
        Self { partition: partition.to_owned(), last: -1, link: None }
    }

    /// The number of the next event.
    async fn next(&mut self) -> i64 {
        loop {
            match self.try_next().await {
                Ok(sequence) => {
                    self.last = sequence;
                    return sequence;
                }
                Err(_lost) => {
                    self.link = None;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn try_next(&mut self) -> Result<i64, Failure> {
        let (_, link) = match &mut self.link {
            Some(link) => link,
            none => {
                let mut client = Client::open(HUB).await?;
                let start = format!("x-opt-sequence-number > '{}'", self.last);
                let reading = Reading::of(HUB).partition(&self.partition).after(&start);
                let link = reading.attach(&mut client).await?;
                none.insert((client, link))
            }
        };
        Ok(stamp(&take_one(link).await?)?.sequence)
    }
}

async fn idle() -> Result<(), Failure> {
    let (mut sender, mut receiver) = (Persistent::to("0"), Resuming::of("0"));
    for half in [0..20, 20..40] {
        if half.start > 0 {
            restart_server().await?;
        }
        for number in half.clone() {
            sender.send(&number.to_string()).await;
        }
        for number in half {
            equal(receiver.next().await, number, "handed out")?;
        }
    }
    let events = read(Reading::of(HUB), 40).await?;
    equal(texts(&events)?, (0..40).map(|number| number.to_string()).collect(), "stored")
}

/// Killed three times. Repeats come only from the sender that tries again.
async fn busy() -> Result<String, Failure> {
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
    let handed: Shared<Vec<i64>> = Shared::default();
    let sending = tokio::spawn(send_on(stop.clone(), acknowledged.clone()));
    let receiving = tokio::spawn(receive_on(handed.clone()));
    for kill in 0..=KILLS {
        let count = acknowledged.load(Ordering::Relaxed) + 50;
        while acknowledged.load(Ordering::Relaxed) < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if kill < KILLS {
            restart_server().await?;
        }
    }
    stop.store(true, Ordering::Relaxed);
    sending.await?;
    let mut client = Client::open(HUB).await?;
    let end = client.last(HUB, "1").await?;
    client.close().await;
    while locked(&handed).last() != Some(&end) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    receiving.abort();
    equal(locked(&handed).clone(), (0..=end).collect(), "handed out")?;

    let events = read(Reading::of(HUB).partition("1"), usize::try_from(end + 1)?).await?;
    equal(sequences(&events)?, (0..=end).collect(), "sequence")?;
    let mut stored: Vec<i64> = Vec::new();
    for text in texts(&events)? {
        stored.push(text.parse()?);
    }
    let total = stored.len();
    equal(stored.is_sorted(), true, "order")?;
    stored.dedup();
    equal(stored.clone(), (0..acknowledged.load(Ordering::Relaxed)).collect(), "stored and acknowledged")?;
    let twice = total - stored.len();
    match twice <= KILLS {
        true => Ok(format!("{} sent, {twice} stored twice by a retry, 0 handed out twice", stored.len())),
        false => Err(format!("{twice} events stored twice by {KILLS} kills").into()),
    }
}

async fn send_on(stop: Arc<AtomicBool>, acknowledged: Arc<AtomicI64>) {
    let mut sender = Persistent::to("1");
    while !stop.load(Ordering::Relaxed) {
        sender.send(&acknowledged.load(Ordering::Relaxed).to_string()).await;
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

async fn receive_on(handed: Shared<Vec<i64>>) {
    let mut receiver = Resuming::of("1");
    loop {
        let sequence = receiver.next().await;
        locked(&handed).push(sequence);
    }
}

fn locked<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn operations() -> Vec<Operation> {
    vec![
        operation("killed and restarted while idle", idle()),
        ("killed and restarted while sending and receiving", Box::pin(busy())),
    ]
}
