//! Conformance tests of times: all dates and ages come from the store's own clock.

#![allow(missing_docs, reason = "the name of a property is its promise")]

use ephor_core::store::{RenewalOutcome, SaveOutcome};
use ephor_core::time::Timestamp;

use super::StoreFixture;
use super::first_calls::{P, Scene, finished, host};

pub async fn ages_grow_and_a_renewal_resets_them(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let (tick, blur) = (scene.tick(), scene.resolution());
    let token = scene.claim(P, "a").await;
    fixture.pass(tick).await;
    let before = scene.view().await;
    let age = before.lease(P).unwrap().age;
    assert!(age + blur >= tick, "{age:?} after {tick:?}");
    // A save is not a sign of life.
    scene.saved(&token, finished(1)).await;
    assert!(scene.lease(P).await.age >= age);
    assert_eq!(scene.renew(&token).await, RenewalOutcome::Renewed);
    let after = scene.view().await;
    let age = after.lease(P).unwrap().age;
    let since_before = after.at.since(before.at);
    assert!(age <= since_before + blur, "{age:?}, although it was renewed within {since_before:?}");
}

pub async fn a_heartbeat_makes_its_record_fresh(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let (tick, blur) = (scene.tick(), scene.resolution());
    scene.introduce(&["a", "b"]).await;
    fixture.pass(tick).await;
    let before = scene.view().await;
    for name in ["a", "b"] {
        let age = before.host(&host(name)).unwrap().age;
        assert!(age + blur >= tick, "{name} is {age:?} old after {tick:?}");
    }
    scene.introduce(&["a"]).await;
    let after = scene.view().await;
    let since_before = after.at.since(before.at);
    assert!(after.host(&host("a")).unwrap().age <= since_before + blur);
    assert!(after.host(&host("b")).unwrap().age + blur >= tick);
}

pub async fn changes_are_dated_by_the_clock_of_the_store(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let (tick, blur) = (scene.tick(), scene.resolution());
    let within = |from: Timestamp, at: Timestamp, to: Timestamp, what: &str| {
        assert!(from - blur <= at && at <= to + blur, "{what} at {at}, not between {from} and {to}");
    };
    let start = scene.view().await.at;
    let token = scene.claim(P, "a").await;
    let claimed = scene.view().await;
    within(start, claimed.lease(P).unwrap().acquired_at, claimed.at, "claimed");
    fixture.pass(tick).await;
    let before_save = scene.view().await.at;
    let outcome = scene.save(&token, &finished(1)).await;
    let SaveOutcome::Saved(checkpoint) = outcome else { panic!("{outcome:?}") };
    let saved = scene.view().await;
    within(before_save, checkpoint.saved_at, saved.at, "saved");
    fixture.pass(tick).await;
    let before_transfer = scene.view().await.at;
    scene.hand_over(&token, "b").await;
    let given = scene.view().await;
    within(before_transfer, given.lease(P).unwrap().acquired_at, given.at, "handed over");
    assert_eq!(given.checkpoint(P).unwrap().saved_at, checkpoint.saved_at);
    fixture.pass(tick).await;
    let before_seek = scene.view().await.at;
    scene.seek(P, finished(1)).await;
    let sought = scene.view().await;
    within(before_seek, sought.lease(P).unwrap().acquired_at, sought.at, "sought");
    within(before_seek, sought.checkpoint(P).unwrap().saved_at, sought.at, "written by the seek");
    if scene.capabilities().keeps_history {
        let history = scene.store.history(&scene.group, Some(P), 10).await.unwrap();
        within(before_seek, history[0].at, sought.at, "remembered the seek");
        within(before_transfer, history[1].at, given.at, "remembered the transfer");
        within(start, history[2].at, claimed.at, "remembered the claim");
    }
}
