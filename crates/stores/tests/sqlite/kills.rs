//! Tests of processes that work at random on one file, or create it, and are killed at random moments: no
//! epoch is used twice, no checkpoint moves back, no fenced save is stored, acknowledged writes are kept, and
//! the file opens.
//!
//!   parent ─start─► children: each says what was acknowledged before its next step
//!      ▲                │
//!      └──── SIGKILL ───┘ the parent reads the file and compares; then the next child
//!
//! `EPHOR_STORE_KILLS` says how many (20), `EPHOR_STORE_SEED` where the moments come from.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ephor_core::history::{ChangeReason, OwnershipChange};
use ephor_core::ids::PartitionId;
use ephor_core::lease::{
    ClaimCause, ClaimRequest, LeaseToken, ReleaseCause, ReleaseRequest, TransferRequest,
};
use ephor_core::store::{
    ClaimOutcome, GiveUpOutcome, RenewalOutcome, SaveOutcome, SaveRequest, Store, StoreError, View,
};
use ephor_stores::sqlite::SqliteStore;

use crate::child_process::{ChildProcess, orders, say};
use crate::fixture::{Folder, LEASE, PATIENCE, end_with_the_parent, finished, group, host, wait};

const CHILDREN: usize = 3;
const PARTITIONS: u32 = 3;

/// A position that only a save which must be refused ever names.
const FORBIDDEN: u64 = 1 << 40;

/// Not a test of its own: what a child does until it is killed.
#[test]
fn work_as_a_child() {
    let Some((folder, orders)) = orders() else { return };
    end_with_the_parent();
    let (seed, name) = orders.split_once(' ').unwrap();
    Child::new(&folder, name, seed.parse().unwrap()).run();
}

struct Child {
    store: SqliteStore,
    name: String,
    random: fastrand::Rng,
    /// Tokens whose time is over.
    old: Vec<LeaseToken>,
}

impl Child {
    fn new(folder: &Path, name: &str, seed: u64) -> Self {
        let store = SqliteStore::open(folder.join("ephor.db")).unwrap();
        Self { store, name: name.to_owned(), random: fastrand::Rng::with_seed(seed), old: Vec::new() }
    }

    fn run(mut self) {
        loop {
            // The lock may be held for too long where everybody is in a hurry.
            match self.step() {
                Err(StoreError::Unavailable(why)) => say(&format!("unavailable {why}")),
                other => other.unwrap(),
            }
        }
    }

    fn step(&mut self) -> Result<(), StoreError> {
        let partition = PartitionId(self.random.u32(..PARTITIONS));
        let view = wait(self.store.view(&group()))?;
        let lease = view.lease(partition);
        let token = lease.and_then(|lease| lease.token()).filter(|token| token.owner == host(&self.name));
        let Some(token) = token else {
            self.save_too_late(&view)?;
            // Now and then what is owned is taken away, as if it had expired.
            let free = lease.is_none_or(|lease| lease.owner.is_none());
            return if free || self.random.u8(..4) == 0 { self.claim(&view, partition) } else { Ok(()) };
        };
        say(&format!("have {partition} {}", token.epoch));
        let done = view.checkpoint(partition).and_then(|it| it.position.finished()).map_or(0, |it| it.0);
        match self.random.u8(..10) {
            0 => self.release(token),
            1 | 2 => self.hand_over(token),
            3 | 4 => self.renew(&token),
            _ => self.save(&token, done + 1),
        }
    }

    fn claim(&mut self, view: &View, partition: PartitionId) -> Result<(), StoreError> {
        let seen = view.lease(partition).map(|lease| lease.version.clone());
        let above = ephor_core::epoch::Epoch::NONE;
        let cause = ClaimCause::Expired;
        let request = ClaimRequest { partition, host: host(&self.name), duration: LEASE, seen, above, cause };
        if let ClaimOutcome::Won { token, .. } = wait(self.store.claim(&group(), &request))? {
            say(&format!("won {partition} {}", token.epoch));
        }
        Ok(())
    }

    fn save(&mut self, token: &LeaseToken, sequence: u64) -> Result<(), StoreError> {
        let request = SaveRequest::new(token, &finished(sequence), None);
        if let SaveOutcome::Saved(_) = wait(self.store.save(&group(), &request))? {
            say(&format!("saved {} {sequence}", token.partition));
        }
        Ok(())
    }

    fn renew(&mut self, token: &LeaseToken) -> Result<(), StoreError> {
        let answers = wait(self.store.renew(&group(), LEASE, std::slice::from_ref(token)))?;
        if matches!(answers[0], RenewalOutcome::Lost { .. }) {
            self.old.push(token.clone());
        }
        Ok(())
    }

    fn hand_over(&mut self, token: LeaseToken) -> Result<(), StoreError> {
        let to = host(&format!("child-{}", self.random.usize(..CHILDREN)));
        let request = TransferRequest { token: token.clone(), to, duration: LEASE, checkpoint_saved: true };
        if wait(self.store.transfer(&group(), &request))? == GiveUpOutcome::Done {
            say(&format!("gave {} {}", token.partition, token.epoch));
            self.old.push(token);
        }
        Ok(())
    }

    fn release(&mut self, token: LeaseToken) -> Result<(), StoreError> {
        let cause = ReleaseCause::Shutdown;
        let request = ReleaseRequest { token: token.clone(), cause, successor: None, checkpoint_saved: true };
        wait(self.store.release(&group(), &request))?;
        self.old.push(token);
        Ok(())
    }

    /// A save under an epoch that is certainly over.
    fn save_too_late(&mut self, view: &View) -> Result<(), StoreError> {
        let Some(token) = self.old.pop() else { return Ok(()) };
        if view.lease(token.partition).is_some_and(|lease| lease.epoch > token.epoch) {
            let request = SaveRequest::new(&token, &finished(FORBIDDEN), None);
            let late = wait(self.store.save(&group(), &request))?;
            assert!(matches!(late, SaveOutcome::Fenced { epoch } if epoch > token.epoch), "{late:?}");
            say("fenced 0 0");
        }
        Ok(())
    }
}

/// The acknowledged changes of all children so far.
#[derive(Default)]
struct AcknowledgedChanges {
    owners: BTreeMap<(u32, u64), String>,
    epochs: [u64; PARTITIONS as usize],
    saved: [u64; PARTITIONS as usize],
    seen: [u64; PARTITIONS as usize],
    counts: BTreeMap<String, usize>,
}

impl AcknowledgedChanges {
    fn take_down(&mut self, child: &str, word: &str) {
        let mut parts = word.split(' ');
        let what = parts.next().unwrap();
        *self.counts.entry(what.to_owned()).or_default() += 1;
        if what == "unavailable" {
            return;
        }
        let numbers: Vec<u64> = parts.map(|part| part.parse().unwrap()).collect();
        let (partition, number) = (numbers[0] as usize, numbers[1]);
        match what {
            "won" | "have" => {
                let owner =
                    self.owners.entry((numbers[0] as u32, number)).or_insert_with(|| child.to_owned());
                assert_eq!(owner, child, "epoch {number} of partition {partition} has two owners");
                self.epochs[partition] = self.epochs[partition].max(number);
            }
            "gave" => self.epochs[partition] = self.epochs[partition].max(number + 1),
            "saved" => self.saved[partition] = self.saved[partition].max(number),
            "fenced" => {}
            other => panic!("{other}"),
        }
    }

    fn check(&mut self, store: &SqliteStore) {
        let view = wait(store.view(&group())).unwrap();
        assert_eq!(view.damaged, Vec::<String>::new());
        for id in 0..PARTITIONS {
            let (index, partition) = (id as usize, PartitionId(id));
            let stored =
                view.checkpoint(partition).and_then(|it| it.position.finished()).map_or(0, |it| it.0);
            assert!(stored < FORBIDDEN, "a save that was fenced has landed");
            assert!(stored >= self.saved[index], "{stored} is stored, {} acknowledged", self.saved[index]);
            assert!(stored >= self.seen[index], "{partition:?} moved back to {stored}");
            self.seen[index] = stored;
            let epoch = view.lease(partition).map_or(0, |lease| lease.epoch.get());
            assert!(epoch >= self.epochs[index], "epoch {epoch}, {} acknowledged", self.epochs[index]);
            self.check_history(&wait(store.history(&group(), Some(partition), 1000)).unwrap());
        }
    }

    /// Newest first: every change of owner has taken an epoch of its own, in order.
    fn check_history(&self, history: &[OwnershipChange]) {
        for pair in history.windows(2) {
            let (newer, older) = (&pair[0], &pair[1]);
            assert!(newer.at >= older.at, "{newer:?} {older:?}");
            match newer.reason {
                ChangeReason::Released(_) => assert_eq!(newer.epoch, older.epoch),
                _ => assert!(newer.epoch > older.epoch, "{newer:?} {older:?}"),
            }
            assert_eq!(newer.from, older.to, "{newer:?} {older:?}");
        }
        for change in history {
            let owner = self.owners.get(&(change.partition.0, change.epoch.get()));
            if let (Some(acknowledged), Some(owner)) = (owner, &change.to) {
                assert_eq!(owner, &host(acknowledged), "{change:?}");
            }
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a process is killed at a moment of real time")]
fn what_is_acknowledged_survives_any_number_of_kills() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (kills, seed) = (number("EPHOR_STORE_KILLS").unwrap_or(20), number("EPHOR_STORE_SEED").unwrap_or(1));
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = Folder::new();
    let store = folder.open();
    let name = |index: usize| format!("child-{index}");
    let mut start = |index| {
        let orders = format!("{} {}", random.u64(..), name(index));
        (
            ChildProcess::start("kills::work_as_a_child", folder.path(), &orders),
            random.u64(..150),
            random.u8(..5) == 0,
        )
    };
    let mut children: Vec<_> = (0..CHILDREN).map(&mut start).collect();
    let mut changes = AcknowledgedChanges::default();
    for kill in 0..kills {
        let index = kill as usize % CHILDREN;
        let (child, delay, early) = &mut children[index];
        if *early {
            // While it opens the file, perhaps.
            std::thread::sleep(Duration::from_millis(*delay / 10));
        } else if let Ok(first) = child.words.recv_timeout(PATIENCE) {
            changes.take_down(&name(index), &first);
            std::thread::sleep(Duration::from_millis(*delay));
        }
        child.kill();
        for (index, (child, ..)) in children.iter().enumerate() {
            // All of the dead one, and what the others have said by now: the file holds more, never less.
            let said = if index == kill as usize % CHILDREN {
                child.words.iter().collect::<Vec<_>>()
            } else {
                child.words.try_iter().collect()
            };
            said.iter().for_each(|word| changes.take_down(&name(index), word));
        }
        changes.check(&store);
        children[index] = start(index);
    }
    for (index, (child, ..)) in children.iter_mut().enumerate() {
        child.kill();
        child.words.iter().for_each(|word| changes.take_down(&name(index), &word));
    }
    changes.check(&store);
    changes.check(&folder.open());
    let health: String = folder.sql().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(health, "ok");
    assert!(changes.saved.iter().all(|saved| *saved > 0), "{:?}", changes.saved);
    println!("{kills} kills, seed {seed}: {:?}", changes.counts);
}

/// Not a test of its own: creates the file, until it is killed or has done it.
#[test]
fn create_as_a_child() {
    let Some((folder, _)) = orders() else { return };
    say("begin");
    let _store = SqliteStore::open(folder.join("ephor.db")).unwrap();
    say("created");
    crate::child_process::wait_for_the_end();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a process is killed at a moment of real time")]
fn what_a_kill_leaves_of_a_file_that_was_being_created_opens() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut created = 0;
    for _ in 0..20 {
        let folder = Folder::new();
        let mut child = ChildProcess::start("kills::create_as_a_child", folder.path(), "");
        assert_eq!(crate::fixture::next(&child.words), "begin");
        std::thread::sleep(Duration::from_micros(random.u64(..30_000)));
        child.kill();
        created += child.words.iter().count();
        let store = folder.open();
        crate::fixture::claim(&store, PartitionId(0), "a");
    }
    println!("20 kills while the file was created, {created} of them too late");
}

#[test]
fn many_processes_may_create_the_file_at_once() {
    for _ in 0..5 {
        let folder = Folder::new();
        let children: Vec<_> =
            (0..4).map(|_| ChildProcess::start("kills::create_as_a_child", folder.path(), "")).collect();
        let store = folder.open();
        for child in &children {
            assert_eq!(crate::fixture::next(&child.words), "begin");
            assert_eq!(crate::fixture::next(&child.words), "created");
        }
        crate::fixture::claim(&store, PartitionId(0), "a");
    }
}
