//! Injects faults of one process: crashes and pauses, its clock, its connections to store and hub, its user
//! code.

use std::time::Duration;

use super::Undo;
use crate::coverage::HostCondition;
use crate::faults::Latency;
use crate::fleet::{SimHost, good_day, set};
use crate::processor::ProcessorFaults;
use crate::run::Run;
use crate::scenario::{Act, Fault};
use crate::source::SourceFaults;
use crate::stopping::STOP_WITHIN;
use crate::store::StoreFaults;

/// The time for which the store is unreachable after `StoreTrouble`: longer than most leases.
const CUT_OFF: Duration = Duration::from_secs(40);
/// The drift of a clock: two percent.
const DRIFT_PPM: i32 = 20_000;
/// The most by which a wall clock is set forward or back, in milliseconds.
const AN_HOUR: i64 = 3_600_000;
/// The pause before another attempt to start a process that is still stopping.
const SOON: Duration = Duration::from_secs(1);

/// The longest call before and during a long stop.
const LONG_CALL: Duration = Duration::from_secs(60);
/// The longest `close` in some long stops.
const LONG_CLOSE: Duration = Duration::from_secs(100);
/// The most time that a stop leaves to calls in flight, in seconds.
const LONGEST_STOP: u64 = 120;
/// Calls become long this much before a stop, so that some are in flight when it comes.
const BEFORE_A_STOP: Duration = Duration::from_secs(8);

impl Run {
    pub(super) fn somebody_joins(&mut self, act: &Act) -> bool {
        let world = self.world.clone();
        let running = self.hosts.iter().filter(|host| host.runs()).count();
        let mut host = match act.fault {
            Fault::Namesake if running > 0 => {
                let number = self.pick(act, SimHost::runs).unwrap_or_default();
                SimHost::named(&world, &self.hosts[number].name)
            }
            _ => SimHost::new(&world, self.hosts.len()),
        };
        world.history.tell(format_args!("{:?}: another {}", act.fault, host.name));
        host.start(&world);
        world.cover_host(&format!("{:?}", act.fault), &host);
        self.hosts.push(host);
        true
    }

    /// The host that a fault hits, of those that it can hit.
    pub(super) fn pick(&self, act: &Act, can: impl Fn(&SimHost) -> bool) -> Option<usize> {
        let hosts: Vec<usize> = (0..self.hosts.len()).filter(|&i| can(&self.hosts[i])).collect();
        // One fault in five hits a host that is in trouble already.
        let in_trouble = |i: &usize| self.hosts[*i].condition(&self.world) != HostCondition::Active;
        let mut again: Vec<usize> = hosts.iter().copied().filter(in_trouble).collect();
        again.truncate(if act.target.is_multiple_of(5) { again.len() } else { 0 });
        let hosts = if again.is_empty() { hosts } else { again };
        (!hosts.is_empty()).then(|| hosts[act.target / 5 % hosts.len()])
    }

    pub(super) fn happens_to_a_machine(&mut self, act: &Act) -> bool {
        let world = self.world.clone();
        let awake = |host: &SimHost| !world.handle.is_paused(host.machine);
        let running = self.hosts.iter().filter(|host| host.runs()).count();
        let picked = match act.fault {
            Fault::ClockDrift | Fault::ClockJump | Fault::WallClockSet => self.pick(act, |host| !host.gone),
            Fault::Restart
            | Fault::Upgrade
            | Fault::BrokenUpgrade
            | Fault::LongStop
            | Fault::StoreHangsAtStop => self.pick(act, |host| host.runs() && awake(host)),
            // At least one host has to stay.
            Fault::Leave if running < 2 => None,
            Fault::Leave => self.pick(act, |host| host.runs() && awake(host)),
            Fault::Suspend => {
                let can = |host: &SimHost| host.process.is_some() && awake(host);
                let in_a_call = |host: &SimHost| can(host) && world.judge.is_in_a_call(host.machine);
                self.pick(act, in_a_call).or_else(|| self.pick(act, can))
            }
            Fault::Pause | Fault::Freeze => self.pick(act, |host| host.process.is_some() && awake(host)),
            _ => self.pick(act, |host| host.process.is_some()),
        };
        let Some(number) = picked else { return false };
        world
            .history
            .tell(format_args!("{}: {:?} for {:?}", self.hosts[number].name, act.fault, act.lasting));
        world.cover_host(&format!("{:?}", act.fault), &self.hosts[number]);
        if !matches!(
            act.fault,
            Fault::FailingProcessor
                | Fault::OddCheckpoints
                | Fault::Suspend
                | Fault::LongStop
                | Fault::StoreHangsAtStop
        ) {
            world.judge.disturbed(self.hosts[number].machine, act.lasting);
        }
        if matches!(act.fault, Fault::ClockJump | Fault::ClockDrift) {
            world.judge.stands(self.hosts[number].machine, act.lasting);
        }
        if let Some(undo) = self.hit(number, act) {
            self.later(act.lasting, undo);
        }
        true
    }

    /// Injects the fault, and returns the step that undoes it.
    fn hit(&mut self, number: usize, act: &Act) -> Option<Undo> {
        let world = self.world.clone();
        let host = &mut self.hosts[number];
        let usual = good_day(&world.scenario);
        let code = |faults: ProcessorFaults| {
            set(&host.processor, faults);
            Some(Undo::Processor(number))
        };
        match act.fault {
            Fault::SlowProcessor => code(ProcessorFaults { call: Duration::from_secs(40), ..usual }),
            Fault::FailingProcessor => {
                let fail = if act.target.is_multiple_of(4) { 0.95 } else { 0.3 };
                code(ProcessorFaults { fail, panic: 0.1, open_fails: 0.3, close_fails: 0.2, ..usual })
            }
            Fault::BlockedProcessor => code(ProcessorFaults { block: 0.05, ..usual }),
            Fault::HangingProcessor => code(ProcessorFaults { hang: 0.97, ..usual }),
            Fault::OddCheckpoints => code(ProcessorFaults { odd: 0.5, ..usual }),
            Fault::Crash => {
                host.crash(&world);
                Some(Undo::Start(number))
            }
            Fault::Restart => {
                host.stop(&world, STOP_WITHIN);
                Some(Undo::Start(number))
            }
            Fault::Upgrade => {
                host.stop(&world, STOP_WITHIN);
                host.style = world.scenario.upgraded.clone();
                Some(Undo::Start(number))
            }
            Fault::BrokenUpgrade => {
                host.stop(&world, STOP_WITHIN);
                set(&host.processor, ProcessorFaults { open_fails: 1.0, ..usual });
                self.later(SOON, Undo::Start(number));
                Some(Undo::Processor(number))
            }
            Fault::Leave => {
                host.stop(&world, STOP_WITHIN);
                host.gone = true;
                None
            }
            Fault::LongStop => {
                // In one of three long stops `close` takes long; in the others, calls do.
                let (call, close) = if act.target.is_multiple_of(3) {
                    (usual.call, LONG_CLOSE)
                } else {
                    (LONG_CALL, usual.close)
                };
                set(&host.processor, ProcessorFaults { call, close, ..usual });
                let least = if act.target.is_multiple_of(3) { 110 } else { 30 };
                let within = Duration::from_secs(least + act.target as u64 % (LONGEST_STOP + 1 - least));
                self.later(BEFORE_A_STOP, Undo::Stop { host: number, within, hangs: Duration::ZERO });
                None
            }
            Fault::StoreHangsAtStop => {
                set(&host.processor, ProcessorFaults { call: STOP_WITHIN * 3 / 4, ..usual });
                let hangs = Duration::from_secs(5 + act.target as u64 % 11);
                self.later(BEFORE_A_STOP, Undo::Stop { host: number, within: STOP_WITHIN, hangs });
                None
            }
            Fault::Suspend => {
                host.fall_asleep(&world);
                let asleep = host.style.lease * (20 + act.target as u32 % 60) / 100;
                self.later(asleep, Undo::Resume(number));
                None
            }
            Fault::Pause | Fault::Freeze => {
                host.pause(&world, act.fault == Fault::Freeze);
                Some(Undo::Resume(number))
            }
            Fault::ClockDrift => {
                host.drift(&world, if act.target.is_multiple_of(2) { DRIFT_PPM } else { -DRIFT_PPM });
                Some(Undo::Drift(number))
            }
            Fault::ClockJump => {
                world.handle.change_clock(host.machine, |clock, now| clock.jump(now, act.lasting));
                None
            }
            Fault::WallClockSet => {
                let by = (act.target as i64 - 500) * AN_HOUR / 500;
                world.handle.change_clock(host.machine, |clock, _| clock.shift_wall(by));
                None
            }
            Fault::StoreTrouble => {
                host.set_store(&world, store_trouble());
                let undo = if act.target.is_multiple_of(2) { Undo::Store } else { Undo::StoreCutOff };
                Some(undo(number))
            }
            Fault::StoreCutOff => {
                host.set_store(&world, StoreFaults::cut_off());
                Some(Undo::Store(number))
            }
            Fault::StoreBlind => {
                host.set_store(&world, StoreFaults::blind());
                Some(Undo::Store(number))
            }
            Fault::StoreDeaf => {
                host.set_store(&world, StoreFaults::deaf());
                Some(Undo::Store(number))
            }
            Fault::HubTrouble => {
                let latency = Latency::milliseconds(1, 300);
                let trouble = SourceFaults {
                    latency,
                    slow: 0.05,
                    unavailable: 0.2,
                    broken_link: 0.1,
                    ..SourceFaults::default()
                };
                set(&host.source, trouble);
                Some(Undo::Source(number))
            }
            Fault::HubCutOff => {
                set(&host.source, SourceFaults::cut_off());
                Some(Undo::Source(number))
            }
            Fault::HubDeaf => {
                set(&host.source, SourceFaults::deaf());
                Some(Undo::Source(number))
            }
            other => unreachable!("{other:?} does not happen to one machine"),
        }
    }

    /// Tells a host to stop, with a store that hangs for this long. It is started again once it has stopped.
    pub(super) fn is_told_to_stop(&mut self, number: usize, within: Duration, hangs: Duration) {
        let world = self.world.clone();
        let host = &mut self.hosts[number];
        if host.runs() && !world.handle.is_paused(host.machine) {
            world
                .history
                .tell(format_args!("{}: stops within {within:?}; its store hangs for {hangs:?}", host.name));
            if !hangs.is_zero() {
                host.set_store(&world, StoreFaults::hanging(world.handle.now() + hangs));
                self.later(hangs, Undo::Store(number));
            }
            self.hosts[number].stop(&world, within);
            self.later(within / 2, Undo::Start(number));
        }
        self.later(within, Undo::Processor(number));
    }

    pub(super) fn undo_on_a_machine(&mut self, undo: Undo) {
        let world = self.world.clone();
        let (Undo::Start(number)
        | Undo::Resume(number)
        | Undo::Drift(number)
        | Undo::Store(number)
        | Undo::StoreCutOff(number)
        | Undo::Source(number)
        | Undo::Processor(number)) = undo
        else {
            return;
        };
        let host = &mut self.hosts[number];
        world.history.tell(format_args!("{}: {undo:?} again", host.name));
        match undo {
            Undo::Start(_) => {
                if !host.start(&world) {
                    self.later(SOON, undo);
                }
            }
            Undo::Resume(_) => host.wake(&world),
            Undo::Drift(_) => host.drift(&world, 0),
            Undo::StoreCutOff(_) => {
                host.set_store(&world, StoreFaults::cut_off());
                self.later(CUT_OFF, Undo::Store(number));
            }
            Undo::Source(_) => set(&host.source, SourceFaults::default()),
            Undo::Processor(_) => set(&host.processor, good_day(&world.scenario)),
            _ => host.set_store(&world, StoreFaults::default()),
        }
    }
}

/// A store with every kind of fault.
fn store_trouble() -> StoreFaults {
    StoreFaults {
        latency: Latency::milliseconds(1, 800),
        slow: 0.05,
        slow_answer: 0.2,
        lost_request: 0.05,
        lost_response: 0.08,
        error_before: 0.08,
        error_after: 0.08,
        conflict: 0.1,
        lost_notification: 0.3,
        ..StoreFaults::default()
    }
}
