//! Interoperability tests that receive from every kind of start position, from all partitions at once, and
//! with the last enqueued event in each delivery.

use std::time::Duration;

use fe2o3_amqp_types::primitives::Value;

use crate::client::{Client, Failure, equal};
use crate::events::{Event, annotation, event, send, sequences, stamp};
use crate::reader::{Reader, Reading, read, take_one};
use crate::{Operation, operation};

const HUB: &str = "fe2o3-positions";
const COUNT: usize = 6;

/// Six events in partition 0, each at a time of its own, as they are received from the start.
async fn filled() -> Result<Vec<Event>, Failure> {
    let mut client = Client::open(HUB).await?;
    if client.last(HUB, "0").await? < 0 {
        let mut sender = client.sender(&format!("{HUB}/Partitions/0")).await?;
        for number in 0..COUNT {
            send(&mut sender, event(&format!("event {number}"))).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        sender.close().await?;
    }
    client.close().await;
    read(Reading::of(HUB), COUNT).await
}

async fn send_to(partition: &str, text: &str) -> Result<(), Failure> {
    let mut client = Client::open(HUB).await?;
    let mut sender = client.sender(&format!("{HUB}/Partitions/{partition}")).await?;
    send(&mut sender, event(text)).await?;
    sender.close().await?;
    client.close().await;
    Ok(())
}

/// Checks the events after this condition; the selector is sent with its code, and with its name.
async fn after(condition: &str, expected: &[i64]) -> Result<(), Failure> {
    for named_selector in [false, true] {
        let reading = Reading { named_selector, ..Reading::of(HUB).after(condition) };
        equal(sequences(&read(reading, expected.len()).await?)?, expected.to_vec(), condition)?;
    }
    Ok(())
}

async fn earliest() -> Result<(), Failure> {
    equal(sequences(&filled().await?)?, vec![0, 1, 2, 3, 4, 5], "all")?;
    after("x-opt-offset > '-1'", &[0, 1, 2, 3, 4, 5]).await
}

async fn latest() -> Result<(), Failure> {
    send_to("1", "old").await?;
    let mut client = Client::open(HUB).await?;
    let before = client.last(HUB, "1").await?;
    client.close().await;
    let mut reader = Reading::of(HUB).partition("1").latest().open().await?;
    send_to("1", "new").await?;
    equal(stamp(&reader.next().await?)?.sequence, before + 1, "after latest")?;
    reader.close().await?;
    let inclusive = Reading::of(HUB).partition("1").after("x-opt-offset >= '@latest'");
    equal(sequences(&read(inclusive, 1).await?)?, vec![before + 1], "latest, inclusive")
}

async fn sequence_number() -> Result<(), Failure> {
    filled().await?;
    after("x-opt-sequence-number > '2'", &[3, 4, 5]).await?;
    after("x-opt-sequence-number >= '2'", &[2, 3, 4, 5]).await?;
    after("x-opt-sequence-number >= 0", &[0, 1, 2, 3, 4, 5]).await
}

async fn offset() -> Result<(), Failure> {
    let offset = stamp(&filled().await?[2])?.offset;
    after(&format!("x-opt-offset > '{offset}'"), &[3, 4, 5]).await?;
    after(&format!("x-opt-offset >= '{offset}'"), &[2, 3, 4, 5]).await
}

async fn enqueued_time() -> Result<(), Failure> {
    let time = stamp(&filled().await?[2])?.enqueued_at;
    after(&format!("x-opt-enqueued-time > '{time}'"), &[3, 4, 5]).await?;
    after(&format!("x-opt-enqueued-time >= '{time}'"), &[2, 3, 4, 5]).await
}

/// Both partitions by two links of one session.
async fn all_partitions() -> Result<(), Failure> {
    filled().await?;
    send_to("1", "other").await?;
    let mut client = Client::open(HUB).await?;
    let mut links = [
        Reading::of(HUB).attach(&mut client).await?,
        Reading::of(HUB).partition("1").attach(&mut client).await?,
    ];
    for (partition, link) in ["0", "1"].into_iter().zip(&mut links) {
        for expected in 0..=client.last(HUB, partition).await? {
            equal(stamp(&take_one(link).await?)?.sequence, expected, partition)?;
        }
    }
    for link in links {
        link.close().await?;
    }
    client.close().await;
    Ok(())
}

async fn tracking() -> Result<(), Failure> {
    let last = stamp(filled().await?.last().ok_or("no event")?)?;
    let mut client = Client::open(HUB).await?;
    let link = Reading { track: true, ..Reading::of(HUB) }.attach(&mut client).await?;
    let mut reader = Reader::new(client, link);
    for event in reader.take(COUNT).await? {
        let found = event.delivery_annotations.ok_or("no delivery annotations")?.0;
        let is = |name: &str, expected: Value| equal(annotation(&found, name)?, &expected, name);
        is("last_enqueued_sequence_number", Value::Long(last.sequence))?;
        is("last_enqueued_offset", Value::from(last.offset.clone()))?;
        is("last_enqueued_time_utc", Value::Timestamp(last.enqueued_at.into()))?;
        match annotation(&found, "runtime_info_retrieval_time_utc")? {
            Value::Timestamp(time) if time.milliseconds() >= last.enqueued_at => {}
            other => return Err(format!("retrieval time: {other:?}").into()),
        }
    }
    reader.close().await
}

pub fn operations() -> Vec<Operation> {
    vec![
        operation("receive from earliest", earliest()),
        operation("receive from latest", latest()),
        operation("receive from a sequence number", sequence_number()),
        operation("receive from an offset", offset()),
        operation("receive from an enqueued time", enqueued_time()),
        operation("receive all partitions at once", all_partitions()),
        operation("know the last enqueued event while receiving", tracking()),
    ]
}
