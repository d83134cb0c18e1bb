//! Checks recovery: from every state without messages in flight, the fleet recovers once all hosts are
//! healthy.
//!
//! Reachability alone would be a weak property, since some lucky path nearly always exists. So the check runs one fixed
//! schedule: all hosts scan, renew, deliver and save in turn, nothing is lost, and ticks pass. After a few leases every
//! partition is owned, balanced, finished and saved, and stays so.

use crate::action::Action;
use crate::bounds::LEASE;
use crate::protocol::Protocol;
use crate::state::State;

/// The most rounds of all hosts, with a tick in between.
pub const ROUNDS: u8 = 6 * LEASE;

/// Whether the fleet recovers from a state without messages in flight.
pub fn recovers_from(protocol: &Protocol, state: &State) -> bool {
    if state.in_flight().next().is_some() || state.violation.is_some() {
        return true;
    }
    Run { protocol, state: *state, trace: None }.recovers_from()
}

/// Describes the steps of a recovery as text.
pub fn attempt(protocol: &Protocol, state: &State) -> Vec<String> {
    let mut run = Run { protocol, state: *state, trace: Some(vec![]) };
    run.recovers_from();
    run.trace.unwrap_or_default()
}

/// Whether every partition is owned by a host that stays, balanced, finished and saved.
pub fn is_recovered(protocol: &Protocol, state: &State) -> bool {
    let hosts = 0..protocol.bounds.hosts;
    let stay = hosts.filter(|host| !state.hosts[*host].leaving).count();
    let most = protocol.bounds.partitions.div_ceil(stay.max(1));
    let mut owned = [0; crate::state::MAX_HOSTS];
    state.partitions.iter().take(protocol.bounds.partitions).enumerate().all(|(partition, kept)| {
        let Some(lease) = kept.lease else { return false };
        let Some(owner) = lease.owner.map(usize::from) else { return false };
        owned[owner] += 1;
        let serves = state.hosts[owner].slots[partition]
            .is_some_and(|slot| slot.epoch == lease.epoch && slot.left > 0 && slot.disposition.is_none());
        serves
            && !state.hosts[owner].leaving
            && owned[owner] <= most
            && kept.position == protocol.bounds.events_of(partition)
    })
}

/// A recovery under way.
struct Run<'a> {
    protocol: &'a Protocol,
    state: State,
    trace: Option<Vec<String>>,
}

impl Run<'_> {
    fn recovers_from(&mut self) -> bool {
        let mut right_as = None;
        for _ in 0..ROUNDS {
            self.round();
            let owners = self.state.partitions.map(|kept| kept.lease.map(|lease| (lease.owner, lease.epoch)));
            let right = is_recovered(self.protocol, &self.state);
            if right && right_as == Some(owners) {
                return true;
            }
            right_as = right.then_some(owners);
        }
        false
    }

    /// One round: every host acts, and a tick passes.
    fn round(&mut self) {
        for host in 0..self.protocol.bounds.hosts {
            self.take(Action::Look(host, 0));
            self.take(Action::Renew(host));
            for partition in 0..self.protocol.bounds.partitions {
                self.pump(host, partition);
            }
        }
        self.take(Action::Tick);
    }

    fn pump(&mut self, host: usize, partition: usize) {
        while let Some(slot) = self.state.hosts[host].slots[partition] {
            let more = slot.finished < self.protocol.bounds.events_of(partition);
            let action = if slot.left == 0 {
                Action::Notice(host, partition)
            } else if slot.unsaved {
                Action::Save(host, partition)
            } else if slot.disposition.is_some() {
                Action::Handoff(host, partition)
            } else if more && self.protocol.delivers(&self.state, host, partition) {
                Action::Deliver(host, partition)
            } else {
                return;
            };
            self.take(action);
        }
    }

    /// Takes a step, and delivers all messages that follow from it.
    fn take(&mut self, action: Action) {
        let mut next = Some(action);
        while let Some(action) = next {
            let step = self.protocol.step(&self.state, action, self.trace.is_some());
            self.state = step.state;
            if let (Some(trace), Some(more)) = (&mut self.trace, step.trace) {
                trace.extend(more);
            }
            next = self.state.messages[0].map(|_| Action::Arrive(0));
        }
    }
}
