//! Tests that kill processes at random moments under load, many times on one data folder: no event that was
//! acknowledged, or that a reader has seen, is lost, repeated or changed.
//!
//!   parent ─start─► child: opens, finds the last event of each sender, sends and reads
//!      ▲              │ says each acknowledgement before the next send
//!      └─── SIGKILL ──┘ the parent reads the log and compares; then the next child
//!
//! `EPHOR_KILLS` is the number of kills (20 by default), `EPHOR_KILLS_SEED` the seed of the random moments.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use ephor_hub::{Durability, LocalNamespace, verify_folder};

use crate::kill_helpers::acknowledged_events::{AcknowledgedEvents, Faults};
use crate::kill_helpers::child_process::{ChildProcess, orders};
use crate::kill_helpers::protocol::{Orders, Word};
use crate::kill_helpers::sender::{self, HUB};

const DEFAULT_KILLS: u32 = 20;
const SIGKILL: i32 = 9;

/// The moment of a kill, after the first acknowledgement.
const UNDER_LOAD: std::ops::Range<u64> = 20_000..300_000;
/// The moment of a kill, after the start of the process: while it opens the folder.
const WHILE_OPENING: std::ops::Range<u64> = 500..12_000;

#[test]
fn what_is_acknowledged_from_disk_survives_any_number_of_kills() {
    Test::new(Durability::Disk).run();
}

#[test]
fn what_is_acknowledged_from_the_page_cache_survives_any_number_of_kills() {
    Test::new(Durability::PageCache).run();
}

#[test]
fn what_a_kill_leaves_of_a_hub_or_a_segment_that_was_being_created_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    drop(LocalNamespace::open(folder.path(), sender::config(Durability::Disk)).unwrap());
    let hubs = folder.path().join("hubs");
    let hub = std::fs::read_dir(&hubs).unwrap().next().unwrap().unwrap().path();
    // The moments are too short for a random kill to find them in every run.
    std::fs::write(hub.join("00000000000000000002.log"), "").unwrap();
    std::fs::create_dir(hubs.join("unborn.0123456789abcdef")).unwrap();
    std::fs::write(hubs.join("unborn.0123456789abcdef/hub.json.new"), "{").unwrap();
    let verified = verify_folder(folder.path()).unwrap();
    assert_eq!(verified.len(), 1);
    assert!(verified[0].is_intact(), "{verified:#?}");
    let namespace = LocalNamespace::open(folder.path(), sender::config(Durability::Disk)).unwrap();
    assert_eq!((namespace.broken(), namespace.hubs_open().len()), (vec![], 1));
    assert_eq!(namespace.hub(HUB).unwrap().damage(), []);
}

/// Not a test of its own: what the child does, until it is killed or its input ends.
#[test]
fn send_and_read_as_a_child() {
    let Some((folder, orders)) = orders() else { return };
    sender::run(&folder, &Orders::read(&orders));
}

struct Test {
    durability: Durability,
    kills: u32,
    seed: u64,
    random: fastrand::Rng,
    folder: tempfile::TempDir,
    acknowledged_events: AcknowledgedEvents,
    runtime: tokio::runtime::Runtime,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    UnderLoad,
    WhileOpening,
    InGoodOrder,
}

impl Test {
    fn new(durability: Durability) -> Self {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
        let seed = number("EPHOR_KILLS_SEED").unwrap_or(1);
        Self {
            durability,
            kills: number("EPHOR_KILLS").map_or(DEFAULT_KILLS, |kills| kills as u32),
            seed,
            random: fastrand::Rng::with_seed(seed),
            folder: tempfile::tempdir().unwrap(),
            acknowledged_events: AcknowledgedEvents::new(durability == Durability::PageCache),
            runtime: tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap(),
        }
    }

    fn run(mut self) {
        let (mut kills, mut round) = (0, 0);
        while kills < self.kills {
            round += 1;
            let end = match self.random.u8(..10) {
                _ if round == 1 => End::WhileOpening,
                0 => End::InGoodOrder,
                1 | 2 => End::WhileOpening,
                _ => End::UnderLoad,
            };
            self.round(round, end);
            kills += u32::from(end != End::InGoodOrder);
            if self.random.u8(..3) == 0 {
                self.verify(round, end);
            }
            // Now and then the next process comes right behind the dead one, and finds what it left.
            if self.random.u8(..4) > 0 {
                let all = round % 20 == 0;
                self.check(round, end, all);
            }
        }
        self.check(round, End::UnderLoad, true);
        self.verify(round, End::InGoodOrder);
        let AcknowledgedEvents { acknowledged, .. } = self.acknowledged_events;
        let stored = self.acknowledged_events.events();
        eprintln!(
            "{}: {kills} kills, {acknowledged} events acknowledged, {stored} found, 0 lost, 0 repeated, 0 changed",
            self.durability
        );
        assert!(acknowledged > 100 * u64::from(kills), "that was no load");
    }

    /// One process from its start to its end.
    fn round(&mut self, round: u32, end: End) {
        let orders = Orders { durability: self.durability, round, seed: self.random.u64(..) };
        let mut child =
            ChildProcess::start("kills::send_and_read_as_a_child", self.folder.path(), &orders.text());
        let moment = match end {
            End::WhileOpening => WHILE_OPENING,
            End::UnderLoad | End::InGoodOrder => {
                let first = child.words.recv_timeout(Duration::from_secs(60));
                self.acknowledged_events.note(Word::read(&first.expect("the child stores something")));
                UNDER_LOAD
            }
        };
        wait(Duration::from_micros(self.random.u64(moment)));
        match end {
            End::InGoodOrder => assert!(child.stop().success(), "round {round}: the child failed"),
            _ => {
                let status = child.kill();
                assert_eq!(status.signal(), Some(SIGKILL), "round {round}: the child exited: {status}");
            }
        }
        child.words.iter().for_each(|word| self.acknowledged_events.note(Word::read(&word)));
    }

    /// Opens the folder at once, whoever had it before, and compares.
    fn check(&mut self, round: u32, end: End, all: bool) {
        let namespace = LocalNamespace::open(self.folder.path(), sender::config(self.durability)).unwrap();
        assert_eq!(namespace.broken(), [], "round {round}");
        let hub = namespace.hub(HUB).unwrap();
        let faults = match all {
            true => self.runtime.block_on(self.acknowledged_events.check_all(&hub)),
            false => self.runtime.block_on(self.acknowledged_events.check_new(&hub)),
        };
        let story = format!("round {round}, which ended {end:?}, seed {}", self.seed);
        if !faults.is_empty() || !hub.damage().is_empty() {
            let damage = hub.damage();
            let Faults { lost, repeated, changed, stories } = faults;
            let kept = keep(&mut self.folder);
            panic!(
                "{story}: {lost} lost, {repeated} repeated, {changed} changed; {stories:#?}; damage {damage:#?}; \
                 the folder is kept in {}",
                kept.display()
            );
        }
        if end == End::InGoodOrder {
            assert!(hub.recovery().clean, "{story}: {:?}", hub.recovery());
        }
        if self.durability == Durability::Disk {
            assert_eq!(hub.recovery().jumped, 0, "{story}");
        }
        namespace.close().unwrap();
    }

    /// Reads all files as they lie there: what a kill leaves is no damage.
    fn verify(&mut self, round: u32, end: End) {
        if !hubs_of(self.folder.path()) {
            return;
        }
        for hub in verify_folder(self.folder.path()).unwrap() {
            assert!(hub.is_intact(), "round {round}, which ended {end:?}, seed {}: {hub:#?}", self.seed);
        }
    }
}

/// Whether the process lived long enough to make the folder of the hubs.
fn hubs_of(folder: &Path) -> bool {
    folder.join("hubs").exists()
}

/// Leaves the folder to whoever looks for the reason.
fn keep(folder: &mut tempfile::TempDir) -> std::path::PathBuf {
    folder.disable_cleanup(true);
    folder.path().to_owned()
}

#[expect(clippy::disallowed_methods, reason = "another process works meanwhile, in real time")]
fn wait(time: Duration) {
    std::thread::sleep(time);
}
