//! Tests of a folder whose messages were validated by laxer rules than today's: all its events can be read, by readers
//! that insist on the types of the specification, too.
//!
//! A version that allowed 255 elements without bytes in each array, and either type of text, wrote `tests/golden/v1-lax`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ephor_amqp::validate::validate;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_hub::files::DiskFiles;
use ephor_hub::{Hub, LocalNamespace, NamespaceConfig, NewEvent, SendError, Target, verify_folder};

use crate::common::Ticking;
use crate::copies::copy_folder;
use crate::older_rules_messages::{
    HUB, PARTITION_KEY, START, bombs, compound_properties, messages, odd_texts,
};

fn copied() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1-lax");
    copy_folder(&golden, folder.path()).unwrap();
    folder
}

fn open(folder: &Path) -> (LocalNamespace, Hub) {
    let files = Arc::new(DiskFiles::new(folder.to_owned()));
    let clock = Ticking::new(START + 1_000, 0);
    let namespace = LocalNamespace::on(files, NamespaceConfig::default(), clock).unwrap();
    let hub = namespace.hub(HUB).unwrap();
    (namespace, hub)
}

/// The keys and messages of the partition, as a gateway takes them.
async fn stored(hub: &Hub, events: usize) -> Vec<(Option<String>, Vec<u8>)> {
    let mut reader = hub.reader(PartitionId(0), StartPosition::Earliest).await.unwrap();
    let mut found = Vec::new();
    while found.len() < events {
        let batch = reader.next(100, usize::MAX).await.unwrap();
        found.extend(
            batch.events().map(|event| (event.partition_key.map(str::to_owned), event.message.to_vec())),
        );
    }
    assert_eq!(reader.take_missed(), 0);
    found
}

#[tokio::test]
async fn readers_get_every_event_as_all_of_them_can_decode_it() {
    let folder = copied();
    let (_namespace, hub) = open(folder.path());
    for ((key, message), sent) in stored(&hub, messages().len()).await.into_iter().zip(messages()) {
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
    for ((_, message), sent) in stored(&hub, odd_texts().len()).await.into_iter().zip(odd_texts()) {
        assert_eq!(message, sent.read, "{}", sent.what);
    }
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
