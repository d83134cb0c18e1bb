//! One process of the fleet, whose hosts share a runtime, a store and its database connections.
//!
//! It reads the URLs of the database and the hub from two lines of its input, and ends when its input ends.
//! Its output is a line for each batch (`read PARTITION FIRST LAST`, before the batch counts as processed)
//! and for each error (`error TEXT`).

use std::fmt::Write as _;
use std::io::{BufRead, Read, Write, stdin, stdout};

use ephor::{BoxError, ErrorHandler, Event, EventProcessorHost, EventProcessorOptions};
use ephor_eventhubs::EventHub;
use ephor_stores::postgres::{PostgresOptions, PostgresStore};

use super::options::Pace;

pub(crate) fn process(words: &[&str]) -> Result<bool, BoxError> {
    let [name, hosts, pace] = words else { return Err("only `stores fleet` starts this command".into()) };
    let mut lines = stdin().lock().lines();
    let mut line = || lines.next().ok_or("the input ended too early")?.map_err(BoxError::from);
    let (postgres, hub) = (line()?, line()?);
    let (hosts, pace) = (hosts.parse()?, pace.parse()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let hosts = runtime.block_on(start(name, hosts, pace, &postgres, &hub))?;
    stdin().lock().read_to_end(&mut Vec::new())?;
    drop(hosts);
    runtime.shutdown_background();
    Ok(true)
}

async fn start(
    name: &str,
    hosts: usize,
    pace: Pace,
    postgres: &str,
    hub: &str,
) -> Result<Vec<EventProcessorHost>, BoxError> {
    let store = PostgresStore::new(postgres, PostgresOptions::default())?;
    let mut started = Vec::new();
    for number in 0..hosts {
        // Each host has a connection to the hub of its own, as it would alone.
        let host = EventProcessorHost::builder(EventHub::from_connection_string(hub)?, store.clone())
            .host_name(format!("{name}-{number}"))
            .manager_options(pace.manager())
            .options(EventProcessorOptions {
                on_error: Some(ErrorHandler::new(|error| say(&format!("error {error}\n")))),
                ..pace.processor()
            })
            .for_each_batch(|context, events| {
                let read = read(context.partition().0, &events);
                async move { read }
            })?;
        started.push(host);
    }
    for host in &started {
        host.start().await?;
    }
    Ok(started)
}

/// Reports a batch, in one line for each run of consecutive numbers.
fn read(partition: u32, events: &[Event]) -> Result<(), BoxError> {
    let mut numbers = Vec::with_capacity(events.len());
    for event in events {
        numbers.push(event.text().ok_or("an event without text")?.parse::<u64>()?);
    }
    let mut lines = String::new();
    for run in numbers.chunk_by(|one, next| one + 1 == *next) {
        if let [first, .., last] | [first @ last] = run {
            writeln!(lines, "read {partition} {first} {last}")?;
        }
    }
    say(&lines);
    Ok(())
}

/// Writes whole lines, also with several writers. A closed output is no error: then the process is about to
/// end.
fn say(lines: &str) {
    let mut out = stdout().lock();
    drop(out.write_all(lines.as_bytes()).and_then(|()| out.flush()));
}
