//! Tests of the epoch rules for receivers ("With Epoch", "No Epoch", "Mixed Mode" in the documentation of
//! *Event Processor Host*), with the error texts of the service; on a hub on disk and on one in memory.
//!
//! The conformance suite in `ephor-testkit` tests the same for every source. These tests add the exact texts, and what
//! only this hub has: a clock that the test moves, group names without case, and the reader for tools.

mod vanished_receivers;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::{OpenError, OpenRequest, ReceiveError, SourceError};
use ephor_hub::files::{DiskFiles, Files, MemoryFiles};
use ephor_hub::{
    Durability, Hub, HubConfig, HubReceiver, LocalNamespace, NamespaceConfig, NewEvent, ReceiverDescription,
};
use ephor_testkit::conformance::source::check;

use crate::common::Ticking;

const START: i64 = 1_000_000_000_000;
const MINUTE: i64 = 60_000;

/// A hub of two partitions on a clock that stands still until it is set.
struct ClockedHub {
    hub: Hub,
    clock: Arc<Ticking>,
    namespace: LocalNamespace,
    _folder: tempfile::TempDir,
}

impl ClockedHub {
    fn new(durability: Durability, vanish_after: Duration) -> Self {
        eprintln!("a hub of durability {durability}");
        let (clock, folder) = (Ticking::new(START, 0), tempfile::tempdir().unwrap());
        let files: Arc<dyn Files> = match durability {
            Durability::Memory => Arc::new(MemoryFiles::default()),
            _ => Arc::new(DiskFiles::new(folder.path().to_owned())),
        };
        let config = NamespaceConfig { durability, vanish_after, ..NamespaceConfig::default() };
        let namespace = LocalNamespace::on(files, config, clock.clone()).unwrap();
        let mut config = HubConfig::new("homes", 2).unwrap();
        config.groups = vec!["Alarms".parse().unwrap()];
        let hub = namespace.create_hub(config).unwrap();
        Self { hub, clock, namespace, _folder: folder }
    }

    /// On disk and in memory, with the service's ten minutes.
    fn both() -> [Self; 2] {
        let ten_minutes = NamespaceConfig::default().vanish_after;
        [Durability::Disk, Durability::Memory].map(|durability| Self::new(durability, ten_minutes))
    }

    async fn open(&self, name: &str, epoch: Option<u64>) -> HubReceiver {
        self.hub.receiver(request(name, epoch)).await.unwrap()
    }

    async fn refusal(&self, name: &str, epoch: Option<u64>) -> OpenError {
        self.hub.receiver(request(name, epoch)).await.unwrap_err()
    }

    async fn send(&self, text: &'static str) {
        self.hub.producer().send_to(PartitionId(0), NewEvent::new(text)).await.unwrap();
    }

    fn pass(&self, minutes: i64) {
        self.clock.set(START + minutes * MINUTE);
    }
}

fn request(name: &str, epoch: Option<u64>) -> OpenRequest {
    OpenRequest {
        group: "$Default".parse().unwrap(),
        partition: PartitionId(0),
        start: StartPosition::Earliest,
        epoch: epoch.map(Epoch::from_stored),
        receiver: name.to_owned(),
        prefetch_events: 100,
        prefetch_bytes: 1 << 20,
    }
}

async fn next(receiver: &mut HubReceiver) -> u64 {
    receiver.next(1, usize::MAX).await.unwrap().events().next().unwrap().sequence.0
}

/// The epoch, the name and the words that a receiver is disconnected with.
async fn disconnected(receiver: &mut HubReceiver) -> (Option<u64>, Option<String>, String) {
    match receiver.next(1, usize::MAX).await.unwrap_err() {
        ReceiveError::Disconnected { epoch, by, message } => (epoch.map(Epoch::get), by, message),
        other => panic!("not disconnected: {other}"),
    }
}

fn refused(error: OpenError) -> (Option<u64>, Option<String>, String) {
    match error {
        OpenError::Refused { epoch, by, message } => (epoch.map(Epoch::get), by, message),
        other => panic!("not refused: {other}"),
    }
}

fn stolen(new: &str, epoch: u64, old: &str, old_epoch: &str) -> String {
    format!(
        "New receiver '{new}' with higher epoch of '{epoch}' is created hence current receiver '{old}' with \
         epoch '{old_epoch}' is getting disconnected. If you are recreating the receiver, make sure a higher \
         epoch is used."
    )
}

// With epoch.

#[tokio::test]
async fn with_no_existing_receiver_one_opens_with_any_epoch() {
    for clocked in ClockedHub::both() {
        clocked.send("door").await;
        for epoch in [7, 0, u64::MAX, 1] {
            assert_eq!(next(&mut clocked.open("owner", Some(epoch)).await).await, 0, "epoch {epoch}");
        }
    }
}

#[tokio::test]
async fn a_higher_epoch_is_created_and_the_lower_one_disconnected_in_the_words_of_the_service() {
    for clocked in ClockedHub::both() {
        let mut old = clocked.open("old", Some(3)).await;
        let mut new = clocked.open("new", Some(4)).await;
        let told = disconnected(&mut old).await;
        assert_eq!(told, (Some(4), Some("new".into()), stolen("new", 4, "old", "3")));
        clocked.send("door").await;
        assert_eq!(next(&mut new).await, 0);
    }
}

#[tokio::test]
async fn an_equal_epoch_is_created_and_the_other_disconnected_in_the_words_of_the_service() {
    for clocked in ClockedHub::both() {
        let mut old = clocked.open("old", Some(0)).await;
        let mut new = clocked.open("new", Some(0)).await;
        let told = disconnected(&mut old).await;
        assert_eq!(told, (Some(0), Some("new".into()), stolen("new", 0, "old", "0")));
        clocked.send("door").await;
        assert_eq!(next(&mut new).await, 0);
    }
}

#[tokio::test]
async fn a_lower_epoch_fails_since_a_higher_one_exists_in_the_words_of_the_service() {
    for clocked in ClockedHub::both() {
        let mut owner = clocked.open("owner", Some(5)).await;
        let told = refused(clocked.refusal("late", Some(4)).await);
        let text = "Receiver 'owner' with a higher epoch '5' already exists. Receiver 'late' with epoch 4 cannot \
                    be created. Make sure you are creating receiver with increasing epoch value to ensure \
                    connectivity, or ensure all old epoch receivers are closed or disconnected.";
        assert_eq!(told, (Some(5), Some("owner".into()), text.to_owned()));
        clocked.send("door").await;
        assert_eq!(next(&mut owner).await, 0, "the owner continues");
    }
}

#[tokio::test]
async fn a_closed_owner_leaves_no_epoch_behind() {
    for clocked in ClockedHub::both() {
        drop(clocked.open("owner", Some(9)).await);
        let _lower = clocked.open("lower", Some(1)).await;
    }
}

#[tokio::test]
async fn a_restart_leaves_no_epoch_behind() {
    let folder = tempfile::tempdir().unwrap();
    let open = || LocalNamespace::open(folder.path(), NamespaceConfig::default()).unwrap();
    let namespace = open();
    let hub = namespace.create_hub(HubConfig::new("homes", 2).unwrap()).unwrap();
    let owner = hub.receiver(request("owner", Some(9))).await.unwrap();
    drop(namespace);
    let again = open();
    let _lower = again.hub("homes").unwrap().receiver(request("lower", Some(1))).await.unwrap();
    drop(owner);
}

#[tokio::test]
async fn a_disconnected_receiver_takes_nothing_more_not_even_what_it_has_read_already() {
    for clocked in ClockedHub::both() {
        let events = ["door", "window", "roof"].map(NewEvent::new);
        let target = ephor_hub::Target::Partition(PartitionId(0));
        clocked.hub.producer().send_batch(target, events).await.unwrap();
        let mut old = clocked.open("old", Some(1)).await;
        assert_eq!(next(&mut old).await, 0, "and two more lie ahead");
        let _new = clocked.open("new", Some(2)).await;
        assert_eq!(disconnected(&mut old).await.0, Some(2));
        assert_eq!(disconnected(&mut old).await.0, Some(2), "it stays so");
    }
}

// Without epoch.

#[tokio::test]
async fn whoever_wants_no_event_hears_of_its_end_and_has_taken_none() {
    for clocked in ClockedHub::both() {
        let mut first = clocked.open("first", Some(1)).await;
        clocked.send("door").await;
        {
            let mut ending = pin!(first.disconnected());
            assert!(poll(ending.as_mut()).is_pending());
            clocked.send("window").await;
            assert!(poll(ending.as_mut()).is_pending(), "events are no ending");
        }
        assert_eq!(next(&mut first).await, 0);
        let mut second = {
            let mut ending = pin!(first.disconnected());
            assert!(poll(ending.as_mut()).is_pending());
            let second = clocked.open("second", Some(2)).await;
            let error = ending.await;
            assert!(matches!(error, ReceiveError::Disconnected { .. }), "{error}");
            second
        };
        assert!(matches!(first.disconnected().await, ReceiveError::Disconnected { .. }), "and it stays so");
        let mut ending = pin!(second.disconnected());
        assert!(poll(ending.as_mut()).is_pending());
        clocked.namespace.delete_hub("homes").unwrap();
        let error = ending.await;
        assert!(matches!(error, ReceiveError::Source(SourceError::NotFound { .. })), "{error}");
    }
}

fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn up_to_five_receivers_without_epoch_read_beside_each_other() {
    for clocked in ClockedHub::both() {
        clocked.send("door").await;
        let mut five = Vec::new();
        for name in ["a", "b", "c", "d", "e"] {
            five.push(clocked.open(name, None).await);
        }
        for receiver in &mut five {
            assert_eq!(next(receiver).await, 0);
        }
    }
}

#[tokio::test]
async fn a_sixth_receiver_without_epoch_is_told_the_five_in_the_words_of_the_service() {
    for clocked in ClockedHub::both() {
        let mut five = Vec::new();
        for name in ["a", "b", "", "d", "e"] {
            five.push(clocked.open(name, None).await);
        }
        let refusal = clocked.refusal("f", None).await;
        assert!(matches!(refusal, OpenError::TooManyReceivers { .. }), "{refusal:?}");
        assert_eq!(
            refusal.to_string(),
            "Exceeded the maximum number of allowed receivers per partition in a consumer group which is 5. \
             List of connected receivers - a, b, nil, d, e."
        );
        five.pop();
        five.push(clocked.open("f", None).await);
    }
}

// Mixed.

#[tokio::test]
async fn none_without_epoch_opens_beside_an_owner_in_the_words_of_the_service() {
    for clocked in ClockedHub::both() {
        let mut owner = clocked.open("owner", Some(5)).await;
        let told = refused(clocked.refusal("guest", None).await);
        let text = "At least one receiver for the endpoint is created with epoch of '5', and so non-epoch \
                    receiver is not allowed. Either reconnect with a higher epoch, or make sure all epoch \
                    receivers are closed or disconnected.";
        assert_eq!(told, (Some(5), Some("owner".into()), text.to_owned()));
        clocked.send("door").await;
        assert_eq!(next(&mut owner).await, 0, "the owner continues");
    }
}

#[tokio::test]
async fn one_without_epoch_opens_once_the_owner_is_disconnected() {
    for clocked in ClockedHub::both() {
        let owner = clocked.open("owner", Some(5)).await;
        refused(clocked.refusal("guest", None).await);
        // Its end of the link is known dead at once; the service's ten minutes are for silence.
        drop(owner);
        let _guest = clocked.open("guest", None).await;
    }
}

#[tokio::test]
async fn an_owner_disconnects_all_without_epoch_in_the_words_of_the_service() {
    for clocked in ClockedHub::both() {
        let mut guests = Vec::new();
        for name in ["a", "b", "c", "d", ""] {
            guests.push((name, clocked.open(name, None).await));
        }
        let _owner = clocked.open("", Some(2)).await;
        for (name, mut guest) in guests {
            let shown = if name.is_empty() { "nil" } else { name };
            let told = disconnected(&mut guest).await;
            assert_eq!(told, (Some(2), None, stolen("nil", 2, shown, "")));
        }
    }
}

#[tokio::test]
async fn every_hub_group_and_partition_has_an_owner_of_its_own() {
    for clocked in ClockedHub::both() {
        let other = clocked.namespace.create_hub(HubConfig::new("offices", 2).unwrap()).unwrap();
        let first = request("first", Some(9));
        let _one = clocked.hub.receiver(first.clone()).await.unwrap();
        let _hub = other.receiver(request("second", Some(1))).await.unwrap();
        let group = OpenRequest { group: "Alarms".parse().unwrap(), epoch: None, ..first.clone() };
        let _group = clocked.hub.receiver(group).await.unwrap();
        let partition = OpenRequest { partition: PartitionId(1), epoch: None, ..first };
        let _partition = clocked.hub.receiver(partition).await.unwrap();
    }
}

#[tokio::test]
async fn groups_are_one_group_whatever_the_case() {
    for clocked in ClockedHub::both() {
        let in_group = |group: &str, name: &str, epoch| OpenRequest {
            group: group.parse().unwrap(),
            ..request(name, Some(epoch))
        };
        let mut old = clocked.hub.receiver(in_group("alarms", "old", 3)).await.unwrap();
        refused(clocked.hub.receiver(in_group("ALARMS", "late", 2)).await.unwrap_err());
        let _new = clocked.hub.receiver(in_group("Alarms", "new", 4)).await.unwrap();
        assert_eq!(disconnected(&mut old).await.1, Some("new".into()));
        let _default = clocked.hub.receiver(in_group("$default", "owner", 2)).await.unwrap();
        refused(clocked.refusal("late", Some(1)).await);
    }
}

#[tokio::test]
async fn a_reader_for_tools_disturbs_nobody_and_is_disturbed_by_nobody() {
    for clocked in ClockedHub::both() {
        clocked.send("door").await;
        let mut owner = clocked.open("owner", Some(5)).await;
        let mut tools = Vec::new();
        for _ in 0..7 {
            tools.push(clocked.hub.reader(PartitionId(0), StartPosition::Earliest).await.unwrap());
        }
        let _next_owner = clocked.open("next", Some(6)).await;
        clocked.pass(1_000);
        for tool in &mut tools {
            assert_eq!(next(tool).await, 0);
        }
        assert_eq!(disconnected(&mut owner).await.1, Some("next".into()), "by no tool");
        assert_eq!(clocked.hub.receivers().len(), 1, "no tool counts");
    }
}

#[tokio::test]
async fn who_reads_is_listed_by_group_partition_name_and_epoch() {
    for clocked in ClockedHub::both() {
        let _owner = clocked.open("owner", Some(5)).await;
        let guest = OpenRequest { group: "ALARMS".parse().unwrap(), ..request("", None) };
        let guest = clocked.hub.receiver(guest).await.unwrap();
        let listed = || -> Vec<_> {
            let receivers = clocked.hub.receivers();
            let facts = |it: &ReceiverDescription| {
                (it.group.to_string(), it.partition.0, it.name.clone(), it.epoch.map(Epoch::get))
            };
            receivers.iter().map(facts).collect()
        };
        let owner = ("$Default".to_owned(), 0, Some("owner".to_owned()), Some(5));
        assert_eq!(listed(), [owner.clone(), ("Alarms".to_owned(), 0, None, None)]);
        drop(guest);
        assert_eq!(listed(), [owner]);
    }
}

// Silence.
