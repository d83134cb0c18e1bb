//! Conformance tests of claims: races, epochs, and the time that a new owner must wait.

#![allow(missing_docs, reason = "the name of a property is its promise")]

use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;
use ephor_core::lease::{ClaimCause, ClaimRequest, TransferRequest};
use ephor_core::store::{ClaimOutcome, GiveUpOutcome, RefusalCause, RenewalOutcome, SeekRequest, StoreError};

use super::StoreFixture;
use super::first_calls::{LEASE, P, Scene, at_once, finished, host};

/// The number of hosts in a race.
const RUNNERS: usize = 16;

/// The number of races of two: either may be faster.
const ROUNDS: u32 = 8;

pub async fn a_first_claim_wins_in_epoch_one_or_more(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let request = scene.request(P, "a", ClaimCause::Unowned).await;
    assert_eq!(request.seen, None);
    let ClaimOutcome::Won { token, lease, checkpoint } = scene.try_claim(&request).await else {
        panic!("there is no other host to win");
    };
    assert!(token.epoch > Epoch::NONE);
    assert_eq!((token.partition, &token.owner), (P, &host("a")));
    assert_eq!(checkpoint, None);
    assert_eq!(lease.token(), Some(token));
    assert_eq!(lease.duration, Some(LEASE));
    assert_eq!((lease.previous_owner.clone(), lease.takeover_delay), (None, Duration::ZERO));
    let seen = scene.lease(P).await;
    assert_eq!((seen.token(), seen.duration), (lease.token(), lease.duration));
    assert_eq!((seen.version, seen.acquired_at), (lease.version, lease.acquired_at));
}

pub async fn a_claim_with_a_stale_version_loses_and_says_who_holds_it(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let token = scene.claim(P, "a").await;
    let stale = scene.request(P, "b", ClaimCause::Expired).await;
    assert_eq!(scene.renew(&token).await, RenewalOutcome::Renewed);
    let now = scene.lease(P).await;
    let ClaimOutcome::Lost { holder: Some(holder) } = scene.try_claim(&stale).await else {
        panic!("the owner has renewed since");
    };
    assert_eq!((holder.token(), &holder.version), (Some(token), &now.version));
    assert_eq!(scene.lease(P).await.version, now.version);
}

pub async fn a_claim_that_saw_no_record_loses_to_the_one_that_is_there(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let blind = scene.request(P, "b", ClaimCause::Unowned).await;
    let token = scene.claim(P, "a").await;
    let outcome = scene.try_claim(&blind).await;
    assert!(
        matches!(&outcome, ClaimOutcome::Lost { holder: Some(l) } if l.token() == Some(token)),
        "{outcome:?}"
    );
    // A record without an owner is a record, too.
    scene.release(&scene.lease(P).await.token().unwrap()).await;
    let outcome = scene.try_claim(&blind).await;
    assert!(matches!(&outcome, ClaimOutcome::Lost { holder: Some(l) } if l.owner.is_none()), "{outcome:?}");
}

pub async fn a_claim_that_saw_a_record_where_there_is_none_loses(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    scene.claim(P, "a").await;
    let request =
        ClaimRequest { partition: PartitionId(P.0 + 1), ..scene.request(P, "b", ClaimCause::Expired).await };
    assert_eq!(scene.try_claim(&request).await, ClaimOutcome::Lost { holder: None });
    assert_eq!(scene.view().await.lease(request.partition), None);
}

pub async fn a_claim_goes_above_the_epoch_it_is_told(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    // The last is a number that a conversion to floating point would round down.
    for above in [7, 1_000_000, (1 << 53) + 1] {
        let above = Epoch::from_stored(above);
        let request = ClaimRequest { above, ..scene.request(P, "a", ClaimCause::AboveForeignReader).await };
        let ClaimOutcome::Won { token, lease, .. } = scene.try_claim(&request).await else {
            panic!("no other host claims");
        };
        assert!(token.epoch > above, "{:?} is not above {above:?}", token.epoch);
        assert_eq!(lease.epoch, token.epoch);
        assert_eq!(scene.lease(P).await.epoch, token.epoch);
    }
    let highest = scene.lease(P).await.epoch;
    let low =
        ClaimRequest { above: Epoch::from_stored(1), ..scene.request(P, "b", ClaimCause::Expired).await };
    let outcome = scene.try_claim(&low).await;
    assert!(matches!(&outcome, ClaimOutcome::Won { token, .. } if token.epoch > highest), "{outcome:?}");
}

/// There is no epoch above the highest one that fits the protocol, and a partition that reached it
/// keeps its owner.
pub async fn no_owner_and_no_seek_has_an_epoch_beyond_the_highest(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let claim_above = async |above: u64| {
        let request = scene.request(P, "a", ClaimCause::AboveForeignReader).await;
        let request = ClaimRequest { above: Epoch::from_stored(above), ..request };
        scene.store.claim(&scene.group, &request).await
    };
    let refused = |error: StoreError| match error {
        StoreError::Refused { cause: RefusalCause::NoEpochLeft, message } => {
            assert!(message.contains("partition 3 has no epoch left"), "{message}")
        }
        other => panic!("not refused, but {other}"),
    };
    const MAX_EPOCH: u64 = i64::MAX as u64;
    for above in [MAX_EPOCH, MAX_EPOCH + 1, u64::MAX] {
        refused(claim_above(above).await.expect_err("there is none above"));
        assert_eq!(scene.view().await.lease(P), None, "nothing is left of a claim that was refused");
    }
    let ClaimOutcome::Won { token, .. } = claim_above(MAX_EPOCH - 1).await.unwrap() else {
        panic!("no other host claims")
    };
    assert_eq!((token.epoch.get(), scene.lease(P).await.epoch.get()), (MAX_EPOCH, MAX_EPOCH));
    refused(claim_above(0).await.expect_err("it was the last"));
    let transfer =
        TransferRequest { token: token.clone(), to: host("b"), duration: LEASE, checkpoint_saved: true };
    refused(scene.store.transfer(&scene.group, &transfer).await.expect_err("a transfer takes an epoch"));
    let seek = SeekRequest { partition: P, position: finished(1), log: None, by: "ada".into(), force: false };
    refused(scene.store.seek(&scene.group, &seek).await.expect_err("a seek takes an epoch"));
    assert_eq!(scene.renew(&token).await, RenewalOutcome::Renewed);
    scene.saved(&token, finished(7)).await;
    assert_eq!(scene.release(&token).await, GiveUpOutcome::Done);
    assert_eq!(scene.claim(PartitionId(P.0 + 1), "a").await.epoch.get(), 1, "others are none the wiser");
}

pub async fn a_host_may_claim_its_own_partition_anew(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let old = scene.claim(P, "a").await;
    let new = scene.claim_as(P, "a", ClaimCause::AboveForeignReader).await;
    assert!(new.epoch > old.epoch);
    assert!(matches!(scene.renew(&old).await, RenewalOutcome::Lost { .. }));
    assert_eq!(scene.renew(&new).await, RenewalOutcome::Renewed);
}

/// All hosts claim what they saw at the same time; returns the claim that won.
async fn race(scene: &Scene, cause: ClaimCause) -> ClaimOutcome {
    let mut calls: Vec<BoxFuture<'static, ClaimOutcome>> = Vec::new();
    for runner in 0..RUNNERS {
        let request = scene.request(P, &format!("runner-{runner}"), cause).await;
        let scene = scene.clone();
        calls.push(Box::pin(async move { scene.try_claim(&request).await }));
    }
    let (mut won, lost): (Vec<_>, Vec<_>) =
        at_once(calls).await.into_iter().partition(|claim| matches!(claim, ClaimOutcome::Won { .. }));
    assert_eq!((won.len(), lost.len()), (1, RUNNERS - 1));
    let winner = won.remove(0);
    let ClaimOutcome::Won { lease: held, .. } = &winner else { unreachable!("it was sorted out above") };
    for claim in lost {
        let ClaimOutcome::Lost { holder: Some(holder) } = claim else { panic!("{claim:?} names no holder") };
        assert_eq!(holder.token(), held.token());
    }
    assert_eq!(scene.lease(P).await.token(), held.token());
    winner
}

pub async fn of_many_first_claims_at_once_exactly_one_wins(fixture: &dyn StoreFixture) {
    race(&Scene::new(fixture).await, ClaimCause::Unowned).await;
}

pub async fn of_many_takeovers_at_once_exactly_one_wins(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let before = scene.claim(P, "a").await;
    let ClaimOutcome::Won { token, .. } = race(&scene, ClaimCause::Expired).await else {
        unreachable!("a race has a winner");
    };
    assert!(token.epoch > before.epoch);
}

pub async fn of_a_steal_and_a_transfer_at_once_exactly_one_succeeds(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    for partition in (0..ROUNDS).map(PartitionId) {
        let token = scene.claim(partition, "a").await;
        let steal = scene.request(partition, "taker", ClaimCause::Unresponsive).await;
        let transfer =
            TransferRequest { token, to: host("successor"), duration: LEASE, checkpoint_saved: true };
        let (one, other) = (scene.clone(), scene.clone());
        let mut calls: Vec<BoxFuture<'static, bool>> = vec![
            Box::pin(async move { matches!(one.try_claim(&steal).await, ClaimOutcome::Won { .. }) }),
            Box::pin(async move {
                other.store.transfer(&other.group, &transfer).await.unwrap() == GiveUpOutcome::Done
            }),
        ];
        let swapped = partition.0 % 2 == 1;
        if swapped {
            calls.reverse();
        }
        let mut outcome = at_once(calls).await;
        if swapped {
            outcome.reverse();
        }
        let winner = match outcome[..] {
            [true, false] => "taker",
            [false, true] => "successor",
            _ => panic!("steal and transfer: {outcome:?}"),
        };
        assert_eq!(scene.lease(partition).await.owner, Some(host(winner)));
    }
}

pub async fn of_a_takeover_and_a_renewal_at_once_exactly_one_succeeds(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    for partition in (0..ROUNDS).map(PartitionId) {
        let token = scene.claim(partition, "a").await;
        let takeover = scene.request(partition, "b", ClaimCause::Expired).await;
        let (one, other) = (scene.clone(), scene.clone());
        let mut calls: Vec<BoxFuture<'static, bool>> = vec![
            Box::pin(async move { matches!(one.try_claim(&takeover).await, ClaimOutcome::Won { .. }) }),
            Box::pin(async move { other.renew(&token).await == RenewalOutcome::Renewed }),
        ];
        if partition.0 % 2 == 1 {
            calls.reverse();
        }
        let succeeded = at_once(calls).await.into_iter().filter(|done| *done).count();
        assert_eq!(succeeded, 1);
    }
}

pub async fn a_steal_leaves_a_takeover_delay_for_the_previous_owner(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    scene.claim(P, "a").await;
    let before = scene.view().await;
    let request = scene.request(P, "b", ClaimCause::Unresponsive).await;
    let ClaimOutcome::Won { lease, .. } = scene.try_claim(&request).await else {
        panic!("no other host claims")
    };
    let after = scene.view().await;
    let elapsed = after.at.since(before.at) + before.lease(P).unwrap().age;
    for lease in [&lease, after.lease(P).unwrap()] {
        assert_eq!(lease.previous_owner, Some(host("a")));
        assert!(lease.takeover_delay <= LEASE + scene.resolution(), "{:?}", lease.takeover_delay);
        assert!(
            lease.takeover_delay + elapsed + 2 * scene.resolution() >= LEASE,
            "{:?}",
            lease.takeover_delay
        );
    }
}

pub async fn a_takeover_delay_ends(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let short = ClaimRequest { duration: scene.tick(), ..scene.request(P, "a", ClaimCause::Unowned).await };
    assert!(matches!(scene.try_claim(&short).await, ClaimOutcome::Won { .. }));
    scene.steal(P, "b").await;
    fixture.pass(scene.tick() + 2 * scene.resolution()).await;
    assert_eq!(scene.lease(P).await.takeover_delay, Duration::ZERO);
}

pub async fn a_claim_on_an_expired_owner_leaves_no_takeover_delay(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    scene.claim(P, "a").await;
    scene.claim_as(P, "b", ClaimCause::Expired).await;
    let lease = scene.lease(P).await;
    assert_eq!((lease.previous_owner, lease.takeover_delay), (None, Duration::ZERO));
}

pub async fn a_takeover_delay_outlasts_a_release_and_the_next_claim(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    scene.claim(P, "a").await;
    let taker = scene.steal(P, "b").await;
    assert_eq!(scene.release(&taker).await, GiveUpOutcome::Done);
    let next = scene.claim(P, "c").await;
    let lease = scene.lease(P).await;
    assert_eq!(lease.previous_owner, Some(host("a")));
    assert!(lease.takeover_delay > Duration::ZERO);
    scene.hand_over(&next, "d").await;
    assert!(scene.lease(P).await.takeover_delay > Duration::ZERO);
}
