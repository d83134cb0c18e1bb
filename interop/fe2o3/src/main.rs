//! Runs the interoperability tests with the library fe2o3-amqp, and prints one line for each: name, `ok` or
//! `failed`, text, seconds.
//!
//! Nothing here knows Event Hubs but these files: links, tokens, selectors and batches are written out as a
//! user of any AMQP library would.

mod access;
mod client;
mod events;
mod exclusive_receivers;
mod positions;
mod reader;
mod refusals;
mod restart;
mod secure;
mod sending;
mod values;

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::client::Failure;

/// The result of an operation: a text about it, or why it failed.
type Outcome = Result<String, Failure>;
type Operation = (&'static str, Pin<Box<dyn Future<Output = Outcome> + Send>>);

/// An operation that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let groups = [
        sending::operations(),
        positions::operations(),
        values::operations(),
        exclusive_receivers::operations(),
        refusals::operations(),
        access::operations(),
        secure::operations(),
        restart::operations(),
    ];
    for (name, operation) in groups.into_iter().flatten() {
        if only.is_empty() || only.iter().any(|word| name.contains(word.as_str())) {
            play(name, operation).await;
        }
    }
}

async fn play(name: &str, operation: impl Future<Output = Outcome>) {
    let start = Instant::now();
    let (result, text) = match tokio::time::timeout(PATIENCE, operation).await {
        Ok(Ok(text)) => ("ok", text),
        Ok(Err(error)) => ("failed", error.to_string()),
        Err(_) => ("failed", format!("not done after {} s", PATIENCE.as_secs())),
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let text: String = words.join(" ").chars().take(300).collect();
    println!("{name}\t{result}\t{text}\t{:.1}", start.elapsed().as_secs_f64());
}

/// An operation of the table.
fn operation(
    name: &'static str,
    run: impl Future<Output = Result<(), Failure>> + Send + 'static,
) -> Operation {
    (name, Box::pin(async { run.await.map(|()| String::new()) }))
}
