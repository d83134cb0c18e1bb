//! Interoperability tests that receive from every kind of start position.

use std::time::Duration;

use azure_messaging_eventhubs::StartLocation;
use azure_messaging_eventhubs::models::ReceivedEventData;

use crate::client::{Failure, equal, last, producer, to};
use crate::reader::{Reading, sequences};
use crate::{Operation, operation};

const HUB: &str = "rust-sdk-positions";
const COUNT: i64 = 6;

/// Six events in partition 0, each at a time of its own, as they are received from the start.
async fn filled() -> Result<Vec<ReceivedEventData>, Failure> {
    if last(HUB, "0").await? < 0 {
        let client = producer(HUB).await?;
        for number in 0..COUNT {
            client.send_event(format!("event {number}"), to("0")).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        client.close().await?;
    }
    Reading::of(HUB).read(usize::try_from(COUNT)?).await
}

/// Checks the events from this position on, with and without the event itself.
async fn from(location: StartLocation, third: i64) -> Result<(), Failure> {
    for (inclusive, first) in [(false, third + 1), (true, third)] {
        let expected: Vec<i64> = (first..COUNT).collect();
        let events = Reading::of(HUB).from(location.clone(), inclusive).read(expected.len()).await?;
        equal(sequences(&events), expected, &format!("from {location:?}, inclusive: {inclusive}"))?;
    }
    Ok(())
}

async fn earliest() -> Result<(), Failure> {
    equal(sequences(&filled().await?), (0..COUNT).collect(), "all")
}

/// There is no way to ask for the last event itself: this client leaves the word out.
async fn latest() -> Result<(), Failure> {
    let mut reader = Reading::of(HUB).partition("1").latest().open().await?;
    reader.attached().await?;
    reader.goes_on().await?;
    reader.close().await
}

async fn sequence_number() -> Result<(), Failure> {
    filled().await?;
    from(StartLocation::SequenceNumber(2), 2).await?;
    from(StartLocation::SequenceNumber(0), 0).await
}

async fn offset() -> Result<(), Failure> {
    let offset = filled().await?[2].offset().clone().ok_or("no offset")?;
    from(StartLocation::Offset(offset), 2).await
}

async fn enqueued_time() -> Result<(), Failure> {
    let time = filled().await?[2].enqueued_time().ok_or("no time")?;
    from(StartLocation::EnqueuedTime(time), 2).await
}

pub fn operations() -> Vec<Operation> {
    vec![
        operation("receive from earliest", earliest()),
        operation("receive from latest", latest()),
        operation("receive from a sequence number", sequence_number()),
        operation("receive from an offset", offset()),
        operation("receive from an enqueued time", enqueued_time()),
    ]
}
