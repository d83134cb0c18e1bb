//! Tests that kill the example `exactly_once` many times: the table of results equals the sent events, row
//! by row.
//!
//! Five kills, or as many as EPHOR_EXACTLY_ONCE_KILLS says.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use ephor_stores::postgres::sqlx::Row;

use crate::child_process::{ChildProcess, orders, say};
use crate::fixture::{database, sql, wait};
use crate::server::shared;

#[path = "../../examples/exactly_once.rs"]
#[allow(dead_code, reason = "the example's own entrance")]
mod example;

/// One kill after at most so many steps, of which each batch of ten has two.
const MAX_STEPS: u64 = 60;

/// So long does a life take at most until it does something: the lease of the one before must run out.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn whatever_is_killed_every_event_counts_exactly_once() {
    let kills: u64 =
        std::env::var("EPHOR_EXACTLY_ONCE_KILLS").ok().map_or(5, |text| text.parse().expect("a number"));
    // Enough that no life gets to the end: half of the steps of all lives save a batch of ten.
    let readings_each = kills * MAX_STEPS * 10 / 4 + 100;
    shared();
    let url = wait(database());
    let folder = tempfile::tempdir().unwrap();
    let orders = format!("{readings_each} {url}");
    let mut random = fastrand::Rng::new();
    let seed = random.get_seed();
    println!("seed {seed}");
    let mut lives = 0;
    loop {
        let mut child = ChildProcess::start("exactly_once::the_program", folder.path(), &orders);
        let mut steps = (lives < kills).then(|| random.u64(1..=MAX_STEPS));
        let mut done = None;
        while steps != Some(0) && done.is_none() {
            match child.words.recv_timeout(PATIENCE) {
                Ok(word) if word.starts_with("done") => done = Some(word),
                Ok(word) => {
                    assert!(!word.starts_with("failed"), "{word}");
                    if word.starts_with("sav") {
                        steps = steps.map(|steps| steps - 1);
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("life {lives} does nothing"),
                Err(RecvTimeoutError::Disconnected) => panic!("life {lives} ended by itself"),
            }
        }
        if let Some(done) = done {
            assert_eq!(done, format!("done {}", readings_each * 4));
            assert!(child.stop().success());
            break;
        }
        child.kill();
        lives += 1;
    }
    assert_eq!(lives, kills, "it came to its end before it was killed as often as it should be");
    let rows = wait(sql(
        &url,
        "SELECT count(*) AS all, count(DISTINCT (sensor, number)) AS different \
                               FROM readings.results",
    ));
    let all: i64 = rows[0].get("all");
    assert_eq!((all, rows[0].get::<i64, _>("different")), (readings_each as i64 * 4, all));
    println!("{kills} kills, {all} readings, each in the table exactly once");
}

/// Not a test: the part of the process that is killed.
#[test]
fn the_program() {
    let Some((folder, orders)) = orders() else { return };
    let (readings_each, url) = orders.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let run = example::run(url, &folder, readings_each.parse().unwrap(), Arc::new(say));
    match runtime.block_on(run) {
        Ok(rows) => say(&format!("done {rows}")),
        Err(error) => say(&format!("failed: {error}")),
    }
}
