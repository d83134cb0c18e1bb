//! Tests of owners that were paused for a long time, of damaged objects, of the number of objects that are
//! kept, and of the content of an update.

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use super::*;

fn memory() -> (Arc<dyn ObjectStore>, Log) {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let log = log_in(&store);
    (store, log)
}

fn update(number: u64) -> Path {
    Path::from(format!("homes/03/updates/{number:012}"))
}

#[tokio::test]
async fn a_zombie_is_fenced_and_its_earlier_entry_counts() {
    let (_, log) = memory();
    let (mut old, mut new) = (open(&log, 1).await, open(&log, 2).await);
    fold(&mut old, 1..=5);
    fold(&mut new, 1..=8);
    assert_eq!(old.flush().await.unwrap(), Flushed { number: Some(1), last: Some(5) });
    // The new owner did not know of that: it takes it over, and folds its own events on top.
    assert_eq!(new.flush().await.unwrap(), Flushed { number: Some(2), last: Some(8) });
    assert!(new.state().is_right());
    assert_eq!(new.state().replayed, 5);
    fold(&mut old, 6..=9);
    for _ in 0..2 {
        let error = old.flush().await.unwrap_err();
        assert!(matches!(error, ResultWriterError::Fenced { epoch: 2, mine: 1, .. }), "{error}");
        assert!(error.to_string().contains("homes/03 was written by host-2 with epoch 2"), "{error}");
    }
    let error = ResultWriter::<OrderSensitiveState>::open(log, 1, "host-1").await.unwrap_err();
    assert!(matches!(error, ResultWriterError::Fenced { .. }), "{error}");
}

#[tokio::test]
async fn a_zombie_that_slept_while_its_place_was_tidied_away_is_fenced() {
    let (store, log) = memory();
    let mut old = open(&log, 1).await;
    fold(&mut old, 1..=5);
    let mut follower = Follower::<OrderSensitiveState>::new(log.clone());
    follower.next().await.unwrap();
    let mut new = open(&log, 2).await.with_snapshot_every(2);
    for sequence in 1..=9 {
        fold(&mut new, sequence..=sequence);
        new.flush().await.unwrap();
    }
    assert!(store.head(&update(1)).await.is_err(), "it was tidied away");
    let error = old.flush().await.unwrap_err();
    assert!(matches!(error, ResultWriterError::Fenced { epoch: 2, .. }), "{error}");
    assert!(store.head(&update(1)).await.is_err(), "nothing of it is left");
    // It died before it could clean up: readers do not fall for it.
    let entry = Entry {
        number: 1,
        epoch: 1,
        owner: "host-1".into(),
        token: 7,
        first: 1,
        last: 5,
        pushed: vec![],
        update: old.state().clone(),
    };
    store.put(&update(1), log.write_update(&entry).unwrap().into()).await.unwrap();
    assert_eq!(follower.next().await.unwrap(), Some(News::Whole));
    assert_eq!((follower.number(), follower.state().last()), (9, Some(9)));
    new.flush().await.unwrap();
    for sequence in 10..=12 {
        fold(&mut new, sequence..=sequence);
        new.flush().await.unwrap();
    }
    assert!(store.head(&update(1)).await.is_err(), "and the next to tidy takes it along");
}

#[tokio::test]
async fn what_is_kept_is_little() {
    use futures_util::TryStreamExt;
    let (store, log) = memory();
    let mut writer = open(&log, 1).await;
    for sequence in 1..=(SNAPSHOT_EVERY * 5) {
        fold(&mut writer, sequence..=sequence);
        writer.flush().await.unwrap();
        let objects: Vec<_> = store.list(None).try_collect().await.unwrap();
        assert!(objects.len() as u64 <= 2 * SNAPSHOT_EVERY + 2, "{} after {sequence}", objects.len());
    }
    assert_eq!(open(&log, 2).await.state().last(), Some(SNAPSHOT_EVERY * 5));
}

#[tokio::test]
async fn an_entry_says_what_it_covers_and_when_it_was_pushed() {
    let (_, log) = memory();
    let mut follower = Follower::<OrderSensitiveState>::new(log.clone());
    assert_eq!(follower.next().await.unwrap(), Some(News::Whole));
    assert_eq!(follower.next().await.unwrap(), None);
    let mut writer = open(&log, 4).await;
    assert_eq!(writer.flush().await.unwrap(), Flushed { number: None, last: None });
    fold(&mut writer, 1..=40);
    writer.skip(41);
    writer.flush().await.unwrap();
    let Some(News::Update(entry)) = follower.next().await.unwrap() else { panic!("an update") };
    assert_eq!((entry.number, entry.epoch, entry.owner.as_str()), (1, 4, "host-4"));
    assert_eq!((entry.first, entry.last), (1, 41));
    assert!(entry.pushed.len() <= SAMPLES && entry.pushed.starts_with(&[1_001, 1_004]), "{:?}", entry.pushed);
    // What is delivered again is not new: its age would be the age of the crash.
    let mut next = open(&log, 5).await;
    fold(&mut next, 30..=42);
    next.flush().await.unwrap();
    let Some(News::Update(entry)) = follower.next().await.unwrap() else { panic!("an update") };
    assert_eq!((entry.first, entry.last, entry.pushed), (30, 42, vec![1_042]));
}

#[tokio::test]
async fn damage_is_an_error_that_names_the_object() {
    let (store, log) = memory();
    let mut writer = open(&log, 1).await.with_snapshot_every(2);
    for sequence in 1..=3 {
        fold(&mut writer, sequence..=sequence);
        writer.flush().await.unwrap();
    }
    let damage = async |object: &Path| {
        let mut bytes = store.get(object).await.unwrap().bytes().await.unwrap().to_vec();
        bytes[10] ^= 1;
        store.put(object, PutPayload::from(bytes)).await.unwrap();
        ResultWriter::<OrderSensitiveState>::open(log.clone(), 2, "host-2").await.unwrap_err().to_string()
    };
    let error = damage(&update(3)).await;
    assert!(error.contains("homes/03/updates/000000000003 is damaged"), "{error}");
    let error = Follower::<OrderSensitiveState>::new(log.clone()).next().await.unwrap_err().to_string();
    assert!(error.contains("homes/03/updates/000000000003 is damaged"), "{error}");
    let error = damage(&Path::from("homes/03/snapshots/000000000002")).await;
    assert!(error.contains("homes/03/snapshots/000000000002 is damaged"), "{error}");
    // One that lies under another's name.
    let two = store.get(&update(2)).await.unwrap().bytes().await.unwrap();
    store.delete(&Path::from("homes/03/snapshots/000000000002")).await.unwrap();
    store.put(&update(1), two.into()).await.unwrap();
    let error = ResultWriter::<OrderSensitiveState>::open(log, 2, "host-2").await.unwrap_err().to_string();
    assert!(error.contains("updates/000000000001 is damaged (it contains the number 2)"), "{error}");
}
