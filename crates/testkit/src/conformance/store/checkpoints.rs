//! Conformance tests of checkpoints: they never move back, and a former owner cannot write them.

#![allow(missing_docs, reason = "the name of a property is its promise")]

use ephor_core::BoxFuture;
use ephor_core::checkpoint::Position;
use ephor_core::epoch::Epoch;
use ephor_core::ids::{LogId, PartitionId};
use ephor_core::lease::{ClaimCause, LeaseToken};
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::store::{ClaimOutcome, GiveUpOutcome, SaveOutcome, SaveRequest};

use super::StoreFixture;
use super::first_calls::{P, Scene, at_once, finished, timeless};

/// The number of races between saves and a claim.
const ROUNDS: u32 = 8;

/// The number of saves that race one claim.
const SAVES: u64 = 6;

pub async fn the_owner_saves_and_everybody_reads(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    assert_eq!(scene.view().await.checkpoints, []);
    for sequence in [0, 1, 41] {
        let SaveOutcome::Saved(checkpoint) = scene.save(&token, &finished(sequence)).await else {
            panic!("the owner may save");
        };
        assert_eq!((&checkpoint.position, checkpoint.epoch), (&finished(sequence), token.epoch));
        assert_eq!(scene.view().await.checkpoints, [(P, checkpoint)]);
    }
}

async fn assert_behind(scene: &Scene, token: &LeaseToken, position: Position) {
    let before = scene.view().await;
    let outcome = scene.save(token, &position).await;
    let stored = before.checkpoint(token.partition).unwrap().clone();
    assert_eq!(outcome, SaveOutcome::Behind { stored }, "saving {position:?}");
    assert_eq!(timeless(scene.view().await), timeless(before), "saving {position:?}");
}

pub async fn a_save_never_moves_back(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    scene.saved(&token, finished(10)).await;
    // As text, 9 comes after 10.
    for sequence in [9, 2, 0] {
        assert_behind(&scene, &token, finished(sequence)).await;
    }
    assert_behind(&scene, &token, Position::Start(StartPosition::Earliest)).await;
    assert_behind(&scene, &token, Position::Start(StartPosition::at(SequenceNumber(10)))).await;
    let next = scene.hand_over(&token, "b").await;
    assert_behind(&scene, &next, finished(9)).await;
    scene.saved(&next, finished(11)).await;
}

/// The owner may overwrite a position that does not exist, but nobody else.
pub async fn a_rewind_moves_back_for_the_owner_alone(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    scene.saved(&token, finished(100)).await;
    let position = Position::Start(StartPosition::Earliest);
    let rewind = SaveRequest { rewind: true, ..SaveRequest::new(&token, &position, None) };
    let outcome = scene.store.save(&scene.group, &rewind).await.unwrap();
    assert!(matches!(&outcome, SaveOutcome::Saved(saved) if saved.position == position), "{outcome:?}");
    scene.saved(&token, finished(4)).await;
    scene.hand_over(&token, "b").await;
    if scene.store.capabilities().fences_checkpoints {
        let late = scene.store.save(&scene.group, &rewind).await.unwrap();
        assert!(matches!(late, SaveOutcome::Fenced { .. }), "{late:?}");
        assert_eq!(scene.view().await.checkpoint(P).unwrap().position, finished(4));
    }
}

pub async fn a_save_does_not_fall_behind_where_a_person_said_to_start(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    scene.seek(P, Position::Start(StartPosition::at(SequenceNumber(100)))).await;
    let token = scene.claim(P, "a").await;
    assert_behind(&scene, &token, finished(98)).await;
    scene.saved(&token, finished(100)).await;
    scene.seek(P, Position::Start(StartPosition::Earliest)).await;
    let token = scene.claim(P, "a").await;
    scene.saved(&token, finished(0)).await;
}

pub async fn a_start_ahead_of_what_is_finished_is_saved(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    scene.saved(&token, finished(9)).await;
    for start in [10, 100].map(SequenceNumber) {
        scene.saved(&token, Position::Start(StartPosition::at(start))).await;
    }
    scene.saved(&token, Position::Start(StartPosition::after(SequenceNumber(100)))).await;
    assert_behind(&scene, &token, finished(99)).await;
    scene.saved(&token, finished(101)).await;
}

pub async fn an_equal_save_is_fine(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    let start = Position::Start(StartPosition::Latest);
    for position in [start.clone(), start, finished(4), finished(4)] {
        scene.saved(&token, position).await;
    }
    let next = scene.hand_over(&token, "b").await;
    scene.saved(&next, finished(4)).await;
    assert_eq!(scene.view().await.checkpoint(P).unwrap().epoch, next.epoch);
}

pub async fn in_another_log_there_is_no_back(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let (old, new) = (LogId::new("old"), LogId::new("new"));
    let token = scene.claim(P, "a").await;
    let first = scene.save_in(&token, &finished(900), Some(&old)).await;
    assert!(matches!(first, SaveOutcome::Saved(_)), "{first:?}");
    let back = scene.save_in(&token, &finished(3), Some(&old)).await;
    assert!(matches!(back, SaveOutcome::Behind { .. }), "{back:?}");
    let renewed = scene.save_in(&token, &finished(3), Some(&new)).await;
    assert!(matches!(renewed, SaveOutcome::Saved(_)), "{renewed:?}");
    let stored = scene.view().await.checkpoint(P).cloned().unwrap();
    assert_eq!((stored.position, stored.log), (finished(3), Some(new)));
}

pub async fn a_save_leaves_the_lease_alone(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    let takeover = scene.request(P, "b", ClaimCause::Expired).await;
    scene.saved(&token, finished(1)).await;
    assert_eq!(Some(scene.lease(P).await.version), takeover.seen);
    // An owner that saves but no longer renews can still be taken over.
    assert!(matches!(scene.try_claim(&takeover).await, ClaimOutcome::Won { .. }));
}

async fn assert_fenced(scene: &Scene, token: &LeaseToken, why: &str) {
    let before = scene.view().await;
    // Ahead of, equal to and behind the stored position: the fence is checked first.
    for sequence in [1_000, 50, 1] {
        let outcome = scene.save(token, &finished(sequence)).await;
        let SaveOutcome::Fenced { epoch } = outcome else { panic!("{why}: {outcome:?}") };
        if let Some(lease) = before.lease(token.partition) {
            assert_eq!(epoch, lease.epoch, "{why}");
        }
    }
    assert_eq!(timeless(scene.view().await), timeless(before), "{why}");
}

pub async fn a_late_save_of_an_earlier_owner_is_fenced(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    if !scene.capabilities().fences_checkpoints {
        return;
    }
    let first = scene.claim(P, "a").await;
    scene.saved(&first, finished(50)).await;
    let second = scene.hand_over(&first, "b").await;
    assert_fenced(&scene, &first, "after a transfer").await;
    scene.saved(&second, finished(50)).await;
    let third = scene.steal(P, "c").await;
    assert_fenced(&scene, &second, "after a steal").await;
    let fourth = scene.claim_as(P, "d", ClaimCause::Expired).await;
    assert_fenced(&scene, &third, "after a claim of an expired lease").await;
    scene.seek(P, finished(50)).await;
    assert_fenced(&scene, &fourth, "after a seek").await;
    let fifth = scene.claim(P, "a").await;
    assert_fenced(&scene, &first, "after the first owner is owner again").await;
    let sixth = scene.claim_as(P, "a", ClaimCause::AboveForeignReader).await;
    assert_fenced(&scene, &fifth, "after the owner claimed again").await;
    scene.saved(&sixth, finished(51)).await;
}

pub async fn a_save_in_an_epoch_to_come_is_fenced(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    if !scene.capabilities().fences_checkpoints {
        return;
    }
    let token = scene.claim(P, "a").await;
    scene.saved(&token, finished(50)).await;
    for epoch in [token.epoch.get() + 1, i64::MAX as u64, u64::MAX] {
        let early = LeaseToken { epoch: Epoch::from_stored(epoch), ..token.clone() };
        assert_fenced(&scene, &early, "before its epoch").await;
    }
}

pub async fn a_save_for_an_unknown_partition_is_fenced(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    if !scene.capabilities().fences_checkpoints {
        return;
    }
    let token = scene.claim(P, "a").await;
    let elsewhere = LeaseToken { partition: PartitionId(P.0 + 1), ..token };
    assert_fenced(&scene, &elsewhere, "without a claim").await;
}

pub async fn a_checkpoint_outlives_every_change_of_owner(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    scene.saved(&token, finished(6)).await;
    let stored = scene.view().await.checkpoint(P).cloned();
    let token = scene.hand_over(&token, "b").await;
    assert_eq!(scene.view().await.checkpoint(P).cloned(), stored);
    assert_eq!(scene.release(&token).await, GiveUpOutcome::Done);
    assert_eq!(scene.view().await.checkpoint(P).cloned(), stored);
    for cause in
        [ClaimCause::Unowned, ClaimCause::Unresponsive, ClaimCause::Expired, ClaimCause::AboveForeignReader]
    {
        let request = scene.request(P, "c", cause).await;
        let ClaimOutcome::Won { checkpoint, .. } = scene.try_claim(&request).await else {
            panic!("no other host claims");
        };
        assert_eq!(checkpoint, stored, "{cause:?}");
        assert_eq!(scene.view().await.checkpoint(P).cloned(), stored, "{cause:?}");
    }
}

pub async fn after_a_release_its_epoch_still_saves_until_the_next_claim(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    scene.saved(&token, finished(49)).await;
    assert_eq!(scene.release(&token).await, GiveUpOutcome::Done);
    // A save that was in flight when the lease was released.
    scene.saved(&token, finished(50)).await;
    let request = scene.request(P, "b", ClaimCause::Unowned).await;
    let ClaimOutcome::Won { checkpoint, .. } = scene.try_claim(&request).await else {
        panic!("no other host claims");
    };
    assert_eq!(checkpoint.map(|checkpoint| checkpoint.position), Some(finished(50)));
    if scene.capabilities().fences_checkpoints {
        assert_fenced(&scene, &token, "after the next claim").await;
    }
}

/// Saves of the old owner race the claim of the new one. Whichever saves succeed, the claim has
/// seen them: the stored position is the one that it returned.
pub async fn a_claim_reads_the_checkpoint_after_the_fence(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    if !scene.capabilities().fences_checkpoints {
        return;
    }
    for partition in (0..ROUNDS).map(PartitionId) {
        let token = scene.claim(partition, "a").await;
        let steal = scene.request(partition, "b", ClaimCause::Unresponsive).await;
        let mut calls: Vec<BoxFuture<'static, Option<ClaimOutcome>>> = Vec::new();
        for sequence in 1..=SAVES {
            let (scene, token) = (scene.clone(), token.clone());
            calls.push(Box::pin(async move {
                scene.save(&token, &finished(sequence)).await;
                None
            }));
        }
        let claimant = scene.clone();
        let among = usize::try_from(partition.0).unwrap() % calls.len();
        calls.insert(among, Box::pin(async move { Some(claimant.try_claim(&steal).await) }));
        let outcome = at_once(calls).await.into_iter().flatten().next();
        let Some(ClaimOutcome::Won { checkpoint, .. }) = outcome else {
            panic!("saves do not change the lease: {outcome:?}");
        };
        let stored = scene.view().await.checkpoint(partition).cloned();
        assert_eq!(
            stored, checkpoint,
            "{partition:?}: a save was stored after the claim had read the checkpoint"
        );
    }
}
