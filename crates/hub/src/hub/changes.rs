//! Changes a running hub: consumer groups, number of partitions, retention; also applies retention, or
//! begins a new segment, at once. Calls wait for the disk.

use std::sync::{Arc, MutexGuard, PoisonError};

use ephor_core::ids::ConsumerGroup;

use super::{Hub, find_group};
use crate::catalog::HubRecord;
use crate::config::{HubConfig, MAX_PARTITIONS, Retention};
use crate::error::HubError;
use crate::journal::layout::PartitionStart;
use crate::partition::Partition;
use crate::time::ClockReading;

impl Hub {
    /// Creates a consumer group, or returns the one that exists. Names are compared without case.
    pub fn create_group(&self, name: &str) -> Result<ConsumerGroup, HubError> {
        let group: ConsumerGroup = name.parse()?;
        let changing = self.changing();
        let record = self.record().clone();
        if let Some(present) = find_group(&record, &group) {
            return Ok(present);
        }
        let mut config = as_config(&record);
        config.groups.push(group.clone());
        self.0.config.validate_hub(&config)?;
        self.change(&changing, |record| record.groups.push(group.clone()))?;
        Ok(group)
    }

    /// Deletes a consumer group. Its receivers fail with an error that says so.
    pub fn delete_group(&self, name: &str) -> Result<(), HubError> {
        let changing = self.changing();
        let record = self.record().clone();
        let asked: ConsumerGroup = name.parse()?;
        let not_found = || HubError::NoSuchGroup { hub: self.0.name.clone(), group: name.to_owned() };
        let group = find_group(&record, &asked).ok_or_else(not_found)?;
        if group == ConsumerGroup::default_group() {
            return Err(HubError::GroupStays(group.to_string()));
        }
        self.change(&changing, |record| record.groups.retain(|one| *one != group))?;
        drop(changing);
        let why = Arc::from(format!("consumer group {group:?} of hub {:?} was deleted", self.0.name));
        self.partitions().iter().for_each(|partition| partition.cut_group(&group, &why));
        Ok(())
    }

    /// Adds partitions until there are `partitions`. From then on, keys may map to other partitions.
    pub fn grow(&self, partitions: u32) -> Result<(), HubError> {
        let changing = self.changing();
        let record = self.record().clone();
        if partitions < record.partitions {
            let (hub, present) = (self.0.name.clone(), record.partitions);
            return Err(HubError::CannotShrink { hub, present, wanted: partitions });
        }
        let config = HubConfig { partitions, ..as_config(&record) };
        self.0.config.validate_hub(&config)?;
        // The record first: a partition that holds events must be known after a crash.
        self.change(&changing, |record| record.partitions = partitions)?;
        self.0.commit_queue.appender().journal.grow(partitions);
        let mut present = self.0.partitions.write().unwrap_or_else(PoisonError::into_inner);
        let new = present.len() as u32..partitions.min(MAX_PARTITIONS);
        present.extend(new.map(|id| Partition::new(id, 0, PartitionStart::default())));
        Ok(())
    }

    /// Sets the retention of the hub, from now on.
    pub fn set_retention(&self, retention: Retention) -> Result<(), HubError> {
        let changing = self.changing();
        let record = self.record().clone();
        let config = HubConfig { retention, ..as_config(&record) };
        self.0.config.validate_hub(&config)?;
        self.change(&changing, |record| record.retention = retention)?;
        let Retention { age, bytes } = self.0.config.effective_retention(retention);
        self.0.commit_queue.appender().journal.retain(age, bytes);
        self.0.commit_queue.wake_committer();
        Ok(())
    }

    /// Frees expired segments now. The hub also does it by itself: on disk when it is idle, in memory on every send.
    pub fn enforce_retention(&self) {
        let mut appender = self.0.commit_queue.appender();
        if appender.check_open().is_ok() {
            let now = appender.update_time(ClockReading::of(&*self.0.clock));
            appender.enforce_retention(now);
            appender.warn_if_events_wait(now);
        }
    }

    /// Begins a new segment, so that retention can free older events without the newer ones.
    pub fn seal_segment(&self) -> Result<(), HubError> {
        let mut appender = self.0.commit_queue.appender();
        appender.check_open()?;
        let now = appender.update_time(ClockReading::of(&*self.0.clock));
        let rolled = appender.roll(now.stamp);
        rolled.map_err(HubError::disk("could not create a new segment"))
    }

    /// Allows one change at a time. Reading the record never waits for a change.
    pub(super) fn changing(&self) -> Changing<'_> {
        Changing(self.0.changing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the record, on disk first.
    fn change(&self, _alone: &Changing<'_>, change: impl FnOnce(&mut HubRecord)) -> Result<(), HubError> {
        // A closed hub must not write: another process may have opened the folder.
        self.0.commit_queue.appender().check_open()?;
        let mut changed = self.record().clone();
        change(&mut changed);
        changed.store(&*self.0.files, &self.0.folder)?;
        *self.record() = changed;
        Ok(())
    }
}

/// Proof that nobody else changes the hub's record.
pub(super) struct Changing<'a>(#[expect(dead_code, reason = "held for its lock")] MutexGuard<'a, ()>);

fn as_config(record: &HubRecord) -> HubConfig {
    let HubRecord { name, partitions, retention, max_event_bytes, groups, .. } = record.clone();
    HubConfig { name, partitions, retention, max_event_bytes, groups }
}
