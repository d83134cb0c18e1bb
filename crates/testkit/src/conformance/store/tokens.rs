//! Conformance tests of lease tokens: the operations that they permit to the owner, and to nobody else.

#![allow(missing_docs, reason = "the name of a property is its promise")]

use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{HostId, Incarnation, PartitionId};
use ephor_core::lease::{ClaimCause, LeaseToken, ReleaseCause, ReleaseRequest};
use ephor_core::store::{GiveUpOutcome, RenewalOutcome};

use super::StoreFixture;
use super::first_calls::{LEASE, P, Scene, finished, host, timeless};

pub async fn every_change_of_owner_raises_the_epoch_and_none_is_used_twice(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let mut epochs: Vec<(&str, Epoch)> = Vec::new();
    for _ in 0..3 {
        let token = scene.claim(P, "a").await;
        epochs.push(("claim", token.epoch));
        let token = scene.hand_over(&token, "b").await;
        epochs.push(("transfer", token.epoch));
        let token = scene.steal(P, "c").await;
        epochs.push(("steal", token.epoch));
        epochs.push(("seek", scene.seek(P, finished(7)).await));
        epochs.push(("second seek", scene.seek(P, finished(7)).await));
        let token_after_seek = scene.claim(P, "d").await;
        assert_ne!(token, token_after_seek);
        epochs.push(("claim after seek", token_after_seek.epoch));
        let token = scene.claim_as(P, "e", ClaimCause::Expired).await;
        epochs.push(("claim of an expired lease", token.epoch));
        let token = scene.claim_as(P, "e", ClaimCause::AboveForeignReader).await;
        epochs.push(("claim of the own lease", token.epoch));
        assert_eq!(scene.release(&token).await, GiveUpOutcome::Done);
        // The next round claims after a release.
    }
    for pair in epochs.windows(2) {
        assert!(pair[0].1 < pair[1].1, "{:?}, then {:?}", pair[0], pair[1]);
    }
}

/// Checks that every use of a token is refused and changes nothing.
async fn assert_powerless(scene: &Scene, token: &LeaseToken, why: &str) {
    let before = scene.view().await;
    let history = scene.store.history(&scene.group, None, 1000).await.unwrap();
    let renewal = scene.renew(token).await;
    let RenewalOutcome::Lost { holder } = renewal else { panic!("renewed after {why}") };
    let seen = before.lease(token.partition);
    assert_eq!(
        holder.as_ref().map(|lease| (lease.token(), lease.version.clone())),
        seen.map(|lease| (lease.token(), lease.version.clone())),
        "holder after {why}"
    );
    assert_eq!(scene.transfer(token, "accomplice").await, GiveUpOutcome::NotOurs, "transfer after {why}");
    assert_eq!(scene.release(token).await, GiveUpOutcome::NotOurs, "release after {why}");
    assert_eq!(timeless(scene.view().await), timeless(before), "records after {why}");
    let since = scene.store.history(&scene.group, None, 1000).await.unwrap();
    assert_eq!(since, history, "history after {why}");
}

pub async fn a_token_whose_epoch_is_over_changes_nothing(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    scene.saved(&token, finished(5)).await;
    let next = scene.hand_over(&token, "b").await;
    assert_powerless(&scene, &token, "a transfer").await;
    let back = scene.hand_over(&next, "a").await;
    assert_powerless(&scene, &token, "the partition came back in another epoch").await;
    let taker = scene.steal(P, "c").await;
    assert_powerless(&scene, &back, "a steal").await;
    scene.seek(P, finished(2)).await;
    assert_powerless(&scene, &taker, "a seek").await;
    let token = scene.claim(P, "a").await;
    let again = scene.claim_as(P, "a", ClaimCause::AboveForeignReader).await;
    assert_powerless(&scene, &token, "its own claim").await;
    assert_eq!(scene.release(&again).await, GiveUpOutcome::Done);
    assert_powerless(&scene, &again, "a release").await;
}

pub async fn a_token_of_another_incarnation_changes_nothing(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    let owner = HostId { incarnation: Incarnation(2), ..host("a") };
    assert_powerless(&scene, &LeaseToken { owner, ..token.clone() }, "another incarnation came").await;
    assert_powerless(&scene, &LeaseToken { owner: host("A"), ..token }, "another host came").await;
}

pub async fn a_token_of_an_epoch_to_come_changes_nothing(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    for epoch in [token.epoch.get() + 1, i64::MAX as u64, u64::MAX] {
        let early = LeaseToken { epoch: Epoch::from_stored(epoch), ..token.clone() };
        assert_powerless(&scene, &early, "an epoch was guessed").await;
    }
}

pub async fn a_token_of_an_unknown_partition_changes_nothing(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    let elsewhere = LeaseToken { partition: PartitionId(P.0 + 1), ..token };
    assert_powerless(&scene, &elsewhere, "a partition was guessed").await;
}

pub async fn a_renewal_changes_the_version_and_no_ownership(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    let mut versions = vec![scene.lease(P).await.version];
    let first = scene.lease(P).await;
    for seconds in 1..=3 {
        let duration = Duration::from_millis(60_000 * seconds + 7);
        let tokens = std::slice::from_ref(&token);
        let answers = scene.store.renew(&scene.group, duration, tokens).await.unwrap();
        assert_eq!(answers, [RenewalOutcome::Renewed]);
        let lease = scene.lease(P).await;
        assert_eq!(lease.token().as_ref(), Some(&token));
        assert_eq!((lease.acquired_at, lease.previous_owner), (first.acquired_at, None));
        assert_eq!(lease.duration, Some(duration));
        assert!(!versions.contains(&lease.version), "{:?} was used before", lease.version);
        versions.push(lease.version);
    }
}

pub async fn one_renewal_answers_for_each_token_in_order(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let mine = scene.claim(PartitionId(10), "a").await;
    let stolen = scene.claim(PartitionId(9), "a").await;
    let taker = scene.steal(PartitionId(9), "b").await;
    let released = scene.claim(PartitionId(1), "a").await;
    assert_eq!(scene.release(&released).await, GiveUpOutcome::Done);
    let also_mine = scene.claim(PartitionId(0), "a").await;
    let unknown = LeaseToken { partition: PartitionId(77), ..mine.clone() };
    let tokens = [unknown, mine, stolen, also_mine, released];
    let answers = scene.store.renew(&scene.group, LEASE, &tokens).await.unwrap();
    let [
        RenewalOutcome::Lost { holder: None },
        RenewalOutcome::Renewed,
        RenewalOutcome::Lost { holder: Some(holder) },
        RenewalOutcome::Renewed,
        RenewalOutcome::Lost { holder: Some(nobody) },
    ] = &answers[..]
    else {
        panic!("{answers:?}");
    };
    assert_eq!(holder.token(), Some(taker));
    assert_eq!((nobody.partition, &nobody.owner), (PartitionId(1), &None));
    assert_eq!(scene.store.renew(&scene.group, LEASE, &[]).await.unwrap(), []);
}

pub async fn a_transfer_gives_the_lease_to_its_new_owner(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    let before = scene.lease(P).await;
    let next = scene.hand_over(&token, "b").await;
    assert_eq!(next.owner, host("b"));
    let lease = scene.lease(P).await;
    assert_ne!(lease.version, before.version);
    assert_eq!(lease.duration, Some(LEASE));
    // It was a handover: the old owner knows, and nobody needs to wait.
    assert_eq!((lease.previous_owner, lease.takeover_delay), (None, Duration::ZERO));
    assert_eq!(scene.renew(&next).await, RenewalOutcome::Renewed);
    scene.saved(&next, finished(1)).await;
}

pub async fn a_release_leaves_the_partition_to_nobody(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    let before = scene.lease(P).await;
    assert_eq!(scene.release(&token).await, GiveUpOutcome::Done);
    let lease = scene.lease(P).await;
    assert_eq!(lease.owner, None);
    assert_ne!(lease.version, before.version);
    assert_eq!((lease.previous_owner, lease.takeover_delay), (None, Duration::ZERO));
    let next = scene.claim(P, "b").await;
    assert_eq!(scene.lease(P).await.token(), Some(next));
}

/// The successor that the last owner named stays in the lease until there is a new owner.
pub async fn a_release_names_its_successor_until_the_next_claim(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    let successor = Some(host("b"));
    let request = ReleaseRequest {
        token,
        cause: ReleaseCause::Shutdown,
        successor: successor.clone(),
        checkpoint_saved: true,
    };
    assert_eq!(scene.store.release(&scene.group, &request).await.unwrap(), GiveUpOutcome::Done);
    assert_eq!(scene.lease(P).await.successor, successor);
    let token = scene.claim(P, "c").await;
    assert_eq!(scene.lease(P).await.successor, None);
    scene.release(&token).await;
    assert_eq!(scene.lease(P).await.successor, None);
}
