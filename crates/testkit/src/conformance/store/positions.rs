//! Conformance tests of positions: each is read back as it was written.

#![allow(missing_docs, reason = "the name of a property is its promise")]

use ephor_core::checkpoint::Position;
use ephor_core::ids::{LogId, PartitionId};
use ephor_core::lease::ClaimCause;
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::store::{ClaimOutcome, SaveOutcome, SeekOutcome, SeekRequest};
use ephor_core::time::Timestamp;

use super::StoreFixture;
use super::first_calls::{ODD_TEXTS, P, Scene, finished};

/// The largest number that fits a signed column of a database.
const MAX_NUMBER: u64 = i64::MAX as u64;

/// Numbers that are easily corrupted, and offsets that only look like numbers.
fn positions() -> Vec<Position> {
    let sequences = [0, 1, (1 << 53) + 1, MAX_NUMBER - 1, MAX_NUMBER].map(SequenceNumber);
    let offsets = ["0", "42", "007", "-1", "12:34", "18446744073709551616", "@latest", "a b/c=d"];
    let offsets = offsets.map(Offset::new);
    let times = [0, 1, 1_700_000_000_123].map(Timestamp);
    let mut positions = vec![
        Position::Start(StartPosition::Earliest),
        Position::Start(StartPosition::Latest),
        Position::Finished {
            sequence: SequenceNumber(5),
            offset: Some(Offset::number(MAX_NUMBER)),
            enqueued_at: Some(Timestamp(1_700_000_000_123)),
        },
    ];
    for sequence in sequences {
        positions.push(Position::Finished { sequence, offset: None, enqueued_at: None });
        positions.push(Position::Start(StartPosition::at(sequence)));
        positions.push(Position::Start(StartPosition::after(sequence)));
    }
    for offset in offsets {
        let sequence = SequenceNumber(5);
        positions.push(Position::Finished { sequence, offset: Some(offset.clone()), enqueued_at: None });
        for inclusive in [true, false] {
            positions.push(Position::Start(StartPosition::Offset { offset: offset.clone(), inclusive }));
        }
    }
    for time in times {
        let sequence = SequenceNumber(5);
        positions.push(Position::Finished { sequence, offset: None, enqueued_at: Some(time) });
        positions.push(Position::Start(StartPosition::EnqueuedTime(time)));
    }
    positions
}

/// Checks that the view and the next claim return this position.
async fn assert_reads_back(scene: &Scene, partition: PartitionId, position: Position, log: Option<LogId>) {
    let seen = scene.view().await.checkpoint(partition).cloned();
    let request = scene.request(partition, "reader", ClaimCause::Expired).await;
    let ClaimOutcome::Won { checkpoint, .. } = scene.try_claim(&request).await else {
        panic!("no other host claims");
    };
    assert_eq!(checkpoint, seen);
    let seen = seen.expect("there is a checkpoint");
    assert_eq!((seen.position, seen.log), (position, log));
}

pub async fn every_position_that_is_saved_reads_back(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    for (number, position) in (0..).zip(positions()) {
        let partition = PartitionId(number);
        let token = scene.claim(partition, "a").await;
        scene.saved(&token, position.clone()).await;
        assert_reads_back(&scene, partition, position, None).await;
    }
}

pub async fn every_position_that_is_sought_reads_back(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    for position in positions() {
        scene.seek(P, position.clone()).await;
        assert_reads_back(&scene, P, position, None).await;
    }
}

pub async fn log_ids_read_back(fixture: &dyn StoreFixture) {
    let scene = Scene::new(fixture).await;
    for text in ODD_TEXTS {
        let log = Some(LogId::new(text));
        let position = finished(3);
        let request =
            SeekRequest { partition: P, position, log: log.clone(), by: "ada".into(), force: false };
        let outcome = scene.store.seek(&scene.group, &request).await.unwrap();
        assert!(matches!(outcome, SeekOutcome::Done { .. }), "{outcome:?}");
        assert_reads_back(&scene, P, finished(3), log.clone()).await;
        let token = scene.claim_as(P, "a", ClaimCause::Expired).await;
        let outcome = scene.save_in(&token, &finished(4), log.as_ref()).await;
        assert!(matches!(&outcome, SaveOutcome::Saved(c) if c.log == log), "{outcome:?}");
        assert_reads_back(&scene, P, finished(4), log).await;
    }
}
