//! Conformance tests of seeks: an operator moves the position, and the owner must notice.

#![allow(missing_docs, reason = "the name of a property is its promise")]

use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::checkpoint::Position;
use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::store::RenewalOutcome;

use super::StoreFixture;
use super::first_calls::{LEASE, P, Scene, at_once, finished, host};

/// The number of races between a seek and saves.
const ROUNDS: u32 = 8;

pub async fn a_seek_takes_a_new_epoch_and_leaves_no_owner(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    let before = scene.lease(P).await;
    let position = Position::Start(StartPosition::Latest);
    let epoch = scene.seek(P, position.clone()).await;
    assert!(epoch > token.epoch);
    let view = scene.view().await;
    let lease = view.lease(P).unwrap();
    assert_eq!((&lease.owner, lease.epoch), (&None, epoch));
    assert_ne!(lease.version, before.version);
    let checkpoint = view.checkpoint(P).unwrap();
    assert_eq!((&checkpoint.position, checkpoint.epoch), (&position, epoch));
    assert!(matches!(scene.renew(&token).await, RenewalOutcome::Lost { .. }));
}

pub async fn a_seek_may_move_back(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    scene.saved(&token, finished(900)).await;
    for position in [finished(3), Position::Start(StartPosition::Earliest)] {
        scene.seek(P, position.clone()).await;
        assert_eq!(scene.position(P).await, Some(position));
    }
    let token = scene.claim(P, "b").await;
    scene.saved(&token, finished(0)).await;
}

pub async fn a_seek_names_who_may_still_be_at_work(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    scene.claim(P, "a").await;
    scene.seek(P, finished(3)).await;
    let lease = scene.lease(P).await;
    assert_eq!(lease.previous_owner, Some(host("a")));
    assert!(
        lease.takeover_delay > Duration::ZERO && lease.takeover_delay <= LEASE + scene.resolution(),
        "{:?}",
        lease.takeover_delay
    );
    // Neither a second seek nor the next claim informs that owner.
    scene.seek(P, finished(4)).await;
    scene.claim(P, "b").await;
    let lease = scene.lease(P).await;
    assert_eq!(lease.previous_owner, Some(host("a")));
    assert!(lease.takeover_delay > Duration::ZERO);
}

pub async fn a_seek_on_a_partition_without_records_is_fine(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let epoch = scene.seek(P, finished(8)).await;
    assert!(epoch > Epoch::NONE);
    let lease = scene.lease(P).await;
    assert_eq!((lease.owner, lease.previous_owner, lease.takeover_delay), (None, None, Duration::ZERO));
    assert_eq!(scene.position(P).await, Some(finished(8)));
    assert!(scene.claim(P, "a").await.epoch > epoch);
}

pub async fn of_a_seek_and_a_save_at_once_the_seek_stands(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    if !scene.capabilities().fences_checkpoints {
        return;
    }
    for partition in (0..ROUNDS).map(PartitionId) {
        let token = scene.claim(partition, "a").await;
        let (person, owner) = (scene.clone(), scene.clone());
        let mut calls: Vec<BoxFuture<'static, ()>> = vec![
            Box::pin(async move {
                person.seek(partition, finished(10)).await;
            }),
            Box::pin(async move {
                owner.save(&token, &finished(900)).await;
            }),
        ];
        if partition.0 % 2 == 1 {
            calls.reverse();
        }
        at_once(calls).await;
        assert_eq!(scene.position(partition).await, Some(finished(10)));
    }
}
