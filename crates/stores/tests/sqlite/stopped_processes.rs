//! Tests that a process that is suspended (SIGSTOP) at random moments while it writes does not block other
//! processes; if it holds the write lock, their errors name it.
//!
//! `EPHOR_STORE_STOPS` says how often (100), `EPHOR_STORE_SEED` where the moments come from.

use std::time::{Duration, Instant};

use ephor_core::ids::PartitionId;
use ephor_core::store::{SaveOutcome, StoreError};
use ephor_stores::sqlite::{SqliteOptions, SqliteStore};

use crate::child_process::{ChildProcess, orders, say};
use crate::fixture::{Folder, P, claim, end_with_the_parent, next, save};
use crate::locks::{go_on, stop};

const BUSY_WAIT: Duration = Duration::from_millis(200);

/// The wait for the lock, and what else a step takes on a busy machine.
const BOUND: Duration = Duration::from_secs(10);

/// Not a test of its own.
#[test]
fn write_as_a_child() {
    let Some((folder, _)) = orders() else { return };
    end_with_the_parent();
    let store = SqliteStore::open(folder.join("ephor.db")).unwrap();
    let token = claim(&store, PartitionId(4), "child");
    say("writing");
    for sequence in 0.. {
        // Others take the lock, too.
        match save(&store, &token, sequence) {
            Ok(saved) => assert!(matches!(saved, SaveOutcome::Saved(_)), "{saved:?}"),
            Err(error) => assert!(matches!(error, StoreError::Unavailable(_)), "{error}"),
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a process is stopped at a moment of real time")]
fn whoever_is_stopped_does_not_stop_the_others() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (stops, seed) = (number("EPHOR_STORE_STOPS").unwrap_or(100), number("EPHOR_STORE_SEED").unwrap_or(1));
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = Folder::new();
    let options = SqliteOptions { busy_wait: BUSY_WAIT, ..SqliteOptions::default() };
    let store = SqliteStore::open_with(folder.database(), options).unwrap();
    let token = claim(&store, P, "parent");
    let child = ChildProcess::start("stopped_processes::write_as_a_child", folder.path(), "");
    assert_eq!(next(&child.words), "writing");
    let process = child.child.id();
    let (mut held, mut longest, mut sequence) = (0, Duration::ZERO, 0);
    for _ in 0..stops {
        std::thread::sleep(Duration::from_micros(random.u64(..5_000)));
        stop(process);
        let since = Instant::now();
        let saved = save(&store, &token, sequence);
        let took = since.elapsed();
        go_on(process);
        assert!(took < BOUND, "{took:?}");
        match saved {
            Ok(saved) => {
                assert!(matches!(saved, SaveOutcome::Saved(_)), "{saved:?}");
                sequence += 1;
                longest = longest.max(took);
            }
            Err(error) => {
                held += 1;
                let advice = format!("is stopped: continue it (kill -CONT {process})");
                assert!(error.to_string().contains(&advice), "{error}");
            }
        }
    }
    println!(
        "{stops} stops, seed {seed}: {held} held the write lock and were named; else at most {longest:?}"
    );
}
