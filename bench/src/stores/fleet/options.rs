//! The options of `stores fleet`, the distribution of hosts over processes, and the intervals of the hosts,
//! derived from the lease duration.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ephor::{BoxError, CheckpointPolicy, EventProcessorOptions, PartitionManagerOptions};

/// The number of hosts in the process that is killed; less if there are few hosts.
const HOSTS_TO_KILL: usize = 10;

pub(super) struct Options {
    pub(super) hosts: usize,
    pub(super) partitions: u32,
    pub(super) processes: usize,
    pub(super) postgres: Option<String>,
    pub(super) pace: Pace,
}

impl Options {
    pub(super) fn parse(words: &[&str]) -> Result<Self, BoxError> {
        let mut options =
            Self { hosts: 50, partitions: 1024, processes: 4, postgres: None, pace: Pace { lease: 10 } };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = *words.next().ok_or(format!("{word} needs a value"))?;
            match *word {
                "--hosts" => options.hosts = value.parse()?,
                "--partitions" => options.partitions = value.parse()?,
                "--processes" => options.processes = value.parse()?,
                "--lease" => options.pace = value.parse()?,
                "--postgres" => options.postgres = Some(value.to_owned()),
                _ => return Err(format!("unknown option {word}").into()),
            }
        }
        if options.processes < 2 || options.hosts < options.processes {
            return Err(
                "at least two processes with one host each are needed, because one process is killed".into(),
            );
        }
        Ok(options)
    }

    /// The number of hosts in each process; the first process is to be killed.
    pub(super) fn spread(&self) -> Vec<usize> {
        let first = HOSTS_TO_KILL.min(self.hosts / self.processes);
        let (left, others) = (self.hosts - first, self.processes - 1);
        let rest = (0..others).map(|at| left / others + usize::from(at < left % others));
        std::iter::once(first).chain(rest).collect()
    }
}

/// All intervals, derived from the lease duration in seconds; with 30 s they are about the defaults.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    lease: u32,
}

impl FromStr for Pace {
    type Err = BoxError;

    fn from_str(text: &str) -> Result<Self, BoxError> {
        let pace = Self { lease: text.parse()? };
        pace.manager().validate()?;
        Ok(pace)
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(f)
    }
}

impl Pace {
    pub(super) fn lease(self) -> Duration {
        Duration::from_secs(self.lease.into())
    }

    pub(super) fn manager(self) -> PartitionManagerOptions {
        let lease = self.lease();
        PartitionManagerOptions {
            lease_duration: lease,
            renew_interval: lease * 3 / 10,
            slow_scan: lease / 5,
            fast_scan: lease / 20,
            handover_timeout: lease,
            fence_margin: lease / 10,
            store_timeout: lease * 3 / 10,
            ..PartitionManagerOptions::default()
        }
    }

    /// A new owner of a killed host's partition goes back by at most a lease duration.
    pub(super) fn processor(self) -> EventProcessorOptions {
        EventProcessorOptions {
            checkpoint: CheckpointPolicy::every(self.lease()),
            ..EventProcessorOptions::default()
        }
    }
}
