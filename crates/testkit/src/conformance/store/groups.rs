//! Conformance tests of groups: views, the origin of a group, and isolation between groups.

#![allow(missing_docs, reason = "the name of a property is its promise")]

use ephor_core::BoxFuture;
use ephor_core::ids::{GroupId, HostId, Incarnation, LogId, PartitionId};
use ephor_core::store::{DesiredState, GroupOrigin, StoreError, View};
use ephor_core::time::Timestamp;

use super::StoreFixture;
use super::first_calls::{P, Scene, at_once, finished, host, plain_record, timeless};

pub async fn a_group_without_records_is_empty_and_not_listed(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let empty = View { at: Timestamp(0), ..View::default() };
    assert_eq!(timeless(scene.view().await), empty);
    assert_eq!(scene.store.history(&scene.group, None, 10).await.unwrap(), []);
    scene.store.retire(&scene.group, &host("a")).await.unwrap();
    assert!(!scene.store.groups().await.unwrap().contains(&scene.group));
}

pub async fn groups_with_records_are_listed(fixture: &dyn StoreFixture) {
    let [initialized, claimed, beating, sought] = [(); 4].map(|()| fixture.group());
    let scene = Scene::new(fixture).await;
    let origin = GroupOrigin { partitions: vec![P], log: None };
    scene.store.init_group(&initialized, &origin).await.unwrap();
    scene.in_group(claimed.clone()).claim(P, "a").await;
    scene.in_group(beating.clone()).introduce(&["a"]).await;
    scene.in_group(sought.clone()).seek(P, finished(1)).await;
    let listed = scene.store.groups().await.unwrap();
    for group in [initialized, claimed, beating, sought] {
        assert_eq!(listed.iter().filter(|other| **other == group).count(), 1, "{group}");
    }
}

pub async fn a_view_is_sorted(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    // Neither in the order of writing nor in the order of the numbers as text.
    for partition in [10, 2, 31, 0, 9, 100].map(PartitionId) {
        let token = scene.claim(partition, "a").await;
        scene.saved(&token, finished(1)).await;
    }
    let view = scene.view().await;
    let sorted = [0, 2, 9, 10, 31, 100].map(PartitionId);
    assert_eq!(view.leases.iter().map(|lease| lease.partition).collect::<Vec<_>>(), sorted);
    assert_eq!(view.checkpoints.iter().map(|(partition, _)| *partition).collect::<Vec<_>>(), sorted);
    let id = |name: &str, incarnation| HostId { incarnation: Incarnation(incarnation), ..host(name) };
    let mut hosts =
        [id("b", 1), id("a#", 1), id("B", 1), id("a", 10), id("ä", 1), id("a", 9), id("a", u64::MAX)];
    for host in &hosts {
        scene.heartbeat(&plain_record(host.clone())).await;
    }
    hosts.sort();
    let view = scene.view().await;
    assert_eq!(view.hosts.iter().map(|entry| entry.record.id.clone()).collect::<Vec<_>>(), hosts);
}

pub async fn the_first_origin_stays(fixture: &dyn StoreFixture) {
    let origins = [
        GroupOrigin { partitions: [0, 1, 2, 10].map(PartitionId).to_vec(), log: Some(LogId::new("log 1")) },
        GroupOrigin { partitions: vec![PartitionId(0)], log: None },
        GroupOrigin { partitions: Vec::new(), log: None },
    ];
    let scene = Scene::new(fixture).await;
    for first in &origins {
        let scene = scene.in_group(fixture.group());
        assert_eq!(scene.view().await.origin, None);
        assert_eq!(scene.store.init_group(&scene.group, first).await.unwrap(), *first);
        for later in &origins {
            assert_eq!(scene.store.init_group(&scene.group, later).await.unwrap(), *first);
        }
        assert_eq!(scene.view().await.origin.as_ref(), Some(first));
    }
}

pub async fn of_many_origins_at_once_one_stays(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let init = |partitions: u32| -> BoxFuture<'static, GroupOrigin> {
        let scene = scene.clone();
        let origin = GroupOrigin { partitions: (0..partitions).map(PartitionId).collect(), log: None };
        Box::pin(async move { scene.store.init_group(&scene.group, &origin).await.unwrap() })
    };
    let answers = at_once((1..12).map(init).collect()).await;
    let stays = scene.view().await.origin.unwrap();
    for answer in answers {
        assert_eq!(answer, stays);
    }
}

/// Fills a group and returns its view.
async fn fill(scene: &Scene, sequence: u64) -> Result<View, StoreError> {
    let count = u32::try_from(sequence).unwrap();
    let origin = GroupOrigin { partitions: (0..count).map(PartitionId).collect(), log: None };
    // At the first write a store may refuse a group that it could not distinguish from another.
    scene.store.init_group(&scene.group, &origin).await?;
    scene.introduce(&["a"]).await;
    let token = scene.claim(P, "a").await;
    scene.saved(&token, finished(sequence)).await;
    Ok(scene.view().await)
}

/// Each group must be distinct from all others, or be refused if the store may refuse it.
async fn assert_independent(scene: &Scene, groups: Vec<GroupId>, may_refuse: bool) {
    let mut filled: Vec<(Scene, View)> = Vec::new();
    for (sequence, group) in (1..).zip(groups) {
        let scene = scene.in_group(group);
        match fill(&scene, sequence).await {
            Ok(view) => filled.push((scene, view)),
            Err(StoreError::Refused { .. }) if may_refuse && sequence > 1 => {}
            Err(error) => panic!("{}: {error}", scene.group),
        }
    }
    for (number, (scene, view)) in filled.iter().enumerate() {
        assert_eq!(timeless(scene.view().await), timeless(view.clone()), "{}", scene.group);
        // Changes of this group do not show in the next ones.
        let token = scene.lease(P).await.token().unwrap();
        scene.release(&token).await;
        scene.seek(P, finished(77)).await;
        let host = host("a");
        assert!(
            scene.store.set_desired_state(&scene.group, &host, DesiredState { drain: true }).await.unwrap()
        );
        for (other, untouched) in &filled[number + 1..] {
            assert_eq!(other.heartbeat(&plain_record(host.clone())).await, DesiredState::default());
            assert_eq!(timeless(other.view().await), timeless(untouched.clone()), "{}", other.group);
        }
        scene.store.retire(&scene.group, &host).await.unwrap();
    }
}

pub async fn groups_that_differ_in_one_name_are_independent(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let base = scene.group.clone();
    let groups = vec![
        base.clone(),
        GroupId { group: "alarms".parse().unwrap(), ..base.clone() },
        GroupId { hub: "meters".parse().unwrap(), ..base.clone() },
        GroupId { namespace: fixture.group().namespace, ..base },
    ];
    assert_independent(&scene, groups, false).await;
}

pub async fn groups_whose_names_join_to_the_same_text_are_never_mixed_up(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let named = |hub: &str, group: &str| GroupId {
        hub: hub.parse().unwrap(),
        group: group.parse().unwrap(),
        ..scene.group.clone()
    };
    let groups =
        vec![named("a/b", "c"), named("a-b", "c"), named("a", "b-c"), named("a.b", "c"), named("a", "b.c")];
    assert_independent(&scene, groups, true).await;
}

pub async fn groups_that_differ_only_in_case_are_never_mixed_up(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let base = GroupId { group: "alarms".parse().unwrap(), ..scene.group.clone() };
    let groups = vec![
        base.clone(),
        GroupId { group: "Alarms".parse().unwrap(), ..base.clone() },
        GroupId { hub: base.hub.as_str().to_uppercase().parse().unwrap(), ..base },
    ];
    assert_independent(&scene, groups, true).await;
}

pub async fn the_longest_names_are_kept_apart(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let long = |last: char| {
        let fill = |prefix: &str, length: usize| {
            let middle = "x".repeat(length - prefix.len() - 1);
            format!("{prefix}{middle}{last}")
        };
        GroupId {
            namespace: fill(scene.group.namespace.as_str(), 260).parse().unwrap(),
            hub: fill("hub-", 256).parse().unwrap(),
            group: fill("group-", 50).parse().unwrap(),
        }
    };
    let end = |last| GroupId { group: long(last).group, ..long('1') };
    assert_independent(&scene, vec![long('1'), long('2'), end('3')], false).await;
}
