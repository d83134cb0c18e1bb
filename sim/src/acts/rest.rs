//! Ends all faults, and judges the state in which the fleet comes to rest.

use std::time::Duration;

use ephor::Stage;
use ephor_core::host_record::HostState;
use ephor_core::time::Monotonic;

use crate::fleet::{good_day, set};
use crate::judge::{Alive, Promise, Rest};
use crate::processor::ProcessorFaults;
use crate::run::Run;
use crate::scenario::{Ending, STILL};
use crate::source::SourceFaults;
use crate::store::StoreFaults;

/// The interval at which operators look for halted partitions.
const A_LOOK: Duration = Duration::from_secs(30);
/// The longest time in which a fleet with a broken host must reach a good state once.
const PATIENCE: Duration = Duration::from_secs(600);
/// The interval of these checks.
const STEP: Duration = Duration::from_secs(5);

/// The fault that stays after all others have ended.
pub(crate) struct Left {
    /// The host that stays drained or broken.
    host: Option<usize>,
}

impl Run {
    /// Ends all faults but the one that is to stay, and lets the fleet come to rest.
    pub(crate) fn end_the_trouble(&mut self, until: Monotonic) -> Left {
        self.heal();
        let host = match self.world.scenario.ending {
            Ending::Well => None,
            Ending::OneBroken => self.one_breaks(),
            Ending::OneDrained => {
                self.run_until(self.world.handle.now() + A_LOOK * 2);
                self.one_drains()
            }
        };
        while self.world.handle.now() < until && !self.is_over() {
            self.run_until((self.world.handle.now() + A_LOOK).min(until));
            self.people_look_after_what_waits();
        }
        let left = Left { host };
        self.let_backlogs_end(&left);
        left
    }

    /// Goes on for as long as every partition that is behind finishes events: a backlog that is processed one event
    /// at a time may outlast the usual time. A partition that stands still is left to the judge.
    fn let_backlogs_end(&mut self, left: &Left) {
        let judge = self.world.judge.clone();
        let mut behind = judge.behind(&self.rest(left));
        while !behind.is_empty() && !self.is_over() {
            self.run_until(self.world.handle.now() + A_LOOK * 2);
            let now = judge.behind(&self.rest(left));
            let stands_still = |(partition, done)| behind.get(partition).is_some_and(|before| before >= done);
            if now.iter().any(stands_still) {
                return;
            }
            behind = now;
        }
    }

    fn heal(&mut self) {
        let world = self.world.clone();
        world.history.tell("all trouble ends");
        self.forget_what_is_pending();
        self.strangers.drain(..).for_each(|stranger| stranger.abort());
        self.the_store_is_well();
        world.hub.hold_properties(false);
        world.hub.fail(None);
        for (partition, machine) in world.judge.held() {
            if let Some(number) = self.hosts.iter().position(|host| host.machine == machine) {
                self.let_go(number, partition);
            }
        }
        for number in 0..self.hosts.len() {
            let host = &mut self.hosts[number];
            host.wake(&world);
            host.drift(&world, 0);
            host.set_store(&world, StoreFaults::default());
            set(&host.source, SourceFaults::default());
            set(&host.processor, good_day(&world.scenario));
            if !host.start(&world) {
                self.later(STEP, super::Undo::Start(number));
            }
            if let Some(id) = self.hosts[number].id() {
                self.order_drain(&id, false);
            }
        }
    }

    /// Starts one host again with a processor that does not open any more. Other hosts must be able to take
    /// its share.
    fn one_breaks(&mut self) -> Option<usize> {
        let running: Vec<usize> = (0..self.hosts.len()).filter(|&i| self.hosts[i].runs()).collect();
        let limited = self.world.scenario.style.max_partitions.is_some();
        let number = *running.first().filter(|_| running.len() > 1 && !limited)?;
        let world = self.world.clone();
        let host = &mut self.hosts[number];
        host.crash(&world);
        set(&host.processor, ProcessorFaults { open_fails: 1.0, ..good_day(&world.scenario) });
        host.start(&world);
        Some(number)
    }

    /// Drains a host for good, as an operator.
    fn one_drains(&mut self) -> Option<usize> {
        let running: Vec<usize> = (0..self.hosts.len()).filter(|&i| self.hosts[i].runs()).collect();
        let number = *running.first().filter(|_| running.len() > 1)?;
        let id = self.hosts[number].id()?;
        self.order_drain(&id, true);
        Some(number)
    }

    /// Seeks, as an operator, on partitions that are halted because their position does not exist.
    fn people_look_after_what_waits(&mut self) {
        let mut halted = vec![];
        for process in self.hosts.iter().filter_map(|host| host.process.as_ref()) {
            let partitions = process.snapshot().map(|snapshot| snapshot.partitions).unwrap_or_default();
            halted.extend(partitions.iter().filter(|it| it.stage == Stage::Halted).map(|it| it.partition));
        }
        for partition in halted {
            let whole = self.world.judge.whole_from(partition);
            self.seek(partition, whole);
        }
    }

    fn rest(&self, left: &Left) -> Rest {
        let alive = self.hosts.iter().enumerate().filter(|(_, host)| host.runs());
        let alive = alive.filter_map(|(number, host)| {
            let takes_part = left.host != Some(number);
            Some(Alive { host: host.id()?, max: host.style.max_partitions, takes_part })
        });
        Rest { ends: self.world.hub.ends(), alive: alive.collect() }
    }

    /// Judges the state after the faults: everything owned, evenly, finished, and nothing moves any more.
    pub(crate) fn judge_rest(&mut self, left: &Left) {
        let judge = self.world.judge.clone();
        if self.world.scenario.ending == Ending::OneBroken && left.host.is_some() {
            self.wait_until_the_broken_one_counts_for_nothing(left);
            return;
        }
        let rest = self.rest(left);
        judge.closes_the_case(&rest);
        if !self.is_over() {
            self.world.guest.audit(&self.world.hub, &judge, &rest);
        }
        let before = self.scans();
        let still_from = self.world.handle.now();
        self.executor.run_for(STILL);
        if judge.last_change() > still_from {
            let what = "something moved although nothing had happened".into();
            judge.object(Promise::BalancedAndStill, None, what);
        }
        for (number, (before, after)) in before.iter().zip(self.scans()).enumerate() {
            if before.is_some() && after <= *before {
                let what = format!("the loop of {} has died", self.hosts[number].name);
                judge.object(Promise::LoopNeverDies, None, what);
            }
        }
    }

    /// Waits for a moment at which the broken host reports that it cannot serve and the others own
    /// everything, evenly. A host that cannot serve tries again from time to time, so not every moment is
    /// like that.
    fn wait_until_the_broken_one_counts_for_nothing(&mut self, left: &Left) {
        let judge = self.world.judge.clone();
        let until = self.world.handle.now() + PATIENCE;
        while self.world.handle.now() < until && !self.is_over() {
            let process = left.host.and_then(|number| self.hosts[number].process.as_ref());
            let state = process.and_then(|process| Some(process.snapshot()?.state));
            let rest = self.rest(left);
            let aside = matches!(state, Some(HostState::Unfit | HostState::Standby));
            if aside && judge.uneven(&rest).is_empty() {
                judge.closes_the_case(&rest);
                return;
            }
            self.run_until(self.world.handle.now() + STEP);
        }
        let what = "one host cannot serve, and its share never went to the others, evenly".into();
        judge.object(Promise::BalancedAndStill, None, what);
    }

    fn scans(&self) -> Vec<Option<u64>> {
        self.hosts.iter().map(|host| Some(host.process.as_ref()?.snapshot()?.scans)).collect()
    }
}
