//! Records the events that the processes have read: how often each was read, and the last reader of each
//! partition.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ephor::{BoxError, Monotonic};

use crate::machine::now;

/// The maximum number of errors that are printed; the others are counted.
const SHOWN: usize = 5;

#[derive(Default)]
struct Pages {
    /// For each partition, how often each of its events was read.
    read: Vec<Vec<u32>>,
    /// For each partition, the process that read it last, and the time.
    last: Vec<Option<(usize, Monotonic)>>,
    errors: usize,
}

pub(super) struct EventsRead(Mutex<Pages>);

/// The number of lost events, and of those that were read more than once.
#[derive(Debug, Default)]
pub(super) struct Balance {
    pub(super) events: u64,
    pub(super) lost: u64,
    pub(super) repeated: u64,
}

impl EventsRead {
    pub(super) fn new(partitions: u32) -> Self {
        let partitions = partitions as usize;
        let (read, last) = (vec![Vec::new(); partitions], vec![None; partitions]);
        Self(Mutex::new(Pages { read, last, ..Pages::default() }))
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a line of a process's output.
    pub(super) fn write(&self, process: usize, line: &str) -> Result<(), BoxError> {
        let mut pages = self.pages();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["read", partition, first, last] => {
                let (partition, first, last): (usize, usize, usize) =
                    (partition.parse()?, first.parse()?, last.parse()?);
                let read = pages.read.get_mut(partition).ok_or("there is no such partition")?;
                read.resize(read.len().max(last + 1), 0);
                read[first..=last].iter_mut().for_each(|times| *times += 1);
                pages.last[partition] = Some((process, now()));
            }
            _ => {
                if pages.errors < SHOWN {
                    eprintln!("process {process}: {line}");
                }
                pages.errors += 1;
            }
        }
        Ok(())
    }

    /// The number of errors that the processes reported.
    pub(super) fn errors(&self) -> usize {
        self.pages().errors
    }

    /// The number of partitions that a process other than `killed` has read since then.
    pub(super) fn read_since(&self, then: Monotonic, killed: Option<usize>) -> usize {
        let fresh = |last: &&Option<(usize, Monotonic)>| {
            last.is_some_and(|(process, at)| at > then && Some(process) != killed)
        };
        self.pages().last.iter().filter(fresh).count()
    }

    /// Counts, for the first `rounds` events of every partition, how often each was read.
    pub(super) fn balance(&self, rounds: u64) -> Balance {
        let mut balance = Balance::default();
        for read in &self.pages().read {
            for number in 0..rounds {
                let times = read.get(number as usize).copied().unwrap_or(0);
                balance.events += 1;
                balance.lost += u64::from(times == 0);
                balance.repeated += u64::from(times.saturating_sub(1));
            }
        }
        balance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_read_is_lost_and_what_was_read_twice_is_repeated() {
        let events_read = EventsRead::new(2);
        for line in ["read 0 0 4", "read 0 3 5", "read 1 0 1", "read 1 3 5"] {
            events_read.write(0, line).unwrap();
        }
        let balance = events_read.balance(6);
        assert_eq!(
            (balance.events, balance.lost, balance.repeated),
            (12, 1, 2),
            "event 2 of partition 1 is missing"
        );
        assert_eq!(events_read.balance(7).lost, 3, "and the events that are not read yet");
        assert!(events_read.write(0, "read 2 0 1").is_err());
        assert_eq!(events_read.errors(), 0);
        events_read.write(1, "something went wrong").unwrap();
        assert_eq!(events_read.errors(), 1);
    }

    #[test]
    fn who_was_killed_reads_nothing() {
        let events_read = EventsRead::new(2);
        events_read.write(0, "read 0 0 0").unwrap();
        events_read.write(1, "read 1 0 0").unwrap();
        assert_eq!(events_read.read_since(Monotonic(0), None), 2);
        assert_eq!(events_read.read_since(Monotonic(0), Some(1)), 1);
        assert_eq!(events_read.read_since(Monotonic::NEVER, None), 0);
    }
}
