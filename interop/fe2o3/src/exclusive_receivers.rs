//! Interoperability tests with several receivers of one partition: which of them the hub admits, and which
//! it disconnects.

use crate::client::{Client, Failure, equal};
use crate::events::{event, send, texts};
use crate::reader::{Reader, Reading};
use crate::refusals::{attach_refused, link_ended};
use crate::{Operation, operation};

const HUB: &str = "fe2o3-ownership";
const STOLEN: &str = "amqp:link:stolen";

fn at(level: Option<i64>) -> Reading {
    Reading::of(HUB).latest().level(level)
}

async fn say(text: &str) -> Result<(), Failure> {
    let mut client = Client::open(HUB).await?;
    let mut sender = client.sender(&format!("{HUB}/Partitions/0")).await?;
    send(&mut sender, event(text)).await?;
    sender.close().await?;
    client.close().await;
    Ok(())
}

/// It still receives what is sent now.
async fn goes_on(reader: &mut Reader) -> Result<(), Failure> {
    say("go on").await?;
    equal(texts(&reader.take(1).await?)?, vec!["go on".to_owned()], "received")
}

async fn steal(first: Option<i64>, second: i64) -> Result<(), Failure> {
    let mut loser = at(first).open().await?;
    goes_on(&mut loser).await?;
    let mut winner = at(Some(second)).open().await?;
    let higher = format!("higher epoch of '{second}'");
    link_ended(&mut loser, STOLEN, &["New receiver", &higher]).await?;
    goes_on(&mut winner).await?;
    loser.close().await?;
    winner.close().await
}

async fn higher() -> Result<(), Failure> {
    steal(Some(3), 4).await?;
    steal(None, 0).await
}

async fn refused(first: Option<i64>, second: Option<i64>, words: &str) -> Result<(), Failure> {
    let mut owner = at(first).open().await?;
    attach_refused(HUB, &at(second), STOLEN, &[words]).await?;
    goes_on(&mut owner).await?;
    owner.close().await?;
    let mut next = at(second).open().await?;
    goes_on(&mut next).await?;
    next.close().await
}

async fn sixth() -> Result<(), Failure> {
    let reading = at(None).group("six");
    let mut five = Vec::new();
    for _ in 0..5 {
        five.push(reading.clone().open().await?);
    }
    let words = ["maximum number of allowed receivers", "which is 5"];
    attach_refused(HUB, &reading, "amqp:resource-limit-exceeded", &words).await?;
    say("for five").await?;
    for reader in &mut five {
        equal(texts(&reader.take(1).await?)?, vec!["for five".to_owned()], "received")?;
    }
    five.pop().ok_or("there were none")?.close().await?;
    five.push(reading.open().await?);
    for reader in five {
        reader.close().await?;
    }
    Ok(())
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
