//! Checks the final state after the faults: everything is owned, evenly, finished and at rest. Also checks
//! each stop.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ephor::{HostId, PartitionId, SequenceNumber, StopReport};
use ephor_core::time::Monotonic;

use super::{Judge, Promise};
use crate::executor::Machine;
use crate::scenario::SETTLE;

/// A host that runs at the end.
#[derive(Clone, Debug)]
pub struct Alive {
    /// The host.
    pub host: HostId,
    /// The most partitions that it may own.
    pub max: Option<u32>,
    /// True if it should own partitions: it is neither drained nor unhealthy.
    pub takes_part: bool,
}

/// The state at the end of a run.
#[derive(Clone, Debug)]
pub struct Rest {
    /// The newest event of each partition.
    pub ends: Vec<(PartitionId, Option<SequenceNumber>)>,
    /// The hosts that run.
    pub alive: Vec<Alive>,
}

impl Rest {
    /// The number of partitions that nobody may own, because every host is at its maximum.
    fn without_room(&self) -> usize {
        let takers = self.alive.iter().filter(|alive| alive.takes_part);
        let room: Option<u32> = takers.map(|alive| alive.max).sum();
        room.map_or(0, |room| self.ends.len().saturating_sub(room as usize))
    }
}

impl Judge {
    /// Checks a host that has stopped: it owns nothing, has abandoned nothing, and its report is true.
    ///
    /// Exempt from the first two: a machine that is not healthy (`Judge::is_well`), and from owning nothing:
    /// partitions that the report lists as abandoned. Exempt from a true report: the first 60 s after the
    /// store was restored.
    pub fn stopped(&self, host: &HostId, report: &StopReport) {
        let now = self.handle.now();
        let mut objection = None;
        let kept = {
            let mut docket = self.docket();
            let abandoned: BTreeSet<PartitionId> = report.abandoned.iter().copied().collect();
            let Some(seat) = docket.seats.get_mut(host) else { return };
            let machine = seat.machine;
            seat.stopped = Some(abandoned.clone());
            let calm = self.is_well(&docket, machine);
            let owned = docket.cases.iter().filter(|(_, case)| case.owner.as_ref() == Some(host));
            let kept =
                owned.map(|(partition, _)| *partition).find(|partition| !abandoned.contains(partition));
            if calm && !abandoned.is_empty() {
                objection = Some(format!(
                    "{host} has stopped and abandoned {abandoned:?}, and nothing was in the way"
                ));
            }
            let restored = docket.in_amnesty(now);
            let untrue = |list: &[PartitionId], settled: bool| {
                let other = Some((host.clone(), !settled));
                let given = |partition: &&PartitionId| {
                    docket.cases.get(*partition).is_some_and(|it| it.given == other)
                };
                list.iter().find(given).filter(|_| !restored).copied()
            };
            let wrong = untrue(&report.drained, true).or_else(|| untrue(&report.unsettled, false));
            if let Some(partition) = wrong {
                objection = Some(format!(
                    "{host} has stopped, and its report is not true of {partition:?}: {report}"
                ));
            }
            kept.filter(|_| calm)
        };
        if let Some(what) = objection {
            self.object(Promise::StopMeansStopped, None, what);
        }
        if kept.is_some() {
            let what = format!("{host} has stopped, says nothing of it, and still owns it");
            self.object(Promise::StopMeansStopped, kept, what);
        }
    }

    /// Checks that a stop that is over now took no longer than `longest`. Exempt: a machine whose time did
    /// not pass normally since it began (`Docket::in_time`).
    pub fn stopped_in_time(&self, machine: Machine, begun: Monotonic, longest: Duration) {
        let took = self.handle.now().since(begun);
        let in_time = self.docket().in_time(machine, begun);
        if took > longest && in_time {
            let what = format!("{} took {took:?} to stop", self.handle.name_of(machine));
            self.object(Promise::StopMeansStopped, None, what);
        }
    }

    /// Checks the final state: every event is finished, the load is even, and every processor was closed.
    pub fn closes_the_case(&self, rest: &Rest) {
        let objections = self.unfinished(rest).into_iter().chain(self.uneven(rest)).chain(self.left_open());
        let objections = objections.collect::<Vec<_>>();
        for (promise, partition, what) in objections {
            self.object(promise, partition, what);
        }
    }

    /// Processors that were never closed although their epoch is over. Exempt: hosts that are dead or have
    /// stopped.
    fn left_open(&self) -> Vec<(Promise, Option<PartitionId>, String)> {
        let docket = self.docket();
        let runs =
            |host: &HostId| docket.seats.get(host).is_some_and(|seat| !seat.dead && seat.stopped.is_none());
        let mut objections = vec![];
        for (partition, case) in &docket.cases {
            if let Some((epoch, host)) = case.left_open().find(|(_, host)| runs(host)) {
                let what = format!("{host} has never closed what it opened in {epoch:?}");
                objections.push((Promise::StopMeansStopped, Some(*partition), what));
            }
        }
        objections
    }

    /// Events that were sent and never finished. Exempt: partitions that no host serves, if there is not room
    /// for all.
    fn unfinished(&self, rest: &Rest) -> Vec<(Promise, Option<PartitionId>, String)> {
        let docket = self.docket();
        let mut objections = vec![];
        for (partition, last) in &rest.ends {
            let sent = last.map_or(0, |last| last.0 + 1);
            let case = docket.cases.get(partition);
            let alive = |owner: &HostId| rest.alive.iter().any(|alive| alive.host == *owner);
            // A late claim may have taken it for a host that has no room to serve it.
            let renewed = case.is_some_and(|case| {
                case.granted.get(&case.epoch).is_some_and(|grant| self.handle.now().since(grant.at) < SETTLE)
            });
            let served = renewed && case.is_some_and(|case| case.owner.as_ref().is_some_and(alive));
            if rest.without_room() > 0 && !served {
                continue;
            }
            let kept = case.map_or(0, |case| case.kept.0);
            let done = |event: u64| {
                let event = SequenceNumber(event);
                case.is_some_and(|case| case.done.contains(&event) || case.is_gone(event))
            };
            if let Some(missing) = (kept..sent).find(|event| !done(*event)) {
                let what = format!("event {missing} of {sent} was never finished");
                objections.push((Promise::AtLeastOnceInOrder, Some(*partition), what));
            }
        }
        objections
    }

    /// The partitions with events that should be finished and are not, each with the number of those that are.
    pub fn behind(&self, rest: &Rest) -> BTreeMap<PartitionId, usize> {
        let partitions = self.unfinished(rest).into_iter().filter_map(|(_, partition, _)| partition);
        let partitions = partitions.collect::<Vec<_>>();
        let docket = self.docket();
        let done = |partition: PartitionId| docket.cases.get(&partition).map_or(0, |case| case.done.len());
        partitions.into_iter().map(|partition| (partition, done(partition))).collect()
    }

    /// The partition with the most events that nobody has finished yet.
    pub fn furthest_behind(&self, ends: &[(PartitionId, Option<SequenceNumber>)]) -> Option<PartitionId> {
        let docket = self.docket();
        let behind = |partition: &PartitionId, last: Option<SequenceNumber>| {
            let done = docket.cases.get(partition).map_or(0, |case| case.done.len() as u64);
            last.map_or(0, |last| last.0 + 1).saturating_sub(done)
        };
        ends.iter().max_by_key(|(partition, last)| behind(partition, *last)).map(|(partition, _)| *partition)
    }

    /// Returns a violation for each way in which the load is less even than the hosts' maxima allow.
    pub fn uneven(&self, rest: &Rest) -> Vec<(Promise, Option<PartitionId>, String)> {
        let docket = self.docket();
        let mut owned: BTreeMap<&HostId, u32> = rest.alive.iter().map(|alive| (&alive.host, 0)).collect();
        let mut objections = vec![];
        let mut unowned = vec![];
        for (partition, _) in &rest.ends {
            let owner = docket.cases.get(partition).and_then(|case| case.owner.as_ref());
            match owner.and_then(|owner| owned.get_mut(owner)) {
                Some(count) => *count += 1,
                None => unowned.push((*partition, owner.cloned())),
            }
        }
        if unowned.len() > rest.without_room() {
            let (partition, owner) = unowned.swap_remove(0);
            let what = format!("owned by {owner:?}, which is not alive");
            objections.push((Promise::BalancedAndStill, Some(partition), what));
        }
        let share = |alive: &&Alive| owned[&alive.host];
        for alive in &rest.alive {
            // A host that should own nothing may keep partitions that nobody else has room for.
            let surplus = u32::try_from(rest.without_room()).unwrap_or(u32::MAX);
            let limit = if alive.takes_part { alive.max } else { Some(surplus) };
            if limit.is_some_and(|limit| owned[&alive.host] > limit) {
                let what = format!("{} owns {}, and may own {limit:?}", alive.host, owned[&alive.host]);
                objections.push((Promise::BalancedAndStill, None, what));
            }
        }
        let takers: Vec<&Alive> = rest.alive.iter().filter(|alive| alive.takes_part).collect();
        let most = takers.iter().map(share).max().unwrap_or_default();
        // A host with room has at most one partition less than the host with the most.
        let behind =
            |alive: &&&Alive| alive.max.is_none_or(|max| share(alive) < max) && share(alive) + 1 < most;
        if takers.iter().any(|alive| behind(&alive)) {
            objections.push((Promise::BalancedAndStill, None, format!("the load is not even: {owned:?}")));
        }
        objections
    }
}
