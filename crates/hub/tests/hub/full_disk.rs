//! Tests of a full disk: senders get an error, readers continue, no acknowledged event is lost, and sending
//! continues without a restart when there is free space again.

use std::path::Path;
use std::time::Duration;

use ephor_core::event::{Event, NewEvent};
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::producer::{Producer, SendCause};
use ephor_core::source::{EventSource, Receiver, SourceError};
use ephor_hub::{
    Hub, HubConfig, HubError, LocalNamespace, NamespaceConfig, Retention, SendError, Target, verify_folder,
};

use crate::small_disk::{SmallDisk, names_below, on_small_disk};

pub(crate) const DISK: u64 = 8 << 20;
pub(crate) const SEGMENT: u64 = 256 << 10;
pub(crate) const PARTITIONS: u32 = 2;
pub(crate) const BODY: usize = 1000;

fn config() -> NamespaceConfig {
    // Without a reserve: what is behind it has to hold, too.
    NamespaceConfig {
        segment_bytes: SEGMENT,
        recent_bytes: 64 << 10,
        disk_reserve_bytes: Some(0),
        ..NamespaceConfig::default()
    }
}

pub(crate) fn with_hub(retention: Retention) -> NamespaceConfig {
    let hub = HubConfig { retention, ..HubConfig::new("homes", PARTITIONS).unwrap() };
    NamespaceConfig { hubs: vec![hub], ..config() }
}

pub(crate) fn open(disk: &SmallDisk) -> (LocalNamespace, Hub) {
    let namespace = LocalNamespace::open(disk.data(), with_hub(Retention::default())).unwrap();
    let hub = namespace.hub("homes").unwrap();
    (namespace, hub)
}

#[expect(clippy::disallowed_methods, reason = "a reader that waits for a lost event would wait forever")]
pub(crate) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let done = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), future).await });
    done.expect("acknowledged events can be read")
}

/// The acknowledged events of each partition, in order: the bodies are numbered.
#[derive(Clone, Default)]
pub(crate) struct Sent {
    pub(crate) acknowledged: [Vec<u64>; PARTITIONS as usize],
    tried: u64,
}

impl Sent {
    /// Sends a batch of this many events and takes down what became of it.
    pub(crate) async fn send(&mut self, hub: &Hub, partition: u32, count: usize) -> Result<(), SendError> {
        let numbers: Vec<u64> = (self.tried..).take(count).collect();
        self.tried += count as u64;
        let events = numbers.iter().map(|number| NewEvent::new(body(*number)));
        hub.producer().send_batch(Target::Partition(PartitionId(partition)), events).await?;
        self.acknowledged[partition as usize].extend(numbers);
        Ok(())
    }

    async fn send_until_full(&mut self, hub: &Hub, count: usize) -> SendError {
        for turn in 0.. {
            if let Err(error) = self.send(hub, turn % PARTITIONS, count).await {
                return error;
            }
        }
        unreachable!("the disk is small")
    }

    /// Everything acknowledged is there, once and in order, and nothing else.
    pub(crate) async fn check(&self, hub: &Hub) {
        for (id, acknowledged) in self.acknowledged.iter().enumerate() {
            assert_eq!(&read_all(hub, id as u32).await, acknowledged, "partition {id}");
        }
        assert_eq!(hub.damage(), []);
    }
}

pub(crate) fn body(number: u64) -> Vec<u8> {
    let mut body = vec![number as u8; BODY];
    body[..8].copy_from_slice(&number.to_le_bytes());
    body
}

fn number_of(event: &Event) -> u64 {
    let number = u64::from_le_bytes(event.body[..8].try_into().unwrap());
    assert_eq!(event.body, body(number), "a body was changed");
    number
}

/// The numbers of all events from the oldest to the newest; their sequence numbers leave nothing out.
pub(crate) async fn read_all(hub: &Hub, partition: u32) -> Vec<u64> {
    let id = PartitionId(partition);
    let properties = hub.partition_properties(id).await.unwrap();
    let Some(last) = properties.last else { return Vec::new() };
    let mut reader = hub.reader(id, StartPosition::Earliest).await.unwrap();
    let (mut events, mut numbers, mut next) = (Vec::new(), Vec::new(), properties.first);
    while next <= last.sequence {
        reader.receive(&mut events, 100).await.unwrap();
        for event in events.drain(..) {
            assert_eq!(event.sequence, next);
            next = next.next();
            numbers.push(number_of(&event));
        }
    }
    numbers
}

pub(crate) fn assert_full(error: &SendError) {
    assert!(matches!(error, SendError::DiskFull(_)), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("the disk is full: "), "{text}");
    assert!(text.contains("No space left on device"), "{text}");
    assert!(
        text.ends_with(
            "the batch does not count as stored; free some space and send it again; readers continue"
        ),
        "{text}"
    );
}

pub(crate) fn assert_intact(folder: &Path) {
    let hubs = verify_folder(folder).unwrap();
    assert!(!hubs.is_empty());
    for hub in hubs {
        assert!(hub.is_intact(), "{hub:#?}");
    }
}

#[test]
fn sending_stops_on_a_full_disk_and_resumes_without_a_restart() {
    on_small_disk("full_disk::sending_stops_on_a_full_disk_and_resumes_without_a_restart", DISK, |disk| {
        let (namespace, hub) = open(disk);
        let mut sent = Sent::default();
        wait_for(async {
            disk.fill_but(3 << 20);
            for round in 1..=3 {
                let error = sent.send_until_full(&hub, 10 * round).await;
                assert_full(&error);
                // Whoever tries again is told again.
                for _ in 0..50 {
                    assert_full(&sent.send(&hub, 0, 100).await.unwrap_err());
                }
                sent.check(&hub).await;
                disk.clear();
                sent.send(&hub, 0, 100).await.unwrap();
                sent.send(&hub, 1, 1).await.unwrap();
                sent.check(&hub).await;
                disk.fill_but(500 << 10);
            }
        });
        drop((namespace, hub));
        assert_intact(&disk.data());
        disk.clear();
        let (_namespace, hub) = open(disk);
        wait_for(sent.check(&hub));
    });
}

/// Through the interface of all hubs, a batch of many keys is stored in parts.
#[test]
fn a_producer_says_how_many_events_of_a_batch_are_stored_when_the_disk_is_full() {
    let name = "full_disk::a_producer_says_how_many_events_of_a_batch_are_stored_when_the_disk_is_full";
    on_small_disk(name, DISK, |disk| {
        let (_namespace, hub) = open(disk);
        disk.fill_but(2 << 20);
        wait_for(async {
            let keyed = |number: u64| NewEvent {
                partition_key: Some(format!("home-{}", number % 10).into()),
                ..NewEvent::new(body(number))
            };
            let producer = hub.producer();
            // The first batches fit, a later one does not.
            let (mut before, mut batches) = (0, 0);
            let error = loop {
                let batch = (before..before + 200).map(keyed).collect();
                match Producer::send_batch(&producer, Target::Any, batch).await {
                    Ok(sent) => before += sent.count as u64,
                    Err(error) => break error,
                }
                batches += 1;
            };
            assert!(batches > 0);
            assert!(matches!(error.cause, SendCause::Source(SourceError::Unavailable(_))), "{error:?}");
            assert!(error.to_string().contains("the disk is full"), "{error}");
            let mut stored = Vec::new();
            for partition in 0..PARTITIONS {
                stored.extend(read_all(&hub, partition).await);
            }
            let missing = before + error.stored as u64;
            assert!((0..missing).all(|number| stored.contains(&number)), "{missing}");
            assert!(!stored.contains(&missing), "{missing} is the first that is missing");
            for home in 0..10 {
                let of_key: Vec<u64> = stored.iter().copied().filter(|number| number % 10 == home).collect();
                assert_eq!(of_key, Vec::from_iter((home..).step_by(10).take(of_key.len())), "home-{home}");
            }
            // Sending again from there on loses nothing.
            disk.clear();
            let rest = (missing..before + 200).map(keyed).collect();
            Producer::send_batch(&producer, Target::Any, rest).await.unwrap();
            let mut stored = Vec::new();
            for partition in 0..PARTITIONS {
                stored.extend(read_all(&hub, partition).await);
            }
            assert!((0..before + 200).all(|number| stored.contains(&number)));
        });
    });
}

#[test]
fn readers_follow_the_tail_up_to_the_last_event_that_fits() {
    on_small_disk("full_disk::readers_follow_the_tail_up_to_the_last_event_that_fits", DISK, |disk| {
        let (_namespace, hub) = open(disk);
        disk.fill_but(1 << 20);
        let mut sent = Sent::default();
        wait_for(async {
            let mut tail = hub.reader(PartitionId(0), StartPosition::Earliest).await.unwrap();
            let reading = async {
                let (mut events, mut numbers) = (Vec::new(), Vec::new());
                while numbers.last() != Some(&u64::MAX) {
                    tail.receive(&mut events, 100).await.unwrap();
                    numbers.extend(events.drain(..).map(|event| number_of(&event)));
                }
                numbers
            };
            let sending = async {
                assert_full(&sent.send_until_full(&hub, 5).await);
                assert_full(&sent.send(&hub, 0, 100).await.unwrap_err());
                disk.clear();
                let last = NewEvent::new(body(u64::MAX));
                hub.producer().send_to(PartitionId(0), last).await.unwrap();
            };
            let (read, ()) = tokio::join!(reading, sending);
            let mut expected = sent.acknowledged[0].clone();
            expected.push(u64::MAX);
            assert_eq!(read, expected);
        });
    });
}

#[test]
fn a_hub_that_found_no_room_is_not_there_until_it_is_created_again() {
    let name = "full_disk::a_hub_that_found_no_room_is_not_there_until_it_is_created_again";
    on_small_disk(name, DISK, |disk| {
        // With no room its record fails, with one page its log.
        for pages in 0..4 {
            let name = format!("late{pages}");
            let hub = || HubConfig::new(&name, 1).unwrap();
            let namespace = LocalNamespace::open(disk.data(), config()).unwrap();
            disk.fill_but(pages * 4096);
            let mut failed = 0;
            // Three attempts take room of their own if they leave anything behind.
            for _ in 0..3 {
                let Err(error) = namespace.create_hub(hub()) else { break };
                assert!(error.to_string().contains("No space left on device"), "{error}");
                assert!(error.to_string().contains(&name), "{error}");
                assert!(matches!(namespace.hub(&name), Err(HubError::NotFound { .. })));
                failed += 1;
            }
            assert!(failed == 3 || failed == 0 && pages > 1, "{pages} pages, {failed} failures");
            disk.clear();
            let created = namespace.ensure_hub(&hub()).unwrap();
            wait_for(created.producer().send(NewEvent::new(body(7)))).unwrap();
            namespace.close().unwrap();
            drop(namespace);
            let namespace = LocalNamespace::open(disk.data(), config()).unwrap();
            assert_eq!(namespace.broken(), [], "{pages} pages, {failed} failures");
            let names = names_below(&disk.data());
            assert_eq!(wait_for(read_all(&namespace.hub(&name).unwrap(), 0)), [7], "{names:#?}");
            drop(namespace);
            assert_intact(&disk.data());
        }
    });
}

#[test]
fn a_group_that_found_no_room_is_not_there_until_it_is_created_again() {
    let name = "full_disk::a_group_that_found_no_room_is_not_there_until_it_is_created_again";
    on_small_disk(name, DISK, |disk| {
        let (namespace, hub) = open(disk);
        disk.fill_but(0);
        let text = hub.create_group("late").unwrap_err().to_string();
        assert!(text.contains("hub.json") && text.contains("No space left on device"), "{text}");
        assert_eq!(hub.describe().groups.len(), 1);
        disk.clear();
        hub.create_group("late").unwrap();
        drop((namespace, hub));
        let (_namespace, hub) = open(disk);
        assert_eq!(hub.describe().groups.len(), 2);
    });
}

#[test]
fn a_segment_that_found_no_room_is_begun_when_there_is_some() {
    on_small_disk("full_disk::a_segment_that_found_no_room_is_begun_when_there_is_some", DISK, |disk| {
        let (namespace, hub) = open(disk);
        let mut sent = Sent::default();
        wait_for(async {
            for round in 0..4 {
                sent.send(&hub, 0, 10).await.unwrap();
                // With no page at all the file's header fails, with one or two its first events do.
                disk.fill_but(round * 4096);
                let sealed = hub.seal_segment();
                let segments = hub.describe().segments;
                assert_full(&sent.send(&hub, 1, 100).await.unwrap_err());
                sent.check(&hub).await;
                if round == 0 {
                    let text = sealed.unwrap_err().to_string();
                    assert!(text.starts_with("could not create a new segment: "), "{text}");
                    assert!(text.contains("No space left on device"), "{text}");
                    assert_eq!(segments, 1);
                }
                disk.clear();
                sent.send(&hub, 1, 100).await.unwrap();
                sent.check(&hub).await;
            }
        });
        drop((namespace, hub));
        assert_intact(&disk.data());
        let (_namespace, hub) = open(disk);
        wait_for(sent.check(&hub));
    });
}

#[test]
fn a_sender_that_keeps_trying_does_not_use_up_what_room_is_left() {
    on_small_disk("full_disk::a_sender_that_keeps_trying_does_not_use_up_what_room_is_left", DISK, |disk| {
        let (_namespace, hub) = open(disk);
        let mut sent = Sent::default();
        wait_for(async {
            sent.send(&hub, 0, 1).await.unwrap();
            disk.fill_but(200 << 10);
            for _ in 0..100 {
                assert_full(&sent.send(&hub, 0, 250).await.unwrap_err());
            }
            assert!(hub.describe().segments <= 3, "{:#?}", names_below(&disk.data()));
            sent.send(&hub, 0, 100).await.unwrap();
            sent.check(&hub).await;
        });
    });
}
