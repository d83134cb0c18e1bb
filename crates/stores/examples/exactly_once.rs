//! An example of exactly-once results: results and checkpoint are committed in one PostgreSQL transaction,
//! however often the program is killed.
//!
//! A hub on this machine's disk is filled with readings of four sensors; a host writes each reading into a
//! table of a PostgreSQL database. Results and progress are committed in the same transaction, fenced by the
//! epoch of the partition. Kill it whenever you like (`kill -9`), and start it again: it goes on where it was,
//! and in the end it compares the table with what was sent, row by row.
//!
//! ```text
//! cargo run -p ephor-stores --features postgres --example exactly_once -- \
//!     postgres://USER:PASSWORD@localhost/DATABASE ./exactly-once-data
//! ```
//!
//! To begin anew, drop the schemas `ephor` and `readings`, and remove the folder.

#![allow(clippy::print_stdout, reason = "an example that shows something")]
#![allow(clippy::disallowed_methods, reason = "an ordinary program sleeps and spawns as it likes")]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ephor::{
    BoxError, CheckpointPolicy, Event, EventProcessorHost, EventProcessorOptions, EventSource, NewEvent,
    PartitionContext, PartitionId, PartitionManagerOptions,
};
use ephor_core::store::SaveOutcome;
use ephor_hub::{Hub, HubConfig, LocalNamespace, NamespaceConfig};
use ephor_stores::postgres::sqlx::postgres::{PgPool, PgPoolOptions};
use ephor_stores::postgres::sqlx::{self, Row};
use ephor_stores::postgres::{PostgresOptions, PostgresStore};

const SENSORS: u32 = 4;

/// There is no key on purpose: a reading that is written twice would be there twice.
const TABLE: &str = "CREATE SCHEMA IF NOT EXISTS readings; \
    CREATE TABLE IF NOT EXISTS readings.results (sensor bigint NOT NULL, number bigint NOT NULL, \
    reading bigint NOT NULL)";

#[tokio::main]
async fn main() -> ExitCode {
    match run_with_arguments().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run_with_arguments() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("usage: exactly_once postgres://USER:PASSWORD@HOST/DATABASE FOLDER".into());
    };
    let rows = run(&url, Path::new(&folder), 5_000, Arc::new(show)).await?;
    println!("{rows} readings were sent, and each of them is in the table exactly once");
    Ok(())
}

/// How far it is. That each batch is saved is for those who want to kill it just then.
fn show(what: &str) {
    if !what.starts_with("sav") {
        println!("{what}");
    }
}

/// Receives a line about each step of the program.
pub(crate) type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// Sends what is not sent yet, processes what is not processed yet, and compares.
pub(crate) async fn run(url: &str, folder: &Path, readings_each: u64, tell: Tell) -> Result<u64, BoxError> {
    let namespace = LocalNamespace::open(folder, NamespaceConfig::default())?;
    let hub = namespace.ensure_hub(&HubConfig::new("readings", SENSORS)?)?;
    send(&hub, readings_each).await?;

    let store = PostgresStore::connect(url, PostgresOptions::default()).await?;
    let pool = PgPoolOptions::new().max_connections(SENSORS).connect(url).await?;
    sqlx::raw_sql(TABLE).execute(&pool).await?;

    let host = start(&hub, &store, &pool, &tell).await?;
    let all = readings_each * u64::from(SENSORS);
    let mut last = 0;
    while last < all {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = count(&pool).await?;
        if now / 1_000 > last / 1_000 {
            tell(&format!("{now} of {all}"));
        }
        last = now;
    }
    host.stop(Duration::from_secs(10)).await?;
    compare(&pool, readings_each).await?;
    Ok(all)
}

/// Reading number n of a sensor is n times the number of sensors plus the sensor's number: what is sent can be
/// told without having been there.
fn reading(sensor: u32, number: u64) -> u64 {
    number * u64::from(SENSORS) + u64::from(sensor)
}

/// Fills each partition up; those that an earlier run has sent are there.
async fn send(hub: &Hub, readings_each: u64) -> Result<(), BoxError> {
    let producer = hub.producer();
    for sensor in 0..SENSORS {
        let partition = PartitionId(sensor);
        let sent = hub.partition_properties(partition).await?.last.map_or(0, |last| last.sequence.0 + 1);
        let mut numbers = sent..readings_each;
        while !numbers.is_empty() {
            let batch = numbers.by_ref().take(500);
            let events = batch.map(|number| NewEvent::new(reading(sensor, number).to_string()));
            producer.send_batch(ephor_hub::Target::Partition(partition), events.collect::<Vec<_>>()).await?;
        }
    }
    Ok(())
}

/// Short times, so that a partition is taken over soon after a kill.
fn quick() -> PartitionManagerOptions {
    PartitionManagerOptions {
        lease_duration: Duration::from_secs(2),
        renew_interval: Duration::from_millis(500),
        slow_scan: Duration::from_millis(300),
        fast_scan: Duration::from_millis(100),
        fence_margin: Duration::from_millis(200),
        store_timeout: Duration::from_secs(1),
        ..PartitionManagerOptions::default()
    }
}

async fn start(
    hub: &Hub,
    store: &PostgresStore,
    pool: &PgPool,
    tell: &Tell,
) -> Result<EventProcessorHost, BoxError> {
    let options = EventProcessorOptions {
        // Progress is saved by the transactions below, and by nobody else.
        checkpoint: CheckpointPolicy::manual(),
        max_batch_size: 10,
        ..EventProcessorOptions::default()
    };
    let parts = (store.clone(), pool.clone(), tell.clone());
    let host = EventProcessorHost::builder(hub.clone(), store.clone())
        .host_name("exactly-once")
        .manager_options(quick())
        .options(options)
        .for_each_batch(move |context, events| {
            let (store, pool, tell) = parts.clone();
            async move { process(&store, &pool, &context, &events, &tell).await }
        })?;
    host.start().await?;
    Ok(host)
}

/// Writes the results of a batch and the position behind it, in one transaction.
async fn process(
    store: &PostgresStore,
    pool: &PgPool,
    context: &PartitionContext,
    events: &[Event],
    tell: &Tell,
) -> Result<(), BoxError> {
    let mut events = events;
    while let (Some(first), Some(last)) = (events.first(), events.last()) {
        let mut transaction = pool.begin().await?;
        for event in events {
            let reading: i64 = event.text().ok_or("no text")?.parse()?;
            sqlx::query("INSERT INTO readings.results VALUES ($1, $2, $3)")
                .bind(i64::from(context.partition().0))
                .bind(i64::try_from(event.sequence.0)?)
                .bind(reading)
                .execute(&mut *transaction)
                .await?;
        }
        let request = context.save_request(last);
        match store.save_in(&mut transaction, context.group(), &request, first.sequence).await? {
            SaveOutcome::Saved(checkpoint) => {
                tell("saving");
                transaction.commit().await?;
                context.checkpoint_committed(&checkpoint);
                tell("saved");
                return Ok(());
            }
            // A commit whose answer was lost: what it covered is done.
            SaveOutcome::Behind { stored } => {
                transaction.rollback().await?;
                let done = stored.position.finished();
                let left = events.iter().position(|event| Some(event.sequence) > done);
                events = left.map_or(&[], |left| &events[left..]);
            }
            // Another host goes on from where the table is.
            SaveOutcome::Fenced { .. } => {
                transaction.rollback().await?;
                return Err("another host owns this partition now".into());
            }
        }
    }
    Ok(())
}

async fn count(pool: &PgPool) -> Result<u64, BoxError> {
    let row = sqlx::query("SELECT count(*) AS rows FROM readings.results").fetch_one(pool).await?;
    Ok(u64::try_from(row.try_get::<i64, _>("rows")?)?)
}

/// The table must be what was sent, in number and in every value.
async fn compare(pool: &PgPool, readings_each: u64) -> Result<(), BoxError> {
    let all = "SELECT sensor, number, reading FROM readings.results ORDER BY sensor, number";
    let rows = sqlx::query(all).fetch_all(pool).await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let value = |name| row.try_get::<i64, _>(name);
        found.push((value("sensor")?, value("number")?, value("reading")?));
    }
    let mut expected = Vec::with_capacity(rows.len());
    for sensor in 0..SENSORS {
        for number in 0..readings_each {
            expected.push((i64::from(sensor), number as i64, reading(sensor, number) as i64));
        }
    }
    match found.iter().zip(&expected).find(|(found, expected)| found != expected) {
        Some((found, expected)) => Err(format!("found {found:?} instead of {expected:?}").into()),
        None if found.len() != expected.len() => {
            Err(format!("found {} rows instead of {}", found.len(), expected.len()).into())
        }
        None => Ok(()),
    }
}
