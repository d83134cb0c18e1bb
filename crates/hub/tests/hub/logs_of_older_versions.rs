//! Tests of a folder whose messages were validated by laxer rules than today's: strict AMQP clients can
//! read all its events, too.
//!
//! A version that allowed 255 elements without bytes in each array, and either type of text, wrote
//! `tests/golden/v1-older-rules`.

use ephor_amqp::validate::validate;
use ephor_core::ids::PartitionId;
use ephor_hub::{LocalNamespace, NamespaceConfig, NewEvent, SendError, Target, verify_folder};

use crate::common::{open_later, raw_events};
use crate::copies::copy_of_golden;
use crate::messages_with_older_rules::{
    HUB, PARTITION_KEY, START, bombs, compound_properties, messages, odd_texts,
};

/// The folder in `golden/`.
const GOLDEN: &str = "v1-older-rules";

#[tokio::test]
async fn readers_get_every_event_as_all_of_them_can_decode_it() {
    let folder = copy_of_golden(GOLDEN);
    let (_namespace, hub) = open_later(folder.path(), HUB, START);
    for ((_, key, message), sent) in raw_events(&hub, messages().len()).await.into_iter().zip(messages()) {
        assert_eq!(key.as_deref(), Some(PARTITION_KEY), "{}", sent.what);
        validate(&message).unwrap_or_else(|error| panic!("{}: {error}", sent.what));
        assert_eq!(message, sent.read, "{}", sent.what);
    }
}

#[tokio::test]
async fn too_many_elements_and_compound_properties_are_refused_with_the_reason() {
    let namespace = LocalNamespace::in_memory(NamespaceConfig::default()).unwrap();
    let hub = namespace.create_hub(ephor_hub::HubConfig::new(HUB, 1).unwrap()).unwrap();
    let mut batch = hub.producer().batch();
    let too_many = bombs().into_iter().map(|sent| (sent, "more than 1,024 elements that take no bytes"));
    let compound = compound_properties().into_iter().map(|sent| (sent, "these have simple types only"));
    for (sent, reason) in too_many.chain(compound) {
        let what = sent.what;
        match batch.push_message(None, &sent.stored) {
            Err(SendError::Unencodable(text)) => assert!(text.contains(reason), "{what}: {text}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    assert!(batch.is_empty());
}

#[tokio::test]
async fn text_of_the_other_type_is_stored_as_the_right_one() {
    let namespace = LocalNamespace::in_memory(NamespaceConfig::default()).unwrap();
    let hub = namespace.create_hub(ephor_hub::HubConfig::new(HUB, 1).unwrap()).unwrap();
    let mut batch = hub.producer().batch();
    for sent in odd_texts() {
        batch.push_message(None, &sent.stored).unwrap_or_else(|error| panic!("{}: {error}", sent.what));
    }
    hub.producer().send_encoded(Target::Partition(PartitionId(0)), batch).await.unwrap();
    for ((_, _, message), sent) in raw_events(&hub, odd_texts().len()).await.into_iter().zip(odd_texts()) {
        assert_eq!(message, sent.read, "{}", sent.what);
    }
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
