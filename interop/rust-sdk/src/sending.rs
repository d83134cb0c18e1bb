//! Interoperability tests that send events, and that read the runtime properties of hub and partitions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use azure_messaging_eventhubs::{BufferedProducerClient, EnqueueEventOptions, EventDataBatchOptions};

use crate::client::{Failure, Way, equal, last, producer, send_all, to};
use crate::reader::{Reading, sequences, texts};
use crate::{Operation, operation};

const HUB: &str = "rust-sdk-sending";
const PARTITIONS: [&str; 4] = ["0", "1", "2", "3"];
const SENDS: u32 = 200;
/// Without the time that the hub gives it, it is one in twenty and more.
const MAX_MISSED: u32 = 5;
/// Far longer than an acknowledgement takes.
const MAX_SEND_TIME: Duration = Duration::from_secs(3);

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("event {number}")).collect()
}

async fn everywhere() -> Result<Vec<i64>, Failure> {
    let mut found = Vec::new();
    for partition in PARTITIONS {
        found.push(last(HUB, partition).await?);
    }
    Ok(found)
}

async fn stored_since(before: &[i64]) -> Result<i64, Failure> {
    Ok(everywhere().await?.iter().sum::<i64>() - before.iter().sum::<i64>())
}

/// One by one, as fast as they are acknowledged, on several threads: there this client misses an acknowledgement that
/// comes at once, and waits for it for ever. The hub gives it a few milliseconds; on a machine that is busy with other
/// things that may not be enough now and then, so a few are forgiven. All of them are stored.
async fn one() -> Result<String, Failure> {
    let before = everywhere().await?;
    let missed = tokio::task::spawn_blocking(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let missed = runtime.block_on(send_one_by_one());
        runtime.shutdown_background();
        missed
    });
    let missed = missed.await??;
    equal(stored_since(&before).await?, i64::from(SENDS), "stored")?;
    match missed {
        0 => Ok(String::new()),
        1..=MAX_MISSED => Ok(format!("{missed} of {SENDS} acknowledgements were missed by the client")),
        _ => Err(format!("{missed} of {SENDS} acknowledgements were missed by the client").into()),
    }
}

async fn send_one_by_one() -> Result<u32, Failure> {
    let mut missed = 0;
    let mut client = producer(HUB).await?;
    for number in 0..SENDS {
        match tokio::time::timeout(MAX_SEND_TIME, client.send_event(format!("event {number}"), None)).await {
            Ok(sent) => sent?,
            Err(_) => {
                missed += 1;
                client = producer(HUB).await?;
            }
        }
    }
    Ok(missed)
}

async fn batch() -> Result<(), Failure> {
    let before = everywhere().await?;
    let client = producer(HUB).await?;
    for _ in 0..50 {
        send_all(&client, numbered(100), EventDataBatchOptions::default()).await?;
    }
    client.close().await?;
    equal(stored_since(&before).await?, 5000, "stored")
}

async fn with_key() -> Result<(), Failure> {
    let before = everywhere().await?;
    let client = producer(HUB).await?;
    for _ in 0..2 {
        let options = EventDataBatchOptions { partition_key: Some("a key".to_owned()), ..Default::default() };
        send_all(&client, numbered(10), options).await?;
    }
    client.close().await?;
    let after = everywhere().await?;
    let changed: Vec<usize> = (0..4).filter(|&index| after[index] != before[index]).collect();
    equal(changed.len(), 1, "partitions of one key")?;
    let events =
        Reading::of(HUB).partition(PARTITIONS[changed[0]]).after(before[changed[0]]).read(20).await?;
    equal(texts(&events), [numbered(10), numbered(10)].concat(), "order")?;
    for event in &events {
        equal(event.partition_key().as_deref(), Some("a key"), "key")?;
    }
    Ok(())
}

async fn to_partition() -> Result<(), Failure> {
    let before = last(HUB, "2").await?;
    let client = producer(HUB).await?;
    let options = EventDataBatchOptions { partition_id: Some("2".to_owned()), ..Default::default() };
    send_all(&client, numbered(10), options).await?;
    client.send_event("alone", to("2")).await?;
    client.close().await?;
    let events = Reading::of(HUB).partition("2").after(before).read(11).await?;
    equal(texts(&events), [numbered(10), vec!["alone".to_owned()]].concat(), "order")?;
    equal(sequences(&events), (before + 1..before + 12).collect(), "sequence")?;
    equal(events.iter().all(|event| event.partition_key().is_none()), true, "no key")
}

async fn buffered() -> Result<(), Failure> {
    let before = everywhere().await?;
    let way = Way::given()?;
    let (sent, failed) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
    let client = BufferedProducerClient::builder()
        .with_custom_endpoint(way.endpoint.clone())
        .with_on_send_succeeded({
            let sent = sent.clone();
            move |told| {
                *sent.lock().unwrap_or_else(PoisonError::into_inner) += told.events.len();
                async {}
            }
        })
        .with_on_send_failed({
            let failed = failed.clone();
            move |told| {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(told.error.to_string());
                async {}
            }
        })
        .open_with_connection_string(&way.connection, Some(HUB))
        .await?;
    for number in 0..100 {
        let key = Some(format!("key {}", number % 7));
        let options = EnqueueEventOptions { partition_key: key, ..EnqueueEventOptions::default() };
        client.enqueue_event(format!("event {number}"), Some(options)).await?;
    }
    client.flush().await?;
    client.close().await?;
    equal(failed.lock().unwrap_or_else(PoisonError::into_inner).clone(), Vec::<String>::new(), "failures")?;
    equal(*sent.lock().unwrap_or_else(PoisonError::into_inner), 100, "told")?;
    equal(stored_since(&before).await?, 100, "stored")
}

async fn describe_hub() -> Result<(), Failure> {
    let (sender, receiver) = (producer(HUB).await?, Way::given()?.consumer(HUB, "$Default").await?);
    for found in [sender.get_eventhub_properties().await?, receiver.get_eventhub_properties().await?] {
        equal(found.name.as_str(), HUB, "name")?;
        equal(found.partition_ids, PARTITIONS.map(str::to_owned).to_vec(), "partitions")?;
        equal(found.created_on.is_some_and(|time| time < SystemTime::now()), true, "created")?;
    }
    sender.close().await?;
    Ok(receiver.close().await?)
}

async fn describe_partition() -> Result<(), Failure> {
    let client = producer(HUB).await?;
    let options = EventDataBatchOptions { partition_id: Some("3".to_owned()), ..Default::default() };
    send_all(&client, ["one", "two"], options).await?;
    let found = client.get_partition_properties("3").await?;
    client.close().await?;
    let count = usize::try_from(found.last_enqueued_sequence_number + 1)?;
    let event = Reading::of(HUB).partition("3").read(count).await?.pop().ok_or("no events")?;
    equal((found.eventhub.as_str(), found.id.as_str()), (HUB, "3"), "hub and partition")?;
    equal(found.beginning_sequence_number, 0, "first")?;
    equal(Some(found.last_enqueued_sequence_number), event.sequence_number(), "last sequence number")?;
    equal(Some(&found.last_enqueued_offset), event.offset().as_ref(), "last offset")?;
    equal(found.last_enqueued_time_utc, event.enqueued_time(), "last time")?;
    equal(found.is_empty, false, "empty")
}

pub fn operations() -> Vec<Operation> {
    vec![
        ("send one event", Box::pin(one())),
        operation("send a batch without a key", batch()),
        operation("send a batch with a key", with_key()),
        operation("send a batch to a partition", to_partition()),
        operation("send through the client's buffer", buffered()),
        operation("describe the hub", describe_hub()),
        operation("describe a partition", describe_partition()),
    ]
}
