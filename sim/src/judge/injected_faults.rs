//! Records the injected faults of machines, store and log, so that the judge knows which delays and losses
//! they explain.

use std::ops::Range;
use std::time::Duration;

use ephor::{PartitionId, SequenceNumber};
use ephor_core::ids::LogId;

use super::Judge;
use super::partition_facts::EarlierLog;
use crate::executor::Machine;

impl Judge {
    /// Notes a fault on a machine that lasts this long, so that actions of its host may be late.
    pub fn note_fault(&self, machine: Machine, lasting: Duration) {
        let until = self.handle.now() + lasting;
        let mut state = self.state();
        state.machines.entry(machine).or_default().note_fault_until(until);
    }

    /// Notes that a machine stands still or blocks its thread for this long, or that its clock jumps or
    /// drifts.
    pub fn note_time_fault(&self, machine: Machine, lasting: Duration) {
        let until = self.handle.now() + lasting;
        let mut state = self.state();
        let machine_facts = state.machines.entry(machine).or_default();
        machine_facts.time_fault_until = machine_facts.time_fault_until.max(until);
    }

    /// Notes that the store's clock was set.
    pub fn note_store_clock_set(&self) {
        let now = self.handle.now();
        self.state().store_set_at = Some(now);
    }

    /// Notes that a machine's connection to the store becomes bad, or good again.
    pub fn note_store_bad(&self, machine: Machine, bad: bool) {
        let now = self.handle.now();
        let mut state = self.state();
        let machine_facts = state.machines.entry(machine).or_default();
        // If one fault of the store follows another, the time counts from the first.
        if !(bad && machine_facts.store_is_bad) {
            (machine_facts.store_is_bad, machine_facts.store_changed_at) = (bad, now);
        }
        if std::mem::take(&mut machine_facts.store_hangs) && !bad {
            machine_facts.hung_until = Some(now);
        } else {
            machine_facts.note_fault_until(now);
        }
        state.note_outage(Some(machine), bad, now);
    }

    /// Notes that a machine's store begins to hang because its host stops. It hangs for seconds only.
    pub fn note_store_hangs(&self, machine: Machine) {
        let now = self.handle.now();
        let mut state = self.state();
        let machine_facts = state.machines.entry(machine).or_default();
        if machine_facts.store_is_bad {
            machine_facts.note_fault_until(now);
        } else {
            (machine_facts.store_is_bad, machine_facts.store_changed_at) = (true, now);
            machine_facts.store_hangs = true;
        }
        state.note_outage(Some(machine), true, now);
    }

    /// Notes that the store becomes bad for all hosts, or good again.
    pub fn note_store_bad_for_all(&self, bad: bool) {
        let now = self.handle.now();
        let mut state = self.state();
        if !(bad && state.common.0) {
            state.common = (bad, now);
        }
        state.note_outage(None, bad, now);
    }

    /// Notes that a machine's clock stood still until now while time passed.
    pub fn note_clock_stopped(&self, machine: Machine) {
        let now = self.handle.now();
        let mut state = self.state();
        let machine_facts = state.machines.entry(machine).or_default();
        machine_facts.clock_stopped_until = Some(now);
        machine_facts.note_fault_until(now);
    }

    /// Notes that the hub was deleted and created again with this log. Its former events are gone.
    pub fn note_hub_recreated(&self, log: Option<LogId>) {
        let mut state = self.state();
        let deleted = state.log_generation();
        state.logs.push(log);
        for facts in state.partitions.values_mut() {
            let (oldest_kept, passed_over) =
                (std::mem::take(&mut facts.oldest_kept), std::mem::take(&mut facts.passed_over));
            facts.earlier.insert(deleted, EarlierLog { oldest_kept, passed_over });
            facts.done.clear();
            facts.discarded_by_seeks.clear();
            facts.excused_before = SequenceNumber(0);
        }
    }

    /// Notes that the hub lost the events of these numbers, or will never assign the numbers.
    pub fn passed_over(&self, partition: PartitionId, numbers: Range<SequenceNumber>) {
        self.state().partitions.entry(partition).or_default().passed_over.push(numbers);
    }

    /// Notes that retention removed all events before this one.
    pub fn removed_before(&self, partition: PartitionId, kept: SequenceNumber) {
        let mut state = self.state();
        let facts = state.partitions.entry(partition).or_default();
        facts.oldest_kept = facts.oldest_kept.max(kept);
    }
}
