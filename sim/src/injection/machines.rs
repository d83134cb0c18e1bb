//! Injects faults of one host process: crashes, pauses, stops and restarts, clock faults, faults of its
//! connections to store and hub, and of its user code. Also adds hosts to the fleet.

use std::time::Duration;

use super::Undo;
use crate::call_faults::Latency;
use crate::coverage::HostCondition;
use crate::fleet::{SimHost, fault_free, set};
use crate::processor::ProcessorFaults;
use crate::run::Run;
use crate::scenario::{Fault, Injection};
use crate::source::SourceFaults;
use crate::stopping::{STOP_WITHIN, StopCallers};
use crate::store::StoreFaults;

/// The time for which the store is unreachable after `StoreTrouble`: longer than most leases.
const CUT_OFF_TIME: Duration = Duration::from_secs(40);
/// The drift of a clock: two percent.
const DRIFT_PPM: i32 = 20_000;
/// The most by which a wall clock is set forward or back, in milliseconds.
const MAX_WALL_SHIFT_MS: i64 = 3_600_000;
/// The pause before another attempt to start a process that is still stopping.
const START_RETRY: Duration = Duration::from_secs(1);

/// The longest call before and during a long stop.
const MAX_CALL_AT_LONG_STOP: Duration = Duration::from_secs(60);
/// The longest `close` in some long stops.
const MAX_CLOSE_AT_LONG_STOP: Duration = Duration::from_secs(100);
/// The most time that a stop leaves to calls in flight, in seconds.
const MAX_STOP_SECONDS: u64 = 120;
/// Calls become long this much before a stop, so that some are in flight when it comes.
const LEAD_BEFORE_STOP: Duration = Duration::from_secs(8);

impl Run {
    pub(super) fn add_host(&mut self, injection: &Injection) -> bool {
        let world = self.world.clone();
        let running = self.hosts.iter().filter(|host| host.runs()).count();
        let mut host = match injection.fault {
            Fault::Namesake if running > 0 => {
                let number = self.pick(injection, SimHost::runs).unwrap_or_default();
                SimHost::named(&world, &self.hosts[number].name)
            }
            _ => SimHost::new(&world, self.hosts.len()),
        };
        world.history.append(format_args!("{:?}: {} joins", injection.fault, host.name));
        host.start(&world);
        world.cover_host(&format!("{:?}", injection.fault), &host);
        self.hosts.push(host);
        true
    }

    /// The host that a fault hits, of those that it can hit.
    pub(super) fn pick(&self, injection: &Injection, can: impl Fn(&SimHost) -> bool) -> Option<usize> {
        let hosts: Vec<usize> = (0..self.hosts.len()).filter(|&i| can(&self.hosts[i])).collect();
        // One fault in five hits a host that has a fault already.
        let has_fault = |i: &usize| self.hosts[*i].condition(&self.world) != HostCondition::Active;
        let mut again: Vec<usize> = hosts.iter().copied().filter(has_fault).collect();
        again.truncate(if injection.target.is_multiple_of(5) { again.len() } else { 0 });
        let hosts = if again.is_empty() { hosts } else { again };
        (!hosts.is_empty()).then(|| hosts[injection.target / 5 % hosts.len()])
    }

    pub(super) fn inject_into_host(&mut self, injection: &Injection) -> bool {
        let world = self.world.clone();
        let awake = |host: &SimHost| !world.handle.is_paused(host.machine);
        let running = self.hosts.iter().filter(|host| host.runs()).count();
        let picked = match injection.fault {
            Fault::ClockDrift | Fault::ClockJump | Fault::WallClockSet => {
                self.pick(injection, |host| !host.gone)
            }
            Fault::Restart
            | Fault::Upgrade
            | Fault::BrokenUpgrade
            | Fault::LongStop
            | Fault::StopTwice
            | Fault::StopCallerLeaves
            | Fault::StopDuringStart
            | Fault::StoreHangsAtStop => self.pick(injection, |host| host.runs() && awake(host)),
            // At least one host has to stay.
            Fault::Leave if running < 2 => None,
            Fault::Leave => self.pick(injection, |host| host.runs() && awake(host)),
            Fault::Suspend => {
                let can = |host: &SimHost| host.process.is_some() && awake(host);
                let in_a_call = |host: &SimHost| can(host) && world.judge.is_in_a_call(host.machine);
                self.pick(injection, in_a_call).or_else(|| self.pick(injection, can))
            }
            Fault::PauseProcess | Fault::Freeze => {
                self.pick(injection, |host| host.process.is_some() && awake(host))
            }
            _ => self.pick(injection, |host| host.process.is_some()),
        };
        let Some(number) = picked else { return false };
        world.history.append(format_args!(
            "{}: {:?} for {:?}",
            self.hosts[number].name, injection.fault, injection.lasting
        ));
        world.cover_host(&format!("{:?}", injection.fault), &self.hosts[number]);
        if !matches!(
            injection.fault,
            Fault::FailingProcessor
                | Fault::OddCheckpoints
                | Fault::Suspend
                | Fault::LongStop
                | Fault::StopTwice
                | Fault::StopCallerLeaves
                | Fault::StoreHangsAtStop
        ) {
            world.judge.note_fault(self.hosts[number].machine, injection.lasting);
        }
        if matches!(injection.fault, Fault::ClockJump | Fault::ClockDrift) {
            world.judge.note_time_fault(self.hosts[number].machine, injection.lasting);
        }
        if let Some(undo) = self.apply_to_host(number, injection) {
            self.later(injection.lasting, undo);
        }
        true
    }

    /// Injects the fault, and returns the step that undoes it.
    fn apply_to_host(&mut self, number: usize, injection: &Injection) -> Option<Undo> {
        let world = self.world.clone();
        let host = &mut self.hosts[number];
        let fault_free = fault_free(&world.scenario);
        let code = |faults: ProcessorFaults| {
            set(&host.processor, faults);
            Some(Undo::Processor(number))
        };
        match injection.fault {
            Fault::SlowProcessor => code(ProcessorFaults { call: Duration::from_secs(40), ..fault_free }),
            Fault::FailingProcessor => {
                let fail = if injection.target.is_multiple_of(4) { 0.95 } else { 0.3 };
                code(ProcessorFaults { fail, panic: 0.1, open_fails: 0.3, close_fails: 0.2, ..fault_free })
            }
            Fault::BlockedProcessor => code(ProcessorFaults { block: 0.05, ..fault_free }),
            Fault::HangingProcessor => code(ProcessorFaults { hang: 0.97, ..fault_free }),
            Fault::OddCheckpoints => code(ProcessorFaults { odd: 0.5, ..fault_free }),
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
                host.config = world.scenario.upgraded.clone();
                Some(Undo::Start(number))
            }
            Fault::BrokenUpgrade => {
                host.stop(&world, STOP_WITHIN);
                set(&host.processor, ProcessorFaults { open_fails: 1.0, ..fault_free });
                self.later(START_RETRY, Undo::Start(number));
                Some(Undo::Processor(number))
            }
            Fault::Leave => {
                host.stop(&world, STOP_WITHIN);
                host.gone = true;
                None
            }
            Fault::LongStop => {
                // In one of three long stops `close` takes long; in the others, calls do.
                let (call, close) = if injection.target.is_multiple_of(3) {
                    (fault_free.call, MAX_CLOSE_AT_LONG_STOP)
                } else {
                    (MAX_CALL_AT_LONG_STOP, fault_free.close)
                };
                set(&host.processor, ProcessorFaults { call, close, ..fault_free });
                let least = if injection.target.is_multiple_of(3) { 110 } else { 30 };
                let within =
                    Duration::from_secs(least + injection.target as u64 % (MAX_STOP_SECONDS + 1 - least));
                let (hangs, callers) = (Duration::ZERO, StopCallers::One);
                self.later(LEAD_BEFORE_STOP, Undo::Stop { host: number, within, hangs, callers });
                None
            }
            Fault::StoreHangsAtStop => {
                set(&host.processor, ProcessorFaults { call: STOP_WITHIN * 3 / 4, ..fault_free });
                let hangs = Duration::from_secs(5 + injection.target as u64 % 11);
                let (within, callers) = (STOP_WITHIN, StopCallers::One);
                self.later(LEAD_BEFORE_STOP, Undo::Stop { host: number, within, hangs, callers });
                None
            }
            Fault::StopTwice => {
                set(&host.processor, ProcessorFaults { call: MAX_CALL_AT_LONG_STOP, ..fault_free });
                let drawn = injection.target as u64;
                let within = Duration::from_secs(MAX_STOP_SECONDS - drawn % 60);
                // In one of three cases the store hangs, too.
                let hangs = Duration::from_secs(if drawn.is_multiple_of(3) { 5 + drawn % 11 } else { 0 });
                let callers = StopCallers::Two {
                    after: Duration::from_millis(drawn * 20),
                    within: Duration::from_secs(drawn % 8),
                };
                self.later(LEAD_BEFORE_STOP, Undo::Stop { host: number, within, hangs, callers });
                None
            }
            Fault::StopCallerLeaves => {
                set(&host.processor, ProcessorFaults { call: STOP_WITHIN, ..fault_free });
                let drawn = injection.target as u64;
                let callers = StopCallers::Leaves {
                    after: Duration::from_millis(drawn * 5),
                    again: Duration::from_secs(drawn % 60),
                };
                let (within, hangs) = (STOP_WITHIN, Duration::ZERO);
                self.later(LEAD_BEFORE_STOP, Undo::Stop { host: number, within, hangs, callers });
                None
            }
            Fault::StopDuringStart => {
                host.crash(&world);
                host.start_cut_off(&world, Duration::from_micros(injection.target as u64 * 20));
                None
            }
            Fault::Suspend => {
                host.fall_asleep(&world);
                let asleep = host.config.lease * (20 + injection.target as u32 % 60) / 100;
                self.later(asleep, Undo::Resume(number));
                None
            }
            Fault::PauseProcess | Fault::Freeze => {
                host.pause(&world, injection.fault == Fault::Freeze);
                Some(Undo::Resume(number))
            }
            Fault::ClockDrift => {
                host.drift(&world, if injection.target.is_multiple_of(2) { DRIFT_PPM } else { -DRIFT_PPM });
                Some(Undo::Drift(number))
            }
            Fault::ClockJump => {
                world.handle.change_clock(host.machine, |clock, now| clock.jump(now, injection.lasting));
                None
            }
            Fault::WallClockSet => {
                let by = (injection.target as i64 - 500) * MAX_WALL_SHIFT_MS / 500;
                world.handle.change_clock(host.machine, |clock, _| clock.shift_wall(by));
                None
            }
            Fault::StoreTrouble => {
                host.set_store(&world, store_trouble());
                let undo = if injection.target.is_multiple_of(2) { Undo::Store } else { Undo::StoreCutOff };
                Some(undo(number))
            }
            Fault::StoreCutOff => {
                host.set_store(&world, StoreFaults::cut_off());
                Some(Undo::Store(number))
            }
            Fault::HostUnseenInStore => {
                host.set_store(&world, StoreFaults::blind());
                Some(Undo::Store(number))
            }
            Fault::StoreAnswersLost => {
                host.set_store(&world, StoreFaults::deaf());
                Some(Undo::Store(number))
            }
            Fault::HubTrouble => {
                let latency = Latency::milliseconds(1, 300);
                let faults = SourceFaults {
                    latency,
                    slow: 0.05,
                    unavailable: 0.2,
                    broken_link: 0.1,
                    ..SourceFaults::default()
                };
                set(&host.source, faults);
                Some(Undo::Source(number))
            }
            Fault::HubCutOff => {
                set(&host.source, SourceFaults::cut_off());
                Some(Undo::Source(number))
            }
            Fault::HubAnswersLost => {
                set(&host.source, SourceFaults::deaf());
                Some(Undo::Source(number))
            }
            other => unreachable!("{other:?} does not happen to one machine"),
        }
    }

    /// Tells a host to stop, with a store that hangs for this long. It is started again once it has stopped.
    pub(super) fn tell_to_stop(
        &mut self,
        number: usize,
        within: Duration,
        hangs: Duration,
        callers: StopCallers,
    ) {
        let world = self.world.clone();
        let host = &mut self.hosts[number];
        if host.runs() && !world.handle.is_paused(host.machine) {
            world.history.append(format_args!(
                "{}: stops within {within:?}; its store hangs for {hangs:?}",
                host.name
            ));
            if !hangs.is_zero() {
                host.hang_store(&world, world.handle.now() + hangs);
                self.later(hangs, Undo::Store(number));
            }
            self.hosts[number].stop_for(&world, within, callers);
            self.later(within / 2, Undo::Start(number));
        }
        self.later(within, Undo::Processor(number));
    }

    pub(super) fn undo_on_host(&mut self, number: usize, undo: Undo) {
        let world = self.world.clone();
        let host = &mut self.hosts[number];
        world.history.append(format_args!("{}: {undo:?} again", host.name));
        match undo {
            Undo::Start(_) => {
                if !host.start(&world) {
                    self.later(START_RETRY, undo);
                }
            }
            Undo::Resume(_) => host.wake(&world),
            Undo::Drift(_) => host.drift(&world, 0),
            Undo::StoreCutOff(_) => {
                host.set_store(&world, StoreFaults::cut_off());
                self.later(CUT_OFF_TIME, Undo::Store(number));
            }
            Undo::Source(_) => set(&host.source, SourceFaults::default()),
            Undo::Processor(_) => set(&host.processor, fault_free(&world.scenario)),
            Undo::Store(_) => host.set_store(&world, StoreFaults::default()),
            other => unreachable!("{other:?} does not concern one host alone"),
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
