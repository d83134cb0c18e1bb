//! Tests of a folder whose messages were stored without validating every section: all its events can be read, without
//! their invalid sections.
//!
//! A version that validated neither headers nor footers wrote `tests/golden/v1-unvalidated`. This version refuses its
//! messages, so it cannot write them again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ephor_amqp::validate::validate;
use ephor_core::event::Event;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::Receiver;
use ephor_hub::files::DiskFiles;
use ephor_hub::{Hub, LocalNamespace, NamespaceConfig, NewEvent, Retention, SendError, verify_folder};
use ephor_testkit::CapturedLog;

use crate::common::Ticking;
use crate::copies::copy_folder;
use crate::unvalidated_messages::{HUB, Kept, START, messages};

fn copied() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1-unvalidated");
    copy_folder(&golden, folder.path()).unwrap();
    folder
}

fn open(folder: &Path) -> (LocalNamespace, Hub) {
    let files = Arc::new(DiskFiles::new(folder.to_owned()));
    let clock = Ticking::new(START + 1_000, 0);
    let namespace = LocalNamespace::on(files, NamespaceConfig::default(), clock).unwrap();
    let hub = namespace.hub(HUB).unwrap();
    assert_eq!(hub.describe().retention, Retention { age: None, bytes: None });
    (namespace, hub)
}

/// The messages of the partition, as a gateway takes them.
async fn stored(hub: &Hub) -> Vec<(u64, Option<String>, Vec<u8>)> {
    let mut reader = hub.reader(PartitionId(0), StartPosition::Earliest).await.unwrap();
    let mut found = Vec::new();
    while found.len() < messages().len() {
        let batch = reader.next(100, usize::MAX).await.unwrap();
        found.extend(
            batch.events().map(|event| {
                (event.sequence.0, event.partition_key.map(str::to_owned), event.message.to_vec())
            }),
        );
    }
    assert_eq!(reader.take_missed(), 0);
    found
}

#[tokio::test]
async fn readers_get_every_event_and_of_each_what_is_valid() {
    let folder = copied();
    let (_namespace, hub) = open(folder.path());
    for (index, ((number, key, message), sent)) in stored(&hub).await.into_iter().zip(messages()).enumerate()
    {
        let what = sent.what;
        assert_eq!((number, key.as_deref()), (index as u64, Some("home-7")), "{what}");
        let found = validate(&message).unwrap_or_else(|error| panic!("{what}: {error}"));
        match sent.kept {
            Kept::Everything => assert_eq!(message, sent.message, "{what}"),
            Kept::AllButOneSection => {
                assert!(message.len() < sent.message.len(), "{what}");
                assert_eq!(&message[found.body.content], sent.body, "{what}");
            }
            Kept::BodyAsBytes => assert_eq!(&message[found.body.content], sent.message, "{what}"),
        }
    }
}

#[tokio::test]
async fn processors_get_the_same_events() {
    let folder = copied();
    let (_namespace, hub) = open(folder.path());
    let mut reader = hub.reader(PartitionId(0), StartPosition::Earliest).await.unwrap();
    let mut events = Vec::<Event>::new();
    while events.len() < messages().len() {
        reader.receive(&mut events, 100).await.unwrap();
    }
    for (event, sent) in events.iter().zip(messages()) {
        let body = if sent.kept == Kept::BodyAsBytes { sent.message } else { sent.body };
        assert_eq!(event.body, body, "{}", sent.what);
    }
}

#[tokio::test]
async fn none_of_them_is_stored_again() {
    let folder = copied();
    let (_namespace, hub) = open(folder.path());
    let mut batch = hub.producer().batch();
    for sent in messages() {
        let pushed = batch.push_message(None, &sent.message);
        match sent.kept {
            Kept::Everything => pushed.unwrap(),
            _ => assert!(matches!(pushed, Err(SendError::Unencodable(_))), "{}", sent.what),
        }
    }
    assert_eq!(batch.len(), 2);
}

#[tokio::test]
async fn the_folder_is_intact_and_is_written_on() {
    let folder = copied();
    let (namespace, hub) = open(folder.path());
    let receipt = hub.producer().send_to(PartitionId(0), NewEvent::new("news")).await.unwrap();
    assert_eq!(receipt.first.0, messages().len() as u64);
    drop((namespace, hub));
    assert!(verify_folder(folder.path()).unwrap().iter().all(|hub| hub.is_intact()));
}

#[tokio::test]
async fn what_is_left_out_is_logged_once_however_often_it_is_read() {
    let log = CapturedLog::of_this_thread();
    let folder = copied();
    let (_namespace, hub) = open(folder.path());
    for _ in 0..3 {
        stored(&hub).await;
    }
    let lines = log.take();
    let said = lines.iter().filter(|line| line.contains("an event has invalid sections")).count();
    let invalid = messages().iter().filter(|sent| sent.kept != Kept::Everything).count();
    assert_eq!(said, invalid, "{lines:?}");
}
