//! Conformance tests of wake-ups: the hosts that are notified of a change.
//!
//! A wake-up is a hint, and a store may send one too many. So each property first waits until all
//! is quiet, and that no other host is woken is checked only for direct effects of the step.

#![allow(missing_docs, reason = "the name of a property is its promise")]

use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::host_record::{HandoverRequest, HostRecord};
use ephor_core::lease::{ReleaseCause, ReleaseRequest};
use ephor_core::store::{DesiredState, GiveUpOutcome};

use super::StoreFixture;
use super::first_calls::{P, Scene, finished, host, plain_record};

/// Longer than any expected wake-up takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time after which a wake-up counts as absent.
const STILLNESS: Duration = Duration::from_millis(50);

/// The most superfluous wake-ups; a store that goes on waking a host for nothing is broken.
const MAX_EARLIER_WAKES: usize = 20;

#[expect(clippy::disallowed_methods, reason = "a wake is waited for in real time")]
async fn woken_within(scene: &Scene, name: &str, limit: Duration) -> bool {
    let host = host(name);
    tokio::time::timeout(limit, scene.store.changed(&scene.group, &host)).await.is_ok()
}

async fn assert_woken(scene: &Scene, name: &str) {
    assert!(woken_within(scene, name, PATIENCE).await, "{name} is not woken");
}

async fn assert_asleep(scene: &Scene, name: &str) {
    assert!(!woken_within(scene, name, STILLNESS).await, "{name} is woken for nothing");
}

/// Consumes the wake-ups that are left over, so that the next one belongs to the next step.
async fn settle(scene: &Scene, names: &[&str]) {
    for name in names {
        let mut earlier_wakes = 0;
        while woken_within(scene, name, STILLNESS).await {
            earlier_wakes += 1;
            assert!(earlier_wakes < MAX_EARLIER_WAKES, "{name} is woken again and again");
        }
    }
}

/// A scene with hosts a, b and c; `None` if the store does not wake hosts.
async fn scene_that_wakes(fixture: &dyn StoreFixture) -> Option<Scene> {
    let scene = Scene::new(fixture).await;
    if !scene.capabilities().wakes {
        return None;
    }
    scene.introduce(&["a", "b", "c"]).await;
    Some(scene)
}

pub async fn a_transfer_wakes_the_new_owner(fixture: &dyn StoreFixture) {
    let Some(scene) = scene_that_wakes(fixture).await else { return };
    let token = scene.claim(P, "a").await;
    settle(&scene, &["b"]).await;
    scene.hand_over(&token, "b").await;
    assert_woken(&scene, "b").await;
    settle(&scene, &["b"]).await;
    assert_eq!(scene.transfer(&token, "b").await, GiveUpOutcome::NotOurs);
    assert_asleep(&scene, "b").await;
}

pub async fn a_want_wakes_the_owner_when_it_is_new(fixture: &dyn StoreFixture) {
    let Some(scene) = scene_that_wakes(fixture).await else { return };
    let want = |epoch| HandoverRequest { partition: P, owner: host("a"), epoch: Epoch::from_stored(epoch) };
    let asking = |wants| HostRecord { wants, ..plain_record(host("b")) };
    settle(&scene, &["a"]).await;
    scene.heartbeat(&asking(vec![want(1)])).await;
    assert_woken(&scene, "a").await;
    settle(&scene, &["a"]).await;
    scene.heartbeat(&asking(vec![want(1)])).await;
    assert_asleep(&scene, "a").await;
    scene.heartbeat(&asking(vec![want(1), want(2)])).await;
    assert_woken(&scene, "a").await;
    settle(&scene, &["a"]).await;
    scene.heartbeat(&asking(Vec::new())).await;
    assert_asleep(&scene, "a").await;
    scene.heartbeat(&asking(vec![want(1)])).await;
    assert_woken(&scene, "a").await;
}

pub async fn a_release_wakes_the_successor(fixture: &dyn StoreFixture) {
    let Some(scene) = scene_that_wakes(fixture).await else { return };
    let token = scene.claim(P, "a").await;
    settle(&scene, &["b"]).await;
    let request = ReleaseRequest {
        token,
        cause: ReleaseCause::Shutdown,
        successor: Some(host("b")),
        checkpoint_saved: true,
    };
    assert_eq!(scene.store.release(&scene.group, &request).await.unwrap(), GiveUpOutcome::Done);
    assert_woken(&scene, "b").await;
}

pub async fn a_seek_wakes_the_owner(fixture: &dyn StoreFixture) {
    let Some(scene) = scene_that_wakes(fixture).await else { return };
    scene.claim(P, "a").await;
    settle(&scene, &["a"]).await;
    scene.seek(P, finished(1)).await;
    assert_woken(&scene, "a").await;
}

pub async fn a_desired_state_wakes_its_host(fixture: &dyn StoreFixture) {
    let Some(scene) = scene_that_wakes(fixture).await else { return };
    settle(&scene, &["a"]).await;
    assert!(
        scene.store.set_desired_state(&scene.group, &host("a"), DesiredState { drain: true }).await.unwrap()
    );
    assert_woken(&scene, "a").await;
}

pub async fn a_change_between_two_calls_is_not_missed(fixture: &dyn StoreFixture) {
    let Some(scene) = scene_that_wakes(fixture).await else { return };
    let mut token = scene.claim(P, "a").await;
    settle(&scene, &["b"]).await;
    for _ in 0..3 {
        token = scene.hand_over(&token, "b").await;
        assert_woken(&scene, "b").await;
        // Nobody waits now: the change happens before the next wait begins.
        token = scene.hand_over(&token, "c").await;
        token = scene.hand_over(&token, "b").await;
        assert_woken(&scene, "b").await;
        settle(&scene, &["b"]).await;
        token = scene.hand_over(&token, "c").await;
    }
}

pub async fn who_already_waits_is_woken(fixture: &dyn StoreFixture) {
    let Some(scene) = scene_that_wakes(fixture).await else { return };
    let token = scene.claim(P, "a").await;
    settle(&scene, &["b"]).await;
    let mut waiting = tokio::task::JoinSet::new();
    let waiter = scene.clone();
    waiting.spawn(async move { woken_within(&waiter, "b", PATIENCE).await });
    // The waiter is polled, and waits, before anything happens.
    settle(&scene, &["a"]).await;
    scene.hand_over(&token, "b").await;
    assert_eq!(waiting.join_all().await, [true]);
}

pub async fn nobody_else_is_woken(fixture: &dyn StoreFixture) {
    let Some(scene) = scene_that_wakes(fixture).await else { return };
    let elsewhere = scene.in_group(fixture.group());
    elsewhere.introduce(&["b"]).await;
    let token = scene.claim(P, "a").await;
    settle(&scene, &["a", "b", "c"]).await;
    settle(&elsewhere, &["b"]).await;
    scene.hand_over(&token, "b").await;
    assert_woken(&scene, "b").await;
    assert_asleep(&scene, "c").await;
    assert_asleep(&elsewhere, "b").await;
    scene.seek(P, finished(1)).await;
    assert_asleep(&scene, "c").await;
    assert_asleep(&elsewhere, "b").await;
}

pub async fn a_store_that_cannot_wake_leaves_everybody_waiting(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    if scene.capabilities().wakes {
        return;
    }
    scene.introduce(&["a", "b"]).await;
    let token = scene.claim(P, "a").await;
    scene.hand_over(&token, "b").await;
    scene.seek(P, finished(1)).await;
    assert!(
        scene.store.set_desired_state(&scene.group, &host("b"), DesiredState { drain: true }).await.unwrap()
    );
    assert_asleep(&scene, "b").await;
}
