//! Benchmark of a large fleet: many hosts in a few processes on one PostgreSQL, of which one process is
//! killed.
//!
//! ```text
//!   this process ── hub in memory, gateway ◄── AMQP ──┐
//!        │ watches the leases, notes every event      ├── processes with hosts, a store each
//!        └──────────► PostgreSQL ◄────────────────────┘
//! ```
//!
//! It fails if the fleet does not settle, before or after the kill, or if an event was not read.

mod events_read;
mod hub;
mod members;
mod options;
mod process;
mod server_statistics;
mod wait_until_balanced;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ephor::{BoxError, Store};
use ephor_stores::postgres::{PostgresOptions, PostgresStore};

use self::events_read::{Balance, EventsRead};
use self::hub::{ROUND, Source};
use self::members::Members;
use self::options::Options;
use self::wait_until_balanced::{Balanced, Watch};
use super::database::{Database, NOT_INSTALLED};
use crate::figures::{per_second, progress, thousands, time};
use crate::machine::{self, now, pause, since};

pub(crate) use self::process::process;

/// The command that makes this program one of the processes.
pub(crate) const PROCESS: &str = "fleet-process";

/// The time after which an unread event counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);

fn process_name(number: usize) -> String {
    format!("p{number}")
}

pub(crate) fn run(words: &[&str]) -> Result<bool, BoxError> {
    let options = Options::parse(words)?;
    let Some(database) = Database::find(options.postgres.as_deref()) else {
        println!("{NOT_INSTALLED}");
        return Ok(false);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let source = Source::new(options.partitions)?;
    let enough = AtomicBool::new(false);
    let lost = runtime.block_on(async {
        let (listener, connection) = Source::listen()?;
        let story = async {
            let lost = play(&options, &database, &connection, &source, &enough).await?;
            Ok::<_, BoxError>(lost)
        };
        tokio::select! {
            biased;
            ended = story => ended,
            failed = source.serve(listener) => failed.and(Err("the gateway ended".into())),
            failed = send(&source, &enough) => failed.and(Err("the sender ended".into())),
        }
    });
    match lost {
        Ok(balance) => Ok(balance.lost == 0),
        Err(error) => {
            println!("fleet: FAILED: {error}");
            Ok(false)
        }
    }
}

/// Sends until `enough`, and then waits forever.
async fn send(source: &Source, enough: &AtomicBool) -> Result<(), BoxError> {
    source.send(|| enough.load(Ordering::SeqCst)).await?;
    std::future::pending().await
}

async fn play(
    options: &Options,
    database: &Database,
    connection: &str,
    source: &Source,
    enough: &AtomicBool,
) -> Result<Balance, BoxError> {
    let spread = options.spread();
    let observer = server_statistics::as_observer(&database.url);
    let store = PostgresStore::connect(&observer, PostgresOptions::default()).await?;
    let events_read = Arc::new(EventsRead::new(options.partitions));
    introduce(options, &spread);

    progress("fleet: starting");
    let began = now();
    let mut members = Members::start(&spread, options.pace, &database.url, connection, &events_read)?;
    let group = loop {
        if let Some(group) = store.groups().await?.pop() {
            break group;
        }
        pause(Duration::from_millis(50)).await;
    };
    let partitions = options.partitions as usize;
    let watch =
        Watch { store: &store, group: &group, events_read: &events_read, partitions, pace: options.pace };
    let first = watch.settle(options.hosts, began, 0, None).await?;
    tell("start", &first, partitions);
    rest(options.pace.lease(), &observer, database.is_ours(), &members).await?;

    progress("fleet: killing a process");
    let (changes, orphans) = watch.before_kill(0).await?;
    let began = now();
    members.kill_first()?;
    let second = watch.settle(options.hosts - spread[0], began, changes, Some(0)).await?;
    tell(&format!("kill of {} hosts", spread[0]), &second, orphans);
    rest(options.pace.lease(), &observer, database.is_ours(), &members).await?;

    enough.store(true, Ordering::SeqCst);
    let balance = account(source, &events_read).await;
    close(options, &events_read, &balance, &first, &second);
    Ok(balance)
}

fn introduce(options: &Options, spread: &[usize]) {
    let manager = options.pace.manager();
    println!(
        "{} hosts in {} processes ({}), {} partitions, one PostgreSQL; leases of {}, renewed every {}, scans every \
         {} (fast {}); an event for each partition every {}",
        options.hosts,
        spread.len(),
        spread.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + "),
        options.partitions,
        time(manager.lease_duration),
        time(manager.renew_interval),
        time(manager.slow_scan),
        time(manager.fast_scan),
        time(ROUND)
    );
}

fn tell(phase: &str, balanced: &Balanced, needed: usize) {
    let or_never = |took: Option<Duration>| took.map_or("never".to_owned(), time);
    println!(
        "{phase}: all owned after {}, all read after {}, balanced and stable after {}; {} changes of owner, \
         {needed} needed",
        or_never(balanced.owned),
        or_never(balanced.read),
        time(balanced.still),
        balanced.changes
    );
}

/// Measures the cost of a fleet in which nothing changes.
async fn rest(time: Duration, url: &str, is_ours: bool, members: &Members) -> Result<(), BoxError> {
    let before = (server_statistics::look(url, is_ours).await?, members.processor(), own_processor(), now());
    pause(time).await;
    let after = (server_statistics::look(url, is_ours).await?, members.processor(), own_processor());
    let seconds = since(before.3).as_secs_f64();
    let percent =
        |before: Duration, after: Duration| after.saturating_sub(before).as_secs_f64() / seconds * 100.0;
    println!(
        "  at rest: {} connections; {} transactions; processor: server {:.0} %, hosts {:.0} %, hub {:.0} % of one core",
        after.0.connections,
        per_second((after.0.commits - before.0.commits) as f64 / seconds),
        percent(before.0.processor, after.0.processor),
        percent(before.1, after.1),
        percent(before.2, after.2)
    );
    Ok(())
}

fn own_processor() -> Duration {
    machine::cpu_time(std::process::id())
}

/// Waits until everything that was sent is read.
async fn account(source: &Source, events_read: &EventsRead) -> Balance {
    // A round that has begun is sent to its end.
    pause(ROUND * 2).await;
    let began = now();
    loop {
        let balance = events_read.balance(source.rounds.load(Ordering::SeqCst));
        if balance.lost == 0 || since(began) > PATIENCE {
            return balance;
        }
        pause(Duration::from_millis(200)).await;
    }
}

fn close(
    options: &Options,
    events_read: &EventsRead,
    balance: &Balance,
    first: &Balanced,
    second: &Balanced,
) {
    println!(
        "fleet: {} hosts, {} partitions: balanced in {}, after the kill in {}; {} events sent, {} lost, {} read again; \
         {} errors reported by hosts; load {}",
        options.hosts,
        options.partitions,
        time(first.still),
        time(second.still),
        thousands(balance.events),
        thousands(balance.lost),
        thousands(balance.repeated),
        events_read.errors(),
        machine::load_average()
    );
}
