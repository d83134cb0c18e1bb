//! Tests that segments deleted by retention do not return after a power failure.

use std::sync::Arc;

use ephor_core::ids::PartitionId;
use ephor_core::source::EventSource;
use ephor_hub::{HubConfig, LocalNamespace, NamespaceConfig, NewEvent, Retention, verify_files};
use ephor_runtime::environment::SystemClock;

use crate::common::faulty_files::{Fate, FaultyFiles};

const SEGMENT: u64 = 4 << 10;
const SEEDS: u64 = 100;

fn open(files: &FaultyFiles) -> LocalNamespace {
    let config = NamespaceConfig { segment_bytes: SEGMENT, ..NamespaceConfig::default() };
    LocalNamespace::on(Arc::new(files.clone()), config, Arc::new(SystemClock)).unwrap()
}

fn segments(files: &FaultyFiles) -> Vec<String> {
    let paths = files.files().into_iter().map(|(path, _)| path);
    paths.filter(|path| path.ends_with(".log")).collect()
}

#[tokio::test]
async fn no_freed_segment_is_back_after_a_power_failure_and_none_is_missing_between_others() {
    let files = FaultyFiles::new(u64::MAX);
    let namespace = open(&files);
    let kept = Retention { age: None, bytes: Some(100 * SEGMENT) };
    let hub = HubConfig { retention: kept, ..HubConfig::new("homes", 1).unwrap() };
    let hub = namespace.create_hub(hub).unwrap();
    for _ in 0..60 {
        hub.producer().send(NewEvent::new(vec![7; 2_000])).await.unwrap();
    }
    let less = Retention { age: None, bytes: Some(4 * SEGMENT) };
    hub.set_retention(less).unwrap();
    hub.enforce_retention();
    let first = hub.partition_properties(PartitionId(0)).await.unwrap().first;
    assert!(first.0 > 40, "{first} is the oldest");
    let kept = segments(&files);
    assert!(kept.len() <= 4, "{kept:?}");
    let seeds = (0..SEEDS).map(Fate::Random);
    for fate in [Fate::AllLost, Fate::AllKept].into_iter().chain(seeds) {
        let left = files.after_crash(fate);
        assert_eq!(segments(&left), kept, "{fate:?}");
        for hub in verify_files(&left).unwrap() {
            assert!(hub.is_intact(), "{fate:?}: {hub:#?}");
        }
        let namespace = open(&left);
        let hub = namespace.hub("homes").unwrap();
        assert_eq!(hub.damage(), [], "{fate:?}");
        assert_eq!(hub.partition_properties(PartitionId(0)).await.unwrap().first, first, "{fate:?}");
    }
}
