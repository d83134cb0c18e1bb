//! Conformance tests of the ownership history: it has every change of owner with its reason, the newest
//! first, and no refused change.

#![allow(missing_docs, reason = "the name of a property is its promise")]

use ephor_core::history::{ChangeReason, OwnershipChange};
use ephor_core::ids::PartitionId;
use ephor_core::lease::{ClaimCause, ReleaseCause};
use ephor_core::store::{ClaimOutcome, GiveUpOutcome, SeekOutcome, SeekRequest};

use super::StoreFixture;
use super::first_calls::{ODD_TEXTS, P, Scene, finished, host};

async fn history(scene: &Scene, partition: Option<PartitionId>, max: usize) -> Vec<OwnershipChange> {
    scene.store.history(&scene.group, partition, max).await.unwrap()
}

/// Checks that the newest change, without its time, is this one.
async fn assert_newest(scene: &Scene, from: Option<&str>, to: Option<&str>, reason: ChangeReason) {
    let newest = history(scene, None, 1).await.remove(0);
    assert_eq!(newest.reason, reason);
    assert_eq!((newest.from, newest.to), (from.map(host), to.map(host)), "{reason:?}");
    assert_eq!((newest.partition, newest.epoch), (P, scene.lease(P).await.epoch), "{reason:?}");
}

pub async fn every_kind_of_change_is_remembered(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    if !scene.capabilities().keeps_history {
        return;
    }
    let claimed = ChangeReason::Claimed;
    scene.claim(P, "a").await;
    assert_newest(&scene, None, Some("a"), claimed(ClaimCause::Unowned)).await;
    scene.claim_as(P, "b", ClaimCause::Expired).await;
    assert_newest(&scene, Some("a"), Some("b"), claimed(ClaimCause::Expired)).await;
    scene.steal(P, "c").await;
    assert_newest(&scene, Some("b"), Some("c"), claimed(ClaimCause::Unresponsive)).await;
    let mut token = scene.claim_as(P, "c", ClaimCause::AboveForeignReader).await;
    assert_newest(&scene, Some("c"), Some("c"), claimed(ClaimCause::AboveForeignReader)).await;
    for cause in [
        ReleaseCause::Shutdown,
        ReleaseCause::ProcessorFailed,
        ReleaseCause::SourceFailed,
        ReleaseCause::Unserved,
    ] {
        token = scene.hand_over(&token, "d").await;
        assert_newest(&scene, Some("c"), Some("d"), ChangeReason::HandedOver).await;
        assert_eq!(scene.release_as(&token, cause).await, GiveUpOutcome::Done);
        assert_newest(&scene, Some("d"), None, ChangeReason::Released(cause)).await;
        token = scene.claim(P, "c").await;
    }
    let mut owner = Some("c");
    for by in ODD_TEXTS {
        let request =
            SeekRequest { partition: P, position: finished(1), log: None, by: by.into(), force: false };
        let outcome = scene.store.seek(&scene.group, &request).await.unwrap();
        assert!(matches!(outcome, SeekOutcome::Done { .. }), "{outcome:?}");
        assert_newest(&scene, owner.take(), None, ChangeReason::Seek { by: by.into() }).await;
    }
}

pub async fn history_is_newest_first_and_no_longer_than_asked(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    if !scene.capabilities().keeps_history {
        return;
    }
    let mut expected = Vec::new();
    for round in 0..3 {
        for partition in [2, 10, 0].map(PartitionId) {
            let token = scene.claim_as(partition, "a", ClaimCause::Expired).await;
            expected.insert(0, (partition, token.epoch));
            // Between partitions only the time shows the order.
            fixture.pass(2 * scene.resolution()).await;
        }
        let all = history(&scene, None, 100).await;
        let changes: Vec<_> = all.iter().map(|change| (change.partition, change.epoch)).collect();
        assert_eq!(changes, expected, "round {round}");
        assert!(all.is_sorted_by(|newer, older| newer.at >= older.at), "round {round}");
        for max in [0, 1, 2] {
            assert_eq!(history(&scene, None, max).await, all[..max]);
        }
    }
}

pub async fn history_of_one_partition_names_no_other(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    if !scene.capabilities().keeps_history {
        return;
    }
    let (one, ten) = (PartitionId(1), PartitionId(10));
    let mut epochs = Vec::new();
    for name in ["a", "b", "c"] {
        epochs.insert(0, scene.claim_as(one, name, ClaimCause::Expired).await.epoch);
        scene.claim_as(ten, name, ClaimCause::Expired).await;
    }
    let of_one = history(&scene, Some(one), 100).await;
    assert!(of_one.iter().all(|change| change.partition == one));
    assert_eq!(of_one.iter().map(|change| change.epoch).collect::<Vec<_>>(), epochs);
    assert_eq!(history(&scene, Some(one), 2).await, of_one[..2]);
    assert_eq!(history(&scene, Some(PartitionId(100)), 5).await, []);
}

pub async fn what_was_refused_is_no_history(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let blind = scene.request(P, "b", ClaimCause::Unowned).await;
    let token = scene.claim(P, "a").await;
    let next = scene.hand_over(&token, "b").await;
    let before = history(&scene, None, 100).await;
    assert!(matches!(scene.try_claim(&blind).await, ClaimOutcome::Lost { .. }));
    assert_eq!(scene.transfer(&token, "c").await, GiveUpOutcome::NotOurs);
    assert_eq!(scene.release(&token).await, GiveUpOutcome::NotOurs);
    scene.renew(&next).await;
    scene.saved(&next, finished(1)).await;
    assert_eq!(history(&scene, None, 100).await, before);
}
