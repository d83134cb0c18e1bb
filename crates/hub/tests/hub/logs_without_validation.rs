//! Tests of a folder whose messages were stored without validating every section: all its events can be
//! read, without their invalid sections.
//!
//! A version that validated neither headers nor footers wrote `tests/golden/v1-without-validation`. This version refuses its
//! messages, so it cannot write them again.

use ephor_amqp::validate::validate;
use ephor_core::event::Event;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::Receiver;
use ephor_hub::{NewEvent, Retention, SendError, verify_folder};
use ephor_testkit::CapturedLog;

use crate::common::{open_later, raw_events};
use crate::copies::copy_of_golden;
use crate::messages_without_validation::{HUB, Kept, START, messages};

/// The folder in `golden/`.
const GOLDEN: &str = "v1-without-validation";

#[tokio::test]
async fn readers_get_every_event_and_of_each_what_is_valid() {
    let folder = copy_of_golden(GOLDEN);
    let (_namespace, hub) = open_later(folder.path(), HUB, START);
    assert_eq!(hub.describe().retention, Retention { age: None, bytes: None });
    for (index, ((number, key, message), sent)) in
        raw_events(&hub, messages().len()).await.into_iter().zip(messages()).enumerate()
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
    let folder = copy_of_golden(GOLDEN);
    let (_namespace, hub) = open_later(folder.path(), HUB, START);
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
    let folder = copy_of_golden(GOLDEN);
    let (_namespace, hub) = open_later(folder.path(), HUB, START);
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
    let folder = copy_of_golden(GOLDEN);
    let (namespace, hub) = open_later(folder.path(), HUB, START);
    let receipt = hub.producer().send_to(PartitionId(0), NewEvent::new("news")).await.unwrap();
    assert_eq!(receipt.first.0, messages().len() as u64);
    drop((namespace, hub));
    assert!(verify_folder(folder.path()).unwrap().iter().all(|hub| hub.is_intact()));
}

#[tokio::test]
async fn what_is_left_out_is_logged_once_however_often_it_is_read() {
    let log = CapturedLog::of_this_thread();
    let folder = copy_of_golden(GOLDEN);
    let (_namespace, hub) = open_later(folder.path(), HUB, START);
    for _ in 0..3 {
        raw_events(&hub, messages().len()).await;
    }
    let lines = log.take();
    let said = lines.iter().filter(|line| line.contains("an event has invalid sections")).count();
    let invalid = messages().iter().filter(|sent| sent.kept != Kept::Everything).count();
    assert_eq!(said, invalid, "{lines:?}");
}
