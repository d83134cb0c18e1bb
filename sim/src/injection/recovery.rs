//! Ends all faults, waits until the fleet is stable, and passes its final state to the judge.

use std::time::Duration;

use ephor::PumpState;
use ephor_core::host_record::HostState;
use ephor_core::time::Monotonic;

use crate::fleet::{fault_free, set};
use crate::judge::{FinalState, Promise, RunningHost};
use crate::processor::ProcessorFaults;
use crate::run::Run;
use crate::scenario::{Ending, STILL_TIME};
use crate::source::SourceFaults;
use crate::store::StoreFaults;

/// The interval at which operators look for halted partitions.
const OPERATOR_INTERVAL: Duration = Duration::from_secs(30);
/// The longest time in which a fleet with a broken host must reach a good state once.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// The interval of these checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The fault that stays after all others have ended.
pub(crate) struct RemainingFault {
    /// The host that stays drained or broken.
    host: Option<usize>,
}

impl Run {
    /// Ends all faults but the one that is to stay, and lets the fleet come to rest.
    pub(crate) fn end_faults(&mut self, until: Monotonic) -> RemainingFault {
        self.undo_all_faults();
        let host = match self.world.scenario.ending {
            Ending::Healthy => None,
            Ending::OneBroken => self.break_one_host(),
            Ending::OneDrained => {
                self.run_until(self.world.handle.now() + OPERATOR_INTERVAL * 2);
                self.drain_one_host()
            }
        };
        while self.world.handle.now() < until && !self.is_over() {
            self.run_until((self.world.handle.now() + OPERATOR_INTERVAL).min(until));
            self.seek_halted_partitions();
        }
        let remaining = RemainingFault { host };
        self.wait_for_backlogs(&remaining);
        remaining
    }

    /// Goes on for as long as every partition that is behind finishes events: a backlog that is processed one event
    /// at a time may outlast the usual time. A partition that stands still is left to the judge.
    fn wait_for_backlogs(&mut self, remaining: &RemainingFault) {
        let judge = self.world.judge.clone();
        let mut behind = judge.behind(&self.final_state(remaining));
        while !behind.is_empty() && !self.is_over() {
            self.run_until(self.world.handle.now() + OPERATOR_INTERVAL * 2);
            let now = judge.behind(&self.final_state(remaining));
            let stands_still = |(partition, done)| behind.get(partition).is_some_and(|before| before >= done);
            if now.iter().any(stands_still) {
                return;
            }
            behind = now;
        }
    }

    fn undo_all_faults(&mut self) {
        let world = self.world.clone();
        world.history.append("all faults end");
        self.clear_pending();
        self.foreign_readers.drain(..).for_each(|foreign_reader| foreign_reader.abort());
        self.end_store_faults();
        world.hub.hold_properties(false);
        world.hub.fail(None);
        for (partition, machine) in world.judge.held() {
            if let Some(number) = self.hosts.iter().position(|host| host.machine == machine) {
                self.end_hold(number, partition);
            }
        }
        for number in 0..self.hosts.len() {
            let host = &mut self.hosts[number];
            host.wake(&world);
            host.drift(&world, 0);
            host.set_store(&world, StoreFaults::default());
            set(&host.source, SourceFaults::default());
            set(&host.processor, fault_free(&world.scenario));
            if !host.start(&world) {
                self.later(CHECK_INTERVAL, super::Undo::Start(number));
            }
            if let Some(id) = self.hosts[number].id() {
                self.order_drain(&id, false);
            }
        }
    }

    /// Starts one host again with a processor that does not open any more. Other hosts must be able to take
    /// its share.
    fn break_one_host(&mut self) -> Option<usize> {
        let running: Vec<usize> = (0..self.hosts.len()).filter(|&i| self.hosts[i].runs()).collect();
        let limited = self.world.scenario.config.max_partitions.is_some();
        let number = *running.first().filter(|_| running.len() > 1 && !limited)?;
        let world = self.world.clone();
        let host = &mut self.hosts[number];
        host.crash(&world);
        set(&host.processor, ProcessorFaults { open_fails: 1.0, ..fault_free(&world.scenario) });
        host.start(&world);
        Some(number)
    }

    /// Drains a host for good, as an operator.
    fn drain_one_host(&mut self) -> Option<usize> {
        let running: Vec<usize> = (0..self.hosts.len()).filter(|&i| self.hosts[i].runs()).collect();
        let number = *running.first().filter(|_| running.len() > 1)?;
        let id = self.hosts[number].id()?;
        self.order_drain(&id, true);
        Some(number)
    }

    /// Seeks, as an operator, on partitions that are halted because their position does not exist.
    fn seek_halted_partitions(&mut self) {
        let mut halted = vec![];
        for process in self.hosts.iter().filter_map(|host| host.process.as_ref()) {
            let partitions = process.snapshot().map(|snapshot| snapshot.partitions).unwrap_or_default();
            halted
                .extend(partitions.iter().filter(|it| it.state == PumpState::Halted).map(|it| it.partition));
        }
        for partition in halted {
            let complete_from = self.world.judge.complete_from(partition);
            self.seek(partition, complete_from);
        }
    }

    fn final_state(&self, remaining: &RemainingFault) -> FinalState {
        let running = self.hosts.iter().enumerate().filter(|(_, host)| host.runs());
        let running = running.filter_map(|(number, host)| {
            let takes_part = remaining.host != Some(number);
            Some(RunningHost { host: host.id()?, max: host.config.max_partitions, takes_part })
        });
        FinalState { ends: self.world.hub.ends(), running: running.collect() }
    }

    /// Judges the state after the faults: everything owned, evenly, finished, and nothing moves any more.
    pub(crate) fn judge_final_state(&mut self, remaining: &RemainingFault) {
        let judge = self.world.judge.clone();
        for host in self.hosts.iter().filter(|host| host.stopping.is_some()) {
            judge.stop_never_returned(host.machine);
        }
        if self.world.scenario.ending == Ending::OneBroken && remaining.host.is_some() {
            self.wait_until_others_own_everything(remaining);
            return;
        }
        let final_state = self.final_state(remaining);
        judge.check_final_state(&final_state);
        if !self.is_over() {
            self.world.user_code.audit(&self.world.hub, &judge, &final_state);
        }
        let before = self.scans();
        let still_from = self.world.handle.now();
        self.executor.run_for(STILL_TIME);
        if judge.last_change() > still_from {
            let what = "a partition moved although no fault had happened".into();
            judge.report_violation(Promise::BalancedAndStill, None, what);
        }
        for (number, (before, after)) in before.iter().zip(self.scans()).enumerate() {
            if before.is_some() && after <= *before {
                let what = format!("the scan loop of {} has stopped", self.hosts[number].name);
                judge.report_violation(Promise::LoopNeverDies, None, what);
            }
        }
    }

    /// Waits for a moment at which the broken host reports that it cannot serve and the others own
    /// everything, evenly. A host that cannot serve tries again from time to time, so not every moment is
    /// like that.
    fn wait_until_others_own_everything(&mut self, remaining: &RemainingFault) {
        let judge = self.world.judge.clone();
        let until = self.world.handle.now() + MAX_WAIT;
        while self.world.handle.now() < until && !self.is_over() {
            let process = remaining.host.and_then(|number| self.hosts[number].process.as_ref());
            let state = process.and_then(|process| Some(process.snapshot()?.state));
            let final_state = self.final_state(remaining);
            let aside = matches!(state, Some(HostState::Unhealthy | HostState::Standby));
            if aside && judge.uneven(&final_state).is_empty() {
                judge.check_final_state(&final_state);
                return;
            }
            self.run_until(self.world.handle.now() + CHECK_INTERVAL);
        }
        let what = "one host cannot serve, but its share never moved evenly to the others".into();
        judge.report_violation(Promise::BalancedAndStill, None, what);
    }

    fn scans(&self) -> Vec<Option<u64>> {
        self.hosts.iter().map(|host| Some(host.process.as_ref()?.snapshot()?.scans)).collect()
    }
}
