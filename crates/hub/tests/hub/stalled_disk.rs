//! Tests of a disk that hangs: calls that only read state do not wait for it.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use ephor_core::event::NewEvent;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::StartPosition;
use ephor_core::source::OpenRequest;
use ephor_hub::{Hub, HubConfig, HubError, LocalNamespace, NamespaceConfig};

use crate::common::Ticking;
use crate::common::blocking_files::{Gate, Gated};

/// Far longer than an answer takes that does not wait for the disk.
const PATIENCE: Duration = Duration::from_secs(20);

fn namespace() -> (Arc<LocalNamespace>, Hub, Arc<Gate>) {
    let (files, gates) = Gated::new();
    let namespace = LocalNamespace::on(files, NamespaceConfig::default(), Ticking::new(1_000, 0)).unwrap();
    let hub = namespace.create_hub(HubConfig::new("homes", 1).unwrap()).unwrap();
    (Arc::new(namespace), hub, gates.syncs)
}

/// The answer, if it comes while the disk does not answer. The gate opens in any case, so that nobody hangs.
fn answered<T: Send + 'static>(gate: &Gate, ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answers) = mpsc::channel();
    let asking = std::thread::spawn(move || drop(answer.send(ask())));
    let answered = answers.recv_timeout(PATIENCE).ok();
    gate.set_shut(false);
    asking.join().unwrap();
    answered
}

/// Somebody whom the shut gate keeps waiting.
fn waiting(gate: &Gate, act: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    gate.set_shut(true);
    let acting = std::thread::spawn(act);
    gate.waiting();
    acting
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn a_hub_describes_itself_while_a_commit_waits_for_the_disk() {
    let (_namespace, hub, gate) = namespace();
    let producer = hub.producer();
    let sending = waiting(&gate, move || assert!(block_on(producer.send(NewEvent::new("x"))).is_ok()));
    let asked = hub.clone();
    let described = answered(&gate, move || asked.describe()).expect("an answer without the disk");
    assert_eq!((described.partitions, described.segments), (1, 1));
    sending.join().unwrap();
    assert!(hub.describe().log_bytes > described.log_bytes, "the commit counts when it is stored");
}

#[test]
fn a_receiver_opens_while_a_new_group_waits_for_the_disk() {
    let (_namespace, hub, gate) = namespace();
    let changed = hub.clone();
    let changing = waiting(&gate, move || drop(changed.create_group("audit").unwrap()));
    let asked = hub.clone();
    let opened = answered(&gate, move || {
        let request = OpenRequest {
            group: ConsumerGroup::default_group(),
            partition: PartitionId(0),
            start: StartPosition::Earliest,
            epoch: None,
            receiver: String::new(),
            prefetch_events: 1,
            prefetch_bytes: 1,
        };
        (asked.describe().groups.len(), block_on(asked.receiver(request)).is_ok())
    });
    assert_eq!(opened, Some((1, true)));
    changing.join().unwrap();
    assert_eq!(hub.describe().groups.len(), 2);
}

#[test]
fn hubs_are_found_while_another_is_created_or_deleted() {
    let (namespace, _hub, gate) = namespace();
    let changed = namespace.clone();
    let creating =
        waiting(&gate, move || drop(changed.create_hub(HubConfig::new("offices", 1).unwrap()).unwrap()));
    let asked = namespace.clone();
    let found = answered(&gate, move || (asked.hub("homes").is_ok(), asked.hub("offices").is_ok()));
    assert_eq!(found, Some((true, false)), "an event that is not stored yet is not found");
    creating.join().unwrap();
    let changed = namespace.clone();
    let deleting = waiting(&gate, move || changed.delete_hub("offices").unwrap());
    let asked = namespace.clone();
    let found = answered(&gate, move || {
        (asked.hub("homes").is_ok(), matches!(asked.hub("offices"), Err(HubError::NotFound { .. })))
    });
    assert_eq!(found, Some((true, true)));
    deleting.join().unwrap();
}
