//! Interoperability tests that send events, and that read the runtime properties of hub and partitions.

use std::collections::BTreeSet;

use fe2o3_amqp_types::messaging::Outcome;
use fe2o3_amqp_types::primitives::{Array, Value};

use crate::client::{Client, Description, Failure, equal};
use crate::events::{Event, batch, event, keyed, send, sequences, stamp, texts};
use crate::reader::{Reading, read};
use crate::{Operation, operation};

const HUB: &str = "fe2o3-sending";
const PARTITIONS: [&str; 4] = ["0", "1", "2", "3"];

fn ten() -> Vec<Event> {
    (0..10).map(|number| event(&format!("event {number}"))).collect()
}

async fn everywhere(client: &mut Client) -> Result<Vec<i64>, Failure> {
    let mut last = Vec::new();
    for partition in PARTITIONS {
        last.push(client.last(HUB, partition).await?);
    }
    Ok(last)
}

async fn stored(client: &mut Client) -> Result<i64, Failure> {
    Ok(everywhere(client).await?.iter().sum())
}

async fn send_one() -> Result<(), Failure> {
    let mut client = Client::open(HUB).await?;
    let before = stored(&mut client).await?;
    let mut sender = client.sender(HUB).await?;
    send(&mut sender, event("alone")).await?;
    sender.close().await?;
    equal(stored(&mut client).await? - before, 1, "stored")?;
    client.close().await;
    Ok(())
}

async fn send_batch() -> Result<(), Failure> {
    let mut client = Client::open(HUB).await?;
    let before = stored(&mut client).await?;
    let mut sender = client.sender(HUB).await?;
    let hundred: Vec<Event> = (0..100).map(|number| event(&format!("event {number}"))).collect();
    send(&mut sender, batch(&hundred, None)?).await?;
    send(&mut sender, batch(&[event("one in a batch")], None)?).await?;
    sender.close().await?;
    equal(stored(&mut client).await? - before, 101, "stored")?;
    client.close().await;
    Ok(())
}

async fn send_with_key() -> Result<(), Failure> {
    let mut client = Client::open(HUB).await?;
    let before = everywhere(&mut client).await?;
    let mut sender = client.sender(HUB).await?;
    let ten: Vec<Event> = ten().into_iter().map(|event| keyed(event, "a key")).collect();
    send(&mut sender, batch(&ten, Some("a key"))?).await?;
    send(&mut sender, batch(&ten, Some("a key"))?).await?;
    send(&mut sender, keyed(event("alone"), "a key")).await?;
    sender.close().await?;
    let after = everywhere(&mut client).await?;
    client.close().await;

    let changed: Vec<usize> = (0..4).filter(|index| after[*index] != before[*index]).collect();
    equal(changed.len(), 1, "partitions of one key")?;
    let start = format!("x-opt-sequence-number > '{}'", before[changed[0]]);
    let events = read(Reading::of(HUB).partition(PARTITIONS[changed[0]]).after(&start), 21).await?;
    let mut expected: Vec<String> = (0..10).chain(0..10).map(|number| format!("event {number}")).collect();
    expected.push("alone".to_owned());
    equal(texts(&events)?, expected, "order")?;
    let keys: Result<BTreeSet<_>, _> =
        events.iter().map(|event| Ok::<_, Failure>(stamp(event)?.key)).collect();
    equal(keys?, BTreeSet::from([Some("a key".to_owned())]), "key")
}

async fn send_to_partition() -> Result<(), Failure> {
    let mut client = Client::open(HUB).await?;
    let before = client.last(HUB, "2").await?;
    let mut sender = client.sender(&format!("{HUB}/Partitions/2")).await?;
    send(&mut sender, batch(&ten(), None)?).await?;
    send(&mut sender, event("alone")).await?;
    sender.close().await?;
    client.close().await;

    let start = format!("x-opt-sequence-number > '{before}'");
    let events = read(Reading::of(HUB).partition("2").after(&start), 11).await?;
    let mut expected: Vec<String> = (0..10).map(|number| format!("event {number}")).collect();
    expected.push("alone".to_owned());
    equal(texts(&events)?, expected, "order")?;
    equal(sequences(&events)?, (before + 1..before + 12).collect(), "sequence")?;
    equal(stamp(&events[0])?.key, None, "key")
}

/// The library's own way to have many on their way at once.
async fn send_ahead() -> Result<(), Failure> {
    let mut client = Client::open(HUB).await?;
    let before = stored(&mut client).await?;
    let mut sender = client.sender(HUB).await?;
    let mut outcomes = Vec::new();
    for number in 0..100 {
        let event = keyed(event(&format!("event {number}")), &format!("key {}", number % 7));
        outcomes.push(sender.send_batchable(event).await?);
    }
    for outcome in outcomes {
        if !matches!(outcome.await?, Outcome::Accepted(_)) {
            return Err("one was not accepted".into());
        }
    }
    sender.close().await?;
    equal(stored(&mut client).await? - before, 100, "stored")?;
    client.close().await;
    Ok(())
}

async fn describe_hub() -> Result<(), Failure> {
    let mut client = Client::open(HUB).await?;
    let found = client.describe_hub(HUB).await?;
    client.close().await;
    is(&found, "name", Value::from(HUB))?;
    is(&found, "type", Value::from("com.microsoft:eventhub"))?;
    is(&found, "partition_count", Value::Int(4))?;
    let ids = PARTITIONS.map(Value::from).to_vec();
    is(&found, "partition_ids", Value::Array(Array::from(ids)))?;
    match found.get("created_at") {
        Some(Value::Timestamp(time)) if time.milliseconds() > 1_700_000_000_000 => Ok(()),
        other => Err(format!("created_at: {other:?}").into()),
    }
}

async fn describe_partition() -> Result<(), Failure> {
    let mut client = Client::open(HUB).await?;
    let mut sender = client.sender(&format!("{HUB}/Partitions/3")).await?;
    send(&mut sender, batch(&[event("one"), event("two")], None)?).await?;
    sender.close().await?;
    let found = client.describe_partition(HUB, "3").await?;
    let count = client.last(HUB, "3").await? + 1;
    client.close().await;
    let events = read(Reading::of(HUB).partition("3"), usize::try_from(count)?).await?;
    let last = stamp(events.last().ok_or("no event")?)?;
    is(&found, "name", Value::from(HUB))?;
    is(&found, "partition", Value::from("3"))?;
    is(&found, "type", Value::from("com.microsoft:partition"))?;
    is(&found, "begin_sequence_number", Value::Long(0))?;
    is(&found, "last_enqueued_sequence_number", Value::Long(last.sequence))?;
    is(&found, "last_enqueued_offset", Value::from(last.offset))?;
    is(&found, "last_enqueued_time_utc", Value::Timestamp(last.enqueued_at.into()))?;
    is(&found, "is_partition_empty", Value::Bool(false))
}

fn is(found: &Description, name: &str, expected: Value) -> Result<(), Failure> {
    equal(found.get(name), Some(&expected), name)
}

pub fn operations() -> Vec<Operation> {
    vec![
        operation("send one event", send_one()),
        operation("send a batch without a key", send_batch()),
        operation("send a batch with a key", send_with_key()),
        operation("send a batch to a partition", send_to_partition()),
        operation("send through the client's buffer", send_ahead()),
        operation("describe the hub", describe_hub()),
        operation("describe a partition", describe_partition()),
    ]
}
