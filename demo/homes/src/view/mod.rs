//! The data that the page shows, read from the stored results; and the audit.
//!
//! A task for each log follows it ([`follow`](View::follow)). Nothing here asks a host: what the page shows is what was written.

mod audit;
mod descriptions;
mod latency;
mod locked_state;
pub mod model;
mod operator;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor::environment::SystemClock;
use ephor::{Clock, PartitionId};

use self::audit::{Auditor, LongSent};
use self::latency::{Latency, Rate};
use self::locked_state::LockedState;
use self::model::{AlarmLine, CityNow, HomeNow, NEIGHBOURHOOD, Neighbourhood};
use crate::city::{City, Sent, SentReadings};
use crate::consolidate::{Consolidation, Homes, OpenAlarms};
use crate::reading::{PARTITIONS, partition_of};
use crate::results::{Follower, News, ResultStore};
use crate::time::CityTime;

pub use self::operator::{Operator, Seen};

/// How often each log is asked for what is new.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// When storage does not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// Alarms on the page.
const ALARMS: usize = 50;

/// The state that was read so far.
#[derive(Debug)]
pub struct View {
    city: City,
    sent_readings: SentReadings,
    speed: f64,
    homes: Vec<Mutex<LockedState<Homes>>>,
    alarm_states: Vec<Mutex<LockedState<OpenAlarms>>>,
    latency: Mutex<Latency>,
    rate: Mutex<Rate>,
    long_sent: Mutex<LongSent>,
    /// When the newest reading was pushed, in milliseconds since 1970; 0 before there is one.
    pushed: AtomicU64,
}

impl View {
    /// Knows nothing yet.
    pub fn new(city: City, sent_readings: SentReadings, speed: f64) -> Self {
        Self {
            city,
            sent_readings,
            speed,
            homes: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            alarm_states: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            latency: Mutex::default(),
            rate: Mutex::default(),
            long_sent: Mutex::default(),
            pushed: AtomicU64::new(0),
        }
    }

    /// Follows all logs for ever.
    pub async fn follow(&self, place: &ResultStore) {
        let homes = futures_util::future::join_all((0..PARTITIONS).map(|partition| {
            let follower = Follower::<LockedState<Homes>>::new(place.log("homes", PartitionId(partition)));
            self.follow_one(follower, &self.homes[partition as usize], true)
        }));
        let alarm_states = futures_util::future::join_all((0..PARTITIONS).map(|partition| {
            let follower =
                Follower::<LockedState<OpenAlarms>>::new(place.log("alarms", PartitionId(partition)));
            self.follow_one(follower, &self.alarm_states[partition as usize], false)
        }));
        futures_util::future::join(homes, alarm_states).await;
    }

    async fn follow_one<C: Consolidation>(
        &self,
        mut follower: Follower<LockedState<C>>,
        seen: &Mutex<LockedState<C>>,
        timed: bool,
    ) {
        loop {
            match follower.next().await {
                Ok(Some(News::Whole)) => *lock(seen) = follower.state().clone(),
                Ok(Some(News::Update(entry))) if timed => self.note(&entry.pushed),
                Ok(Some(News::Update(_))) => {}
                Ok(None) => tokio::time::sleep(ASK_EVERY).await,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the results; retrying");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Readings that were pushed then are on the page now.
    fn note(&self, pushed: &[u64]) {
        let (now, wall) = (SystemClock.now(), u64::try_from(SystemClock.wall().0).unwrap_or(0));
        let mut latency = lock(&self.latency);
        for at in pushed {
            latency.note(now, wall.saturating_sub(*at));
            // A reading from the future counts as pushed now.
            self.pushed.fetch_max((*at).min(wall), Ordering::Relaxed);
        }
    }

    /// The city at a glance.
    pub fn city(&self) -> CityNow {
        let count = self.city.homes();
        let mut neighbourhoods = vec![Neighbourhood::default(); count.div_ceil(NEIGHBOURHOOD) as usize];
        let (mut auditor, mut repeats, mut replayed) = (Auditor::default(), 0, 0);
        let mut found = vec![Sent::default(); count as usize];
        let mut time = CityTime::default();
        for homes in &self.homes {
            let homes = lock(homes).clone();
            let homes = homes.look();
            time = time.max(homes.time());
            repeats += homes.totals().repeats;
            replayed += homes.totals().replayed;
            for (number, home) in homes.iter() {
                if let Some(found) = found.get_mut(number as usize) {
                    *found = Sent { readings: home.readings(), fingerprint: home.fingerprint() };
                }
                if let Some(near) = neighbourhoods.get_mut((number / NEIGHBOURHOOD) as usize) {
                    near.homes += 1;
                    near.active += u32::from(home.is_active());
                    near.armed += u32::from(home.armed());
                    near.alarms += u32::from(home.in_danger());
                    near.silent += u32::from(home.is_silent());
                }
            }
        }
        // Sent is asked after found: whatever was found had been sent by then.
        self.sent_readings.look(|sent| {
            for (sent, found) in sent.iter().zip(found) {
                auditor.compare(*sent, found);
            }
        });
        let now = SystemClock.now();
        let long_sent = lock(&self.long_sent).of(now, auditor.sent());
        let audit = auditor.result(repeats, replayed, long_sent);
        let quantiles = lock(&self.latency).quantiles(now);
        let pushed = self.pushed.load(Ordering::Relaxed);
        let wall = u64::try_from(SystemClock.wall().0).unwrap_or(0);
        CityNow {
            time,
            speed: self.speed,
            rate: lock(&self.rate).of(now, audit.processed),
            age: (pushed > 0).then(|| wall.saturating_sub(pushed)),
            p50: quantiles.map(|(p50, _)| p50),
            p99: quantiles.map(|(_, p99)| p99),
            neighbourhoods,
            alarms: self.alarms(),
            audit,
        }
    }

    /// The newest alarms of all partitions.
    fn alarms(&self) -> Vec<AlarmLine> {
        let mut all = Vec::new();
        for alarms in &self.alarm_states {
            let alarms = lock(alarms).clone();
            let newest = alarms.look().newest();
            all.extend(
                newest.into_iter().take(ALARMS).map(|entry| descriptions::line(entry.home, &entry.alarm)),
            );
        }
        all.sort_by_key(|line| std::cmp::Reverse((line.since, line.home)));
        all.truncate(ALARMS);
        all
    }

    /// One home, if there is one of this number.
    pub fn home(&self, number: u32) -> Option<HomeNow> {
        if number >= self.city.homes() {
            return None;
        }
        let partition = partition_of(number).0;
        let homes = lock(self.homes.get(partition as usize)?).clone();
        let homes = homes.look();
        Some(descriptions::home(number, partition, &homes))
    }

    /// Returns the number of homes.
    pub fn homes(&self) -> u32 {
        self.city.homes()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_the_future_makes_nothing_younger_than_it_is() {
        let view = View::new(City::new(1, 10), SentReadings::new(10), 1.0);
        view.note(&[u64::MAX]);
        let wall = u64::try_from(SystemClock.wall().0).unwrap();
        assert!(view.pushed.load(Ordering::Relaxed) <= wall);
    }
}
