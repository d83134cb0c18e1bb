//! Tests of results in Azure Blob Storage, on the emulator Azurite, which the tests start.

use std::time::Duration;

use ephor::memory::{MemoryHub, MemoryStore};
use ephor::{EventProcessorHost, EventProcessorOptions, NewEvent, PartitionId};
use ephor_homes::consolidate::{Consolidation, Homes};
use ephor_homes::host::{HomesProcessor, Slowdown};
use ephor_homes::reading::{Reading, Sensor};
use ephor_homes::results::{Follower, News, ResultStore, ResultWriter, ResultWriterError};
use ephor_homes::time::CityTime;
use ephor_testkit::azurite_server::{self, Azurite};

fn reading(number: u32) -> Reading {
    let at = CityTime(1_800_000_000_000 + u64::from(number) * 60_000);
    Reading { home: 7, sensor: Sensor::Door, number, at, pushed: 1, value: 0, armed: false, battery: 90 }
}

fn fold(writer: &mut ResultWriter<Homes>, sequences: std::ops::RangeInclusive<u32>) {
    for sequence in sequences {
        writer.fold(u64::from(sequence), &reading(sequence));
    }
}

/// The last event that the results have, and how many readings of the home.
fn seen(homes: &Homes) -> (Option<u64>, u64) {
    (homes.last(), homes.home(7).map_or(0, |home| home.readings()))
}

#[tokio::test]
async fn owners_followers_and_zombies_share_a_container() {
    let azurite = Azurite::start();
    let place = ResultStore::open(&azurite.connection_string(), "homes").await.unwrap();
    let again = ResultStore::open(&azurite.connection_string(), "homes").await.unwrap();
    let log = place.under("run-1").log("homes", PartitionId(3));
    let mut follower = Follower::<Homes>::new(again.under("run-1").log("homes", PartitionId(3)));
    assert_eq!(follower.next().await.unwrap(), Some(News::Whole));
    assert_eq!(follower.next().await.unwrap(), None);

    let mut zombie = ResultWriter::<Homes>::open(log.clone(), 1, "host-1").await.unwrap();
    let mut writer =
        ResultWriter::<Homes>::open(log.clone(), 2, "host-2").await.unwrap().with_snapshot_every(3);
    fold(&mut zombie, 1..=2);
    zombie.flush().await.unwrap();
    for sequence in 1..=10 {
        fold(&mut writer, sequence..=sequence);
        writer.flush().await.unwrap();
    }
    // What it wants was deleted before it was read: it finds out when nothing comes.
    let news = loop {
        if let Some(news) = follower.next().await.unwrap() {
            break news;
        }
    };
    assert_eq!(news, News::Whole);
    assert_eq!(seen(follower.state()), (Some(10), 10));
    fold(&mut writer, 11..=12);
    writer.flush().await.unwrap();
    let Some(News::Update(entry)) = follower.next().await.unwrap() else { panic!("an update") };
    assert_eq!((entry.owner.as_str(), entry.first, entry.last), ("host-2", 11, 12));
    assert_eq!(seen(follower.state()), (Some(12), 12));

    fold(&mut zombie, 3..=4);
    let error = zombie.flush().await.unwrap_err();
    assert!(matches!(error, ResultWriterError::Fenced { epoch: 2, mine: 1, .. }), "{error}");
    let successor = ResultWriter::<Homes>::open(log, 3, "host-3").await.unwrap();
    assert_eq!(seen(successor.state()), (Some(12), 12));
}

#[tokio::test]
async fn storage_that_does_not_answer_costs_time_and_nothing_else() {
    let azurite = Azurite::start();
    let place = ResultStore::open(&azurite.connection_string(), "homes").await.unwrap();
    let log = place.log("homes", PartitionId(0));
    let mut writer = ResultWriter::<Homes>::open(log.clone(), 1, "host-1").await.unwrap();
    fold(&mut writer, 1..=5);
    azurite.pause();
    let error = writer.flush().await.unwrap_err().to_string();
    assert!(error.starts_with("cannot read or write homes/00/"), "{error}");
    assert!(!error.contains(azurite_server::KEY), "{error}");
    azurite.resume();
    // What was sent while it slept may be done by now: it is recognised as our own.
    fold(&mut writer, 1..=8);
    let mut attempts = 0;
    let flushed = loop {
        attempts += 1;
        match writer.flush().await {
            Ok(flushed) => break flushed,
            Err(error) => assert!(attempts < 10, "{error}"),
        }
    };
    assert_eq!(flushed.last, Some(8));
    let successor = ResultWriter::<Homes>::open(log, 2, "host-2").await.unwrap();
    assert_eq!(seen(successor.state()), (Some(8), 8));
    assert_eq!(successor.state().totals().replayed, 0, "nothing was folded twice");
}

#[tokio::test]
async fn a_host_needs_only_another_connection_string() {
    let azurite = Azurite::start();
    let place = ResultStore::open(&azurite.connection_string(), "homes").await.unwrap();
    let hub = MemoryHub::new("homes", 2).unwrap();
    for number in 1..=300 {
        hub.send_event(PartitionId(1), NewEvent::new(reading(number).encode())).unwrap();
    }
    let results = place.clone();
    let options = EventProcessorOptions {
        max_batch_size: 50,
        receive_timeout: Duration::from_millis(100),
        invoke_after_receive_timeout: true,
        ..EventProcessorOptions::default()
    };
    let host = EventProcessorHost::builder(hub, MemoryStore::default())
        .options(options)
        .processor(move |_| {
            HomesProcessor::<Homes>::new(
                results.clone(),
                "homes",
                Duration::from_millis(50),
                Slowdown::default(),
            )
        })
        .unwrap();
    host.start().await.unwrap();
    let mut follower = Follower::<Homes>::new(place.log("homes", PartitionId(1)));
    let all = async {
        while follower.state().last() != Some(299) {
            if follower.next().await.unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("the results arrive within a minute");
    assert_eq!(follower.state().home(7).unwrap().readings(), 300);
    let report = host.stop(Duration::from_secs(30)).await.unwrap();
    assert!(report.is_clean(), "{report}");
}

#[tokio::test]
async fn a_wrong_key_is_refused_and_not_repeated() {
    let azurite = Azurite::start();
    let text = azurite.connection_string().replace(azurite_server::KEY, "Y2FuYXJ5");
    let error =
        ResultStore::open(&text, "homes").await.map(|place| place.to_string()).unwrap_err().to_string();
    assert!(error.contains("creating it failed with 403"), "{error}");
    assert!(error.contains("check that the account is reachable and the key is correct"), "{error}");
    assert!(!error.contains("Y2FuYXJ5"), "{error}");
}
