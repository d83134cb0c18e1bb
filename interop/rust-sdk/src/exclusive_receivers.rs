//! Interoperability tests with several receivers of one partition: which of them the hub admits, and which
//! it disconnects.

use azure_messaging_eventhubs::models::ReceivedEventData;

use crate::client::{Failure, equal, say};
use crate::reader::{Reading, text};
use crate::refusals::is_refused;
use crate::{Operation, operation};

const HUB: &str = "rust-sdk-ownership";
const STOLEN: &str = "ConsumerDisconnected";

fn at(level: Option<i64>) -> Reading {
    Reading::of(HUB).latest().level(level)
}

async fn steal(first: Option<i64>, second: i64) -> Result<(), Failure> {
    let mut loser = at(first).open().await?;
    loser.attached().await?;
    let mut winner = at(Some(second)).open().await?;
    winner.attached().await?;
    let higher = format!("higher epoch of '{second}'");
    is_refused(&loser.error().await?, STOLEN, &["New receiver", &higher])?;
    winner.goes_on().await?;
    loser.close().await?;
    winner.close().await
}

async fn higher() -> Result<(), Failure> {
    steal(Some(3), 4).await?;
    steal(None, 0).await
}

async fn refused(first: Option<i64>, second: Option<i64>, words: &str) -> Result<(), Failure> {
    let mut owner = at(first).open().await?;
    owner.attached().await?;
    let mut other = at(second).open().await?;
    is_refused(&other.error().await?, STOLEN, &[words])?;
    other.close().await?;
    owner.goes_on().await?;
    owner.close().await?;
    let mut next = at(second).open().await?;
    next.attached().await?;
    next.close().await
}

async fn sixth() -> Result<(), Failure> {
    let reading = at(None).group("six");
    let mut five = Vec::new();
    for _ in 0..5 {
        let mut reader = reading.open().await?;
        reader.attached().await?;
        five.push(reader);
    }
    let mut sixth = reading.open().await?;
    let words = ["maximum number of allowed receivers", "which is 5"];
    is_refused(&sixth.error().await?, "ResourceLimitExceeded", &words)?;
    sixth.close().await?;
    say(HUB, "for five").await?;
    for reader in &mut five {
        // Behind what was sent until the others were attached.
        let is_it = |event: &ReceivedEventData| text(event) == "for five";
        while !is_it(&reader.next().await?) {}
    }
    five.pop().ok_or("there were none")?.close().await?;
    let mut next = reading.open().await?;
    next.attached().await?;
    five.push(next);
    let count = five.len();
    for reader in five {
        reader.close().await?;
    }
    equal(count, 5, "receivers")
}

pub fn operations() -> Vec<Operation> {
    let lower = refused(Some(5), Some(4), "with a higher epoch '5' already exists");
    let none = refused(Some(1), None, "non-epoch receiver is not allowed");
    vec![
        operation("an equal owner level steals", steal(Some(0), 0)),
        operation("a higher owner level steals", higher()),
        operation("a lower owner level is refused", lower),
        operation("no owner level beside one is refused", none),
        operation("the sixth receiver without owner level is refused", sixth()),
    ]
}
