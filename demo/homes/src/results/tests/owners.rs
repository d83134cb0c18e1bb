//! Tests with owners that start, stop, pause and die, on storage that fails: one history, and the correct
//! state.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use super::faulty_store::{FaultyStore, Rates};
use super::*;

const EVENTS: u64 = 60;
const OWNERS: u64 = 5;

/// The data of hub and store.
struct World {
    log: Log,
    snapshot_every: u64,
    /// The newest owner's epoch.
    claimed: Cell<u64>,
    checkpoint: Cell<u64>,
    random: Cell<u64>,
    fenced: Cell<u64>,
    done: Cell<bool>,
}

impl World {
    fn below(&self, limit: u64) -> u64 {
        let mut random = fastrand::Rng::with_seed(self.random.get());
        let number = random.u64(0..limit);
        self.random.set(random.u64(..));
        number
    }

    async fn wait(&self, most: u64) {
        for _ in 0..self.below(most + 1) {
            tokio::task::yield_now().await;
        }
    }

    /// Polls a call some times, and drops it if it is not done by then.
    async fn impatiently<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let mut polls = if self.below(4) == 0 { self.below(12) } else { u64::MAX };
        let mut call = pin!(call);
        std::future::poll_fn(|context| match call.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if polls == 0 => Poll::Ready(None),
            Poll::Pending => {
                polls -= 1;
                Poll::Pending
            }
        })
        .await
    }
}

/// One owner, which does not hear that there is a newer one; the last one goes on until everything is written.
async fn own(world: &World, epoch: u64) {
    world.wait(epoch * 120).await;
    world.claimed.set(world.claimed.get().max(epoch));
    let is_last = epoch == OWNERS;
    let mut lives = 3 + world.below(30);
    while is_last || lives > 0 {
        lives = lives.saturating_sub(1);
        match world
            .impatiently(ResultWriter::<OrderSensitiveState>::open(
                world.log.clone(),
                epoch,
                &format!("host-{epoch}"),
            ))
            .await
        {
            Some(Ok(writer)) => {
                match keep(world, writer.with_snapshot_every(world.snapshot_every), epoch, &mut lives).await {
                    Ended::Done => return world.done.set(true),
                    Ended::Fenced => break,
                    Ended::Dead => {}
                }
            }
            Some(Err(ResultWriterError::Fenced { epoch: newer, mine, .. })) => {
                assert!(newer > mine);
                break;
            }
            Some(Err(ResultWriterError::Log(_))) | None => {}
        }
    }
    assert!(!is_last, "the newest owner is never fenced");
    world.fenced.set(world.fenced.get() + 1);
}

enum Ended {
    Done,
    Fenced,
    Dead,
}

async fn keep(
    world: &World,
    mut writer: ResultWriter<OrderSensitiveState>,
    epoch: u64,
    lives: &mut u64,
) -> Ended {
    let mut next = world.checkpoint.get() + 1;
    loop {
        if world.below(12) == 0 || *lives == 0 && epoch != OWNERS {
            return Ended::Dead;
        }
        *lives = lives.saturating_sub(1);
        let end = (next + world.below(6)).min(EVENTS);
        fold(&mut writer, next..=end);
        if world.below(3) == 0 {
            // The batch comes again.
            fold(&mut writer, next..=end);
        }
        world.wait(20).await;
        match world.impatiently(writer.flush()).await {
            Some(Ok(flushed)) => {
                let last = flushed.last.unwrap();
                assert!(last >= end, "flushed up to {last}, folded up to {end}");
                assert!(!writer.is_waiting());
                next = end + 1;
                if epoch == world.claimed.get() {
                    world.checkpoint.set(world.checkpoint.get().max(end));
                }
                if end == EVENTS && epoch == OWNERS {
                    return Ended::Done;
                }
                next = next.min(EVENTS);
            }
            Some(Err(ResultWriterError::Fenced { epoch: newer, mine, .. })) => {
                assert!(newer > mine && mine == epoch);
                return Ended::Fenced;
            }
            Some(Err(ResultWriterError::Log(_))) | None => {}
        }
    }
}

/// Sees only states that are right, in order.
async fn follow(world: &World) -> OrderSensitiveState {
    let mut follower = Follower::<OrderSensitiveState>::new(world.log.clone());
    let mut seen = 0;
    while follower.state().last() < Some(EVENTS) || !world.done.get() {
        let before = follower.number();
        match world.impatiently(follower.next()).await {
            Some(Ok(Some(News::Update(entry)))) => {
                assert_eq!((entry.number, follower.number()), (before + 1, before + 1));
                assert_eq!(Some(entry.last), follower.state().last());
            }
            Some(Ok(Some(News::Whole))) => assert!(follower.number() >= before),
            _ => {}
        }
        assert!(follower.state().is_right(), "{:?}", follower.state());
        assert!(follower.state().last().unwrap_or(0) >= seen, "never back");
        seen = follower.state().last().unwrap_or(0);
        world.wait(if world.below(10) == 0 { 3_000 } else { 10 }).await;
    }
    follower.state().clone()
}

async fn play(seed: u64, rates: Rates, snapshot_every: u64) -> (World, OrderSensitiveState) {
    let log = log_in(&FaultyStore::store(rates, seed));
    let zero = || Cell::new(0);
    let (claimed, checkpoint, fenced) = (zero(), zero(), zero());
    let random = Cell::new(seed ^ 0x5eed);
    let world = World { log, snapshot_every, claimed, checkpoint, random, fenced, done: Cell::new(false) };
    let owners = futures_util::future::join_all((1..=OWNERS).map(|epoch| own(&world, epoch)));
    let (_, tape) = tokio::join!(owners, follow(&world));
    assert_eq!(tape.last(), Some(EVENTS), "seed {seed}");
    assert_eq!(world.checkpoint.get(), EVENTS, "seed {seed}");
    (world, tape)
}

/// All of them, as long as nothing is deleted.
async fn history(log: &Log) -> Vec<Entry<OrderSensitiveState>> {
    let mut entries = Vec::new();
    loop {
        match log.update(entries.len() as u64 + 1).await {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => return entries,
            Err(LogError::Storage { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

const CALM: Rates = Rates { fails: 0, deaf: 0, forgets: 0, waits: 3 };
const WILD: Rates = Rates { fails: 10, deaf: 10, forgets: 10, waits: 3 };

#[tokio::test]
async fn all_owners_write_one_history() {
    let mut replayed = 0;
    for seed in 0..150 {
        let rates = if seed % 2 == 0 { CALM } else { WILD };
        let (world, _) = play(seed, rates, u64::MAX).await;
        let entries = history(&world.log).await;
        let epochs: Vec<u64> = entries.iter().map(|entry| entry.epoch).collect();
        assert!(epochs.is_sorted(), "seed {seed}: a zombie wrote after a newer owner: {epochs:?}");
        assert!(entries.iter().map(|entry| entry.last).is_sorted(), "seed {seed}");
        assert!(entries.iter().all(|entry| entry.update.is_right()), "seed {seed}");
        replayed += entries.last().unwrap().update.replayed;
    }
    assert!(replayed > 0, "owners overlapped, or this proves nothing");
}

#[tokio::test]
async fn a_follower_sees_the_same_when_tidying_runs_ahead_of_it() {
    let mut fenced = 0;
    for seed in 0..150 {
        let rates = if seed % 2 == 0 { CALM } else { WILD };
        let (world, tape) = play(1_000 + seed, rates, 1 + seed % 4).await;
        let loaded = loop {
            if let Ok(loaded) = super::super::load::load::<OrderSensitiveState>(&world.log).await {
                break loaded;
            }
        };
        assert_eq!(loaded.state, tape, "seed {seed}");
        fenced += world.fenced.get();
    }
    assert!(fenced > 0, "an owner was fenced, or this proves nothing");
}

#[tokio::test]
async fn an_answer_that_is_lost_is_no_second_write() {
    for seed in 0..200 {
        let log = log_in(&FaultyStore::store(Rates { deaf: 40, forgets: 40, ..Rates::default() }, seed));
        let mut writer = loop {
            if let Ok(writer) = ResultWriter::<OrderSensitiveState>::open(log.clone(), 1, "host-1").await {
                break writer;
            }
        };
        for sequence in 1..=5 {
            fold(&mut writer, sequence..=sequence);
            while writer.flush().await.is_err() {}
        }
        let entries = history(&log).await;
        let numbers: Vec<(u64, u64, u64)> =
            entries.iter().map(|entry| (entry.number, entry.first, entry.last)).collect();
        assert_eq!(numbers, [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4), (5, 5, 5)], "seed {seed}");
        assert_eq!(entries[4].update.replayed, 0, "seed {seed}: nothing was folded twice");
    }
}
