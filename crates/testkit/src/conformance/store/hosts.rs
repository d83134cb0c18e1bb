//! Conformance tests of host records and desired states.

#![allow(missing_docs, reason = "the name of a property is its promise")]

use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::host_record::{
    HandoverAnswer, HandoverReply, HandoverRequest, HostRecord, HostState, HostStatistics, ReadHub,
};
use ephor_core::ids::{HostId, Incarnation, LogId, PartitionId};
use ephor_core::store::DesiredState;
use ephor_core::time::Timestamp;

use super::StoreFixture;
use super::first_calls::{ODD_TEXTS, P, Scene, host, plain_record};

const DRAIN: DesiredState = DesiredState { drain: true };
const NO_DRAIN: DesiredState = DesiredState { drain: false };

/// Every field differs from its default and from every other.
fn full_record(id: HostId) -> HostRecord {
    let want = |partition, owner, epoch| HandoverRequest {
        partition: PartitionId(partition),
        owner: host(owner),
        epoch: Epoch::from_stored(epoch),
    };
    let answer = |partition, asker, reply| HandoverAnswer {
        partition: PartitionId(partition),
        asker: host(asker),
        reply,
    };
    HostRecord {
        id,
        beat: 11,
        state: HostState::Draining,
        lease_duration: Duration::from_millis(12_345),
        max_partitions: Some(13),
        wants: vec![want(10, "b", 14), want(2, "c", 15)],
        answers: vec![
            answer(16, "d", HandoverReply::DrainingUntil(Timestamp(1_700_000_000_017))),
            answer(3, "e", HandoverReply::No),
        ],
        statistics: HostStatistics { owned: 18, events: 19, lag_events: 20, failures: 21 },
        software: "22.23.24-beta+25".into(),
        hub: Some(ReadHub { endpoint: "26.example:27/28".into(), log: LogId::new("29") }),
    }
}

async fn stored(scene: &Scene, id: &HostId) -> Option<HostRecord> {
    scene.view().await.host(id).map(|entry| entry.record.clone())
}

async fn assert_reads_back(scene: &Scene, record: HostRecord) {
    scene.heartbeat(&record).await;
    assert_eq!(stored(scene, &record.id).await, Some(record));
}

pub async fn a_heartbeat_reads_back_field_by_field(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    assert_reads_back(&scene, full_record(host("a"))).await;
    assert_reads_back(&scene, plain_record(host("b"))).await;
    assert_eq!(scene.view().await.hosts.len(), 2);
}

pub async fn a_heartbeat_replaces_the_one_before(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    assert_reads_back(&scene, full_record(host("a"))).await;
    assert_reads_back(&scene, HostRecord { beat: 12, ..plain_record(host("a")) }).await;
    assert_reads_back(&scene, HostRecord { beat: 13, ..full_record(host("a")) }).await;
    assert_eq!(scene.view().await.hosts.len(), 1);
}

pub async fn every_state_and_odd_text_reads_back(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    for state in [HostState::Active, HostState::Standby, HostState::Draining, HostState::Unhealthy] {
        assert_reads_back(&scene, HostRecord { state, ..plain_record(host("a")) }).await;
    }
    for text in ODD_TEXTS {
        assert_reads_back(&scene, HostRecord { software: text.into(), ..plain_record(host("a")) }).await;
        let visible: String = text.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
        let record = HostRecord {
            wants: vec![HandoverRequest {
                partition: P,
                owner: host(&visible),
                epoch: Epoch::from_stored(1),
            }],
            ..plain_record(host(&visible))
        };
        assert_reads_back(&scene, record).await;
        let token = scene.claim_as(P, &visible, ephor_core::lease::ClaimCause::Expired).await;
        assert_eq!(token.owner, host(&visible));
        assert_eq!(scene.lease(P).await.token(), Some(token));
    }
}

pub async fn extreme_figures_read_back(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let largest = i64::MAX as u64;
    // An incarnation is random, so half of them do not fit a signed column.
    for incarnation in [0, largest, largest + 1, u64::MAX].map(Incarnation) {
        let id = HostId { name: "ж".repeat(200).parse().unwrap(), incarnation };
        let record = HostRecord {
            beat: largest,
            max_partitions: Some(u32::MAX),
            statistics: HostStatistics {
                owned: u32::MAX,
                events: largest,
                lag_events: largest,
                failures: largest,
            },
            wants: vec![HandoverRequest {
                partition: PartitionId(u32::MAX),
                owner: id.clone(),
                epoch: Epoch::from_stored(largest),
            }],
            ..plain_record(id)
        };
        assert_reads_back(&scene, record).await;
    }
    assert_reads_back(&scene, HostRecord { max_partitions: Some(0), ..plain_record(host("zero")) }).await;
    assert_eq!(scene.view().await.hosts.len(), 5);
}

pub async fn two_incarnations_under_one_name_are_two_hosts(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let (old, new) = (host("a"), HostId { incarnation: Incarnation(2), ..host("a") });
    assert_reads_back(&scene, HostRecord { beat: 40, ..plain_record(old.clone()) }).await;
    assert_reads_back(&scene, HostRecord { beat: 1, ..plain_record(new.clone()) }).await;
    assert_eq!(stored(&scene, &old).await.map(|record| record.beat), Some(40));
    assert!(scene.store.set_desired_state(&scene.group, &old, DRAIN).await.unwrap());
    assert_eq!(scene.heartbeat(&plain_record(new.clone())).await, NO_DRAIN);
    scene.store.retire(&scene.group, &old).await.unwrap();
    assert_eq!(stored(&scene, &old).await, None);
    assert!(stored(&scene, &new).await.is_some());
}

pub async fn who_retires_is_gone_and_keeps_its_leases(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    scene.introduce(&["a", "b"]).await;
    let token = scene.claim(P, "a").await;
    // Twice: a host that does not know whether the call succeeded repeats it.
    for _ in 0..2 {
        scene.store.retire(&scene.group, &host("a")).await.unwrap();
        assert_eq!(stored(&scene, &host("a")).await, None);
    }
    assert!(stored(&scene, &host("b")).await.is_some());
    assert_eq!(scene.lease(P).await.token(), Some(token));
    scene.introduce(&["a"]).await;
    assert!(stored(&scene, &host("a")).await.is_some());
}

pub async fn a_desired_state_reaches_its_host_with_the_next_heartbeat(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    let (mut a, b) = (plain_record(host("a")), plain_record(host("b")));
    assert_eq!(scene.heartbeat(&a).await, NO_DRAIN);
    assert_eq!(scene.heartbeat(&b).await, NO_DRAIN);
    assert!(scene.store.set_desired_state(&scene.group, &host("a"), DRAIN).await.unwrap());
    // It stays until it is withdrawn, and does not change the host's record.
    assert_eq!(stored(&scene, &host("a")).await.as_ref(), Some(&a));
    for beat in 2..5 {
        a.beat = beat;
        assert_eq!(scene.heartbeat(&a).await, DRAIN);
    }
    assert_eq!(scene.heartbeat(&b).await, NO_DRAIN);
    assert!(scene.store.set_desired_state(&scene.group, &host("a"), NO_DRAIN).await.unwrap());
    assert_eq!(scene.heartbeat(&a).await, NO_DRAIN);
}

pub async fn a_desired_state_for_an_unknown_host_is_refused(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    assert!(!scene.store.set_desired_state(&scene.group, &host("a"), DRAIN).await.unwrap());
    assert_eq!(scene.heartbeat(&plain_record(host("a"))).await, NO_DRAIN);
    let other = HostId { incarnation: Incarnation(2), ..host("a") };
    assert!(!scene.store.set_desired_state(&scene.group, &other, DRAIN).await.unwrap());
}

pub async fn a_desired_state_does_not_outlive_its_host(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    scene.introduce(&["a"]).await;
    assert!(scene.store.set_desired_state(&scene.group, &host("a"), DRAIN).await.unwrap());
    scene.store.retire(&scene.group, &host("a")).await.unwrap();
    assert!(!scene.store.set_desired_state(&scene.group, &host("a"), DRAIN).await.unwrap());
    assert_eq!(scene.heartbeat(&plain_record(host("a"))).await, NO_DRAIN);
}
