//! Tests that the hub stores exactly the readings that the sender has recorded, whatever faults the hub
//! has.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::*;
use crate::city::City;

const HOMES: u32 = 500;
const SPEED: f64 = 200.0;

/// A hub that fails, loses its answers, and goes away.
#[derive(Clone, Default)]
struct Hub(Arc<HubState>);

#[derive(Default)]
struct HubState {
    stored: Mutex<Vec<(PartitionId, NewEvent)>>,
    /// This many of 100 calls fail, half of them after they were done.
    failing: u8,
    away: AtomicBool,
}

impl Outbox for Hub {
    async fn send(&self, partition: PartitionId, events: Vec<NewEvent>) -> Result<(), BoxError> {
        while self.0.away.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let fails = fastrand::u8(0..100) < self.0.failing;
        if fails && fastrand::bool() {
            return Err("refused".into());
        }
        // Part of it may be stored before it fails.
        let stored = if fails { fastrand::usize(0..=events.len()) } else { events.len() };
        let events = events.into_iter().take(stored).map(|event| (partition, event));
        self.0.stored.lock().unwrap().extend(events);
        if fails { Err("no answer".into()) } else { Ok(()) }
    }
}

fn sensors(hub: &Hub) -> (Sensors<Hub>, SentReadings, SensorControls) {
    let (sent_readings, sensor_controls) = (SentReadings::new(HOMES), SensorControls::default());
    let schedule = ReadingSchedule::new(City::new(7, HOMES), CityTime(1_800_000_000_000), SPEED);
    let (sent_too, board) = (sent_readings.clone(), sensor_controls.clone());
    (
        Sensors { schedule, speed: SPEED, homes: HOMES, sent_readings, outbox: hub.clone(), sensor_controls },
        sent_too,
        board,
    )
}

/// Waits until it is so; generously.
async fn until(mut so: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the condition was not met within a minute");
}

/// Per home, what was stored is what was noted, each reading at least once, in order, where it belongs.
fn check(hub: &Hub, sent_readings: &SentReadings) -> usize {
    let mut ids = BTreeSet::new();
    let mut sums = vec![super::super::Sent::default(); HOMES as usize];
    let mut newest = vec![[0; 4]; HOMES as usize];
    let stored = hub.0.stored.lock().unwrap();
    for (partition, event) in stored.iter() {
        let reading = Reading::decode(&event.body).unwrap();
        assert_eq!(*partition, partition_of(reading.home));
        assert_eq!(event.partition_key.as_deref(), Some(key_of(reading.home).as_str()));
        assert!(reading.pushed > 0);
        if ids.insert((reading.home, reading.sensor, reading.number)) {
            let sum = &mut sums[reading.home as usize];
            sum.readings += 1;
            sum.fingerprint = sum.fingerprint.wrapping_add(reading.fingerprint());
            let newest = &mut newest[reading.home as usize][reading.sensor.index()];
            assert_eq!(reading.number, *newest + 1, "in order, and nothing left out");
            *newest = reading.number;
        }
    }
    sent_readings.look(|homes| assert_eq!(homes, sums));
    assert_eq!(sent_readings.total(), ids.len() as u64);
    stored.len() - ids.len()
}

#[tokio::test]
async fn what_is_stored_is_what_was_noted_as_sent() {
    let hub = Hub(Arc::new(HubState { failing: 20, ..HubState::default() }));
    let (sensors, sent_readings, board) = sensors(&hub);
    let enough = until(|| board.acknowledged() > 5_000 && board.resent() > 0);
    let report = sensors.run(enough, Duration::from_secs(60)).await;
    assert!(report.is_clean() && report.acknowledged > 5_000, "{report}");
    assert_eq!((board.in_flight(), board.acknowledged()), (0, report.acknowledged));
    assert!(check(&hub, &sent_readings) > 0, "something was stored twice, or this proves nothing");
}

#[tokio::test]
async fn the_citys_time_stands_still_while_the_hub_is_away() {
    let hub = Hub::default();
    let (sensors, sent_readings, board) = sensors(&hub);
    let story = async {
        until(|| board.acknowledged() > 1_000).await;
        hub.0.away.store(true, Ordering::Relaxed);
        until(|| board.is_waiting()).await;
        let (stood, flight) = (board.reached(), board.in_flight());
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!((board.reached(), board.in_flight()), (stood, flight), "nothing more is taken");
        hub.0.away.store(false, Ordering::Relaxed);
        until(|| board.reached() > stood && !board.is_waiting()).await;
        // At normal pace: a step is at most a second of ours.
        assert!(board.reached().0 - stood.0 < 30_000 * SPEED as u64);
    };
    let report = sensors.run(story, Duration::from_secs(60)).await;
    assert!(report.is_clean(), "{report}");
    check(&hub, &sent_readings);
}

#[tokio::test]
async fn a_stop_while_the_hub_is_away_loses_nothing() {
    let hub = Hub::default();
    let (sensors, sent_readings, board) = sensors(&hub);
    let story = async {
        until(|| board.acknowledged() > 500).await;
        hub.0.away.store(true, Ordering::Relaxed);
        until(|| board.is_waiting()).await;
        let hub = hub.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            hub.0.away.store(false, Ordering::Relaxed);
        });
    };
    let report = sensors.run(story, Duration::from_secs(60)).await;
    assert!(report.is_clean(), "{report}");
    check(&hub, &sent_readings);
}

#[tokio::test]
async fn a_hard_stop_is_counted() {
    let hub = Hub::default();
    let (sensors, sent_readings, board) = sensors(&hub);
    let story = async {
        until(|| board.acknowledged() > 500).await;
        hub.0.away.store(true, Ordering::Relaxed);
        until(|| board.is_waiting()).await;
    };
    let report = sensors.run(story, Duration::from_millis(50)).await;
    assert!(report.unknown > 0 && report.unsent > 0, "{report}");
    assert_eq!(board.in_flight(), report.unknown + report.unsent);
    let stored = hub.0.stored.lock().unwrap().len() as u64;
    assert_eq!(stored, report.acknowledged);
    let repeats = report.acknowledged + report.unknown - sent_readings.total();
    assert!(repeats < report.acknowledged, "readings that were never sent are not counted");
    assert!(report.to_string().contains("unacknowledged that may be stored"), "{report}");
}

#[tokio::test]
async fn detectors_join_when_they_are_switched_on() {
    let hub = Hub::default();
    let (sensors, sent_readings, board) = sensors(&hub);
    let has_gas = |hub: &Hub| {
        let stored = hub.0.stored.lock().unwrap();
        stored.iter().any(|(_, event)| {
            Reading::decode(&event.body).unwrap().sensor == crate::reading::Sensor::CarbonMonoxide
        })
    };
    let story = async {
        until(|| board.acknowledged() > 500).await;
        assert!(!has_gas(&hub));
        board.set_carbon_monoxide(true);
        until(|| has_gas(&hub)).await;
    };
    assert!(sensors.run(story, Duration::from_secs(60)).await.is_clean());
    check(&hub, &sent_readings);
}
