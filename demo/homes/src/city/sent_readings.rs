//! Records the sent readings for the audit: for each home the number of different readings, and the sum of
//! their hashes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::reading::Reading;

/// The number of readings that were sent for each home, and the sum of their hashes. Clones share them: the sender
/// writes them, the auditor reads them.
#[derive(Clone, Debug)]
pub struct SentReadings {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    homes: Vec<Sent>,
    total: u64,
}

/// The readings that were sent for a home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Different readings.
    pub readings: u64,
    /// The wrapping sum of their fingerprints.
    pub fingerprint: u64,
}

impl SentReadings {
    /// None yet, for homes from 0 on: 16 bytes each.
    pub fn new(homes: u32) -> Self {
        let inner = Inner { homes: vec![Sent::default(); homes as usize], total: 0 };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Notes a reading: the first sending of it, not a repeat. A home that is not there is not noted.
    pub fn note(&self, reading: &Reading) {
        self.note_all([reading]);
    }

    /// Notes many readings together: a reader sees all of them or none.
    pub fn note_all<'a>(&self, readings: impl IntoIterator<Item = &'a Reading>) {
        let mut inner = self.lock();
        for reading in readings {
            if let Some(sent) = inner.homes.get_mut(reading.home as usize) {
                sent.readings += 1;
                sent.fingerprint = sent.fingerprint.wrapping_add(reading.fingerprint());
                inner.total += 1;
            }
        }
    }

    /// Returns the readings that were sent for a home.
    pub fn of(&self, home: u32) -> Sent {
        self.lock().homes.get(home as usize).copied().unwrap_or_default()
    }

    /// Calls a function with the readings of every home at one moment. The sender waits meanwhile: be quick.
    pub fn look<T>(&self, see: impl FnOnce(&[Sent]) -> T) -> T {
        see(&self.lock().homes)
    }

    /// Readings in all.
    pub fn total(&self) -> u64 {
        self.lock().total
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Sensor;
    use crate::time::CityTime;

    #[test]
    fn sent_readings_have_the_count_and_the_sum_of_each_home() {
        let reading = |home, number| Reading {
            home,
            sensor: Sensor::Door,
            number,
            at: CityTime(0),
            pushed: 0,
            value: 0,
            armed: false,
            battery: 1,
        };
        let (sent_readings, all) = (SentReadings::new(2), [reading(1, 1), reading(1, 2), reading(0, 1)]);
        let auditor = sent_readings.clone();
        sent_readings.note(&all[0]);
        sent_readings.note_all(&all[1..]);
        sent_readings.note(&reading(2, 1));
        let sum = all[0].fingerprint().wrapping_add(all[1].fingerprint());
        assert_eq!(auditor.of(1), Sent { readings: 2, fingerprint: sum });
        assert_eq!(auditor.of(2), Sent::default(), "no home of this city");
        assert_eq!(auditor.look(|homes| homes.iter().map(|sent| sent.readings).sum::<u64>()), 3);
        assert_eq!(auditor.total(), 3);
    }
}
