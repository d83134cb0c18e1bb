//! Test helper: reads the whole log of the hub again, counts its readings, and compares them with the
//! results in the demo's folder.

use std::path::Path;

use ephor_core::event::Event;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, Receiver};
use ephor_homes::consolidate::{Consolidation, Homes, OpenAlarms};
use ephor_homes::reading::{PARTITIONS, Reading, Sensor};
use ephor_homes::results::{Follower, ResultStore};
use ephor_hub::{Hub, LocalNamespace, NamespaceConfig};

/// The counts of the hub's log, and the number of repeated deliveries in the results.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// The number of different readings.
    pub(crate) readings: u64,
    /// The number of events with a reading that an earlier event had.
    pub(crate) repeats: u64,
    /// The number of events that were delivered again to the group `consolidate`.
    pub(crate) replayed: u64,
}

/// Counts, and compares every home of every partition. No process may use the folder any more.
pub(crate) fn recount(folder: &Path) -> Count {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let namespace = LocalNamespace::open(folder.join("hub"), NamespaceConfig::default()).unwrap();
        let hub = namespace.hub("homes").unwrap();
        let place = ResultStore::open(folder.join("results").to_str().unwrap(), "results").await.unwrap();
        let mut count = Count::default();
        for partition in (0..PARTITIONS).map(PartitionId) {
            compare(&hub, &place, partition, &mut count).await;
        }
        namespace.close().unwrap();
        count
    })
}

async fn compare(hub: &Hub, place: &ResultStore, partition: PartitionId, count: &mut Count) {
    let events = all_events(hub, partition).await;
    let readings: Vec<(u64, Reading)> =
        events.iter().map(|event| (event.sequence.0, Reading::decode(&event.body).unwrap())).collect();
    let homes = newest::<Homes>(place, "homes", partition).await;
    let distinct = compare_ids(&readings, &homes);
    count.readings += distinct;
    count.repeats += readings.len() as u64 - distinct;
    count.replayed += homes.totals().replayed;

    // The other fields of a home, and the alarms, are as if no host had ever been killed.
    let (mut calm, mut alarms) = (Homes::default(), OpenAlarms::default());
    for (sequence, reading) in &readings {
        calm.fold(*sequence, reading);
        alarms.fold(*sequence, reading);
    }
    for ((number, expected), (_, found)) in calm.iter().zip(homes.iter()) {
        assert_eq!(found, expected, "home {number} of partition {partition}");
    }
    let found = newest::<OpenAlarms>(place, "alarms", partition).await;
    assert_eq!(found.newest(), alarms.newest(), "alarms of partition {partition}");
    assert_eq!(homes.last(), calm.last(), "partition {partition}");
}

/// Counts each id once, by sorting; then compares home by home. Returns the number of ids.
fn compare_ids(readings: &[(u64, Reading)], homes: &Homes) -> u64 {
    let mut ids: Vec<(u32, Sensor, u32, u64)> = readings
        .iter()
        .map(|(_, reading)| (reading.home, reading.sensor, reading.number, reading.fingerprint()))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let mut known = 0;
    for of_home in ids.chunk_by(|one, next| one.0 == next.0) {
        let number = of_home[0].0;
        let sum = of_home.iter().fold(0_u64, |sum, id| sum.wrapping_add(id.3));
        let home = homes.home(number).unwrap_or_else(|| panic!("home {number} is not in the results"));
        let counted = (home.readings(), home.fingerprint());
        assert_eq!(counted, (of_home.len() as u64, sum), "home {number}");
        known += 1;
    }
    assert_eq!(homes.iter().count(), known, "homes in the results that the hub has nothing of");
    ids.len() as u64
}

async fn all_events(hub: &Hub, partition: PartitionId) -> Vec<Event> {
    let properties = hub.partition_properties(partition).await.unwrap();
    assert_eq!(properties.first.0, 0, "the hub still has everything");
    let mut events: Vec<Event> = Vec::new();
    let Some(last) = properties.last else { return events };
    let mut reader = hub.reader(partition, StartPosition::Earliest).await.unwrap();
    while events.last().is_none_or(|event| event.sequence < last.sequence) {
        reader.receive(&mut events, 1_000).await.unwrap();
    }
    events
}

/// The final state of the log of this kind.
async fn newest<C: Consolidation + Clone>(place: &ResultStore, kind: &str, partition: PartitionId) -> C {
    let mut follower = Follower::<C>::new(place.log(kind, partition));
    while follower.next().await.unwrap().is_some() {}
    follower.state().clone()
}
