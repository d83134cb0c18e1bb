//! After the trouble: everything owned, evenly, finished, and at rest. And after each stop.

use std::collections::{BTreeMap, BTreeSet};

use ephor::{HostId, PartitionId, SequenceNumber, StopReport};

use super::{Judge, Promise};

/// A host that runs at the end.
#[derive(Clone, Debug)]
pub struct Alive {
    /// Who.
    pub host: HostId,
    /// It never owns more than this.
    pub max: Option<u32>,
    /// Whether it should own anything: it is neither drained nor unfit.
    pub takes_part: bool,
}

/// How things stand at the end.
#[derive(Clone, Debug)]
pub struct Rest {
    /// The newest event of each partition there is.
    pub ends: Vec<(PartitionId, Option<SequenceNumber>)>,
    /// The hosts that run.
    pub alive: Vec<Alive>,
}

impl Rest {
    /// How many partitions nobody may own, because everyone is at its maximum.
    fn without_room(&self) -> usize {
        let takers = self.alive.iter().filter(|alive| alive.takes_part);
        let room: Option<u32> = takers.map(|alive| alive.max).sum();
        room.map_or(0, |room| self.ends.len().saturating_sub(room as usize))
    }
}

impl Judge {
    /// A host has stopped, with this report.
    pub fn stopped(&self, host: &HostId, report: &StopReport) {
        let now = self.handle.now();
        let mut objection = None;
        let kept = {
            let mut docket = self.docket();
            let abandoned: BTreeSet<PartitionId> = report.abandoned.iter().copied().collect();
            let Some(seat) = docket.seats.get_mut(host) else { return };
            let machine = seat.machine;
            seat.stopped = Some(abandoned.clone());
            let calm = docket.undisturbed(machine, now.before(std::time::Duration::from_secs(60)));
            let owned = docket.cases.iter().filter(|(_, case)| case.owner.as_ref() == Some(host));
            let kept =
                owned.map(|(partition, _)| *partition).find(|partition| !abandoned.contains(partition));
            if calm && !abandoned.is_empty() {
                objection = Some(format!(
                    "{host} has stopped and abandoned {abandoned:?}, and nothing was in the way"
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

    /// Sums up: everything sent is done, nothing is owned by nobody, and the load is even.
    pub fn closes_the_case(&self, rest: &Rest) {
        let objections = self.unfinished(rest).into_iter().chain(self.uneven(rest)).collect::<Vec<_>>();
        for (promise, partition, what) in objections {
            self.object(promise, partition, what);
        }
    }

    /// What was sent and never finished.
    fn unfinished(&self, rest: &Rest) -> Vec<(Promise, Option<PartitionId>, String)> {
        let docket = self.docket();
        let mut objections = vec![];
        for (partition, last) in &rest.ends {
            let sent = last.map_or(0, |last| last.0 + 1);
            let case = docket.cases.get(partition);
            let alive = |owner: &HostId| rest.alive.iter().any(|alive| alive.host == *owner);
            let served = case.is_some_and(|case| case.owner.as_ref().is_some_and(alive));
            if rest.without_room() > 0 && !served {
                continue;
            }
            let kept = case.map_or(0, |case| case.kept.0);
            let done = |event: u64| case.is_some_and(|case| case.done.contains(&SequenceNumber(event)));
            if let Some(missing) = (kept..sent).find(|event| !done(*event)) {
                let what = format!("event {missing} of {sent} was never finished");
                objections.push((Promise::AtLeastOnceInOrder, Some(*partition), what));
            }
        }
        objections
    }

    /// Whether the load is as even as the hosts' own limits allow.
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
            // Who should own nothing may keep what nobody else has room for.
            let surplus = u32::try_from(rest.without_room()).unwrap_or(u32::MAX);
            let limit = if alive.takes_part { alive.max } else { Some(surplus) };
            if limit.is_some_and(|limit| owned[&alive.host] > limit) {
                let what = format!("{} owns {}, and may own {limit:?}", alive.host, owned[&alive.host]);
                objections.push((Promise::BalancedAndStill, None, what));
            }
        }
        let takers: Vec<&Alive> = rest.alive.iter().filter(|alive| alive.takes_part).collect();
        let most = takers.iter().map(share).max().unwrap_or_default();
        // Whoever has room has at most one less than whoever has most.
        let behind =
            |alive: &&&Alive| alive.max.is_none_or(|max| share(alive) < max) && share(alive) + 1 < most;
        if takers.iter().any(|alive| behind(&alive)) {
            objections.push((Promise::BalancedAndStill, None, format!("the load is not even: {owned:?}")));
        }
        objections
    }
}
