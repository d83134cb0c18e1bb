//! That it comes right again: from every state in which nothing is on its way, once everybody is well.
//!
//! Reachability alone would be weak: something can always be imagined that helps. So it is not asked whether there
//! is a way, but taken: everybody looks, renews, delivers and saves in turn, nothing is lost, and ticks pass. After
//! a few leases everything is owned, evenly, finished and saved, and stays so.

use crate::action::Action;
use crate::bounds::LEASE;
use crate::protocol::Protocol;
use crate::state::State;

/// So many rounds of everybody, with a tick in between, are enough.
pub const ROUNDS: u8 = 6 * LEASE;

/// Whether a state in which nothing is on its way comes right.
pub fn comes_right(protocol: &Protocol, state: &State) -> bool {
    if state.on_the_way().next().is_some() || state.broken.is_some() {
        return true;
    }
    Run { protocol, state: *state, words: None }.comes_right()
}

/// What happens in the attempt, in words.
pub fn attempt(protocol: &Protocol, state: &State) -> Vec<String> {
    let mut run = Run { protocol, state: *state, words: Some(vec![]) };
    run.comes_right();
    run.words.unwrap_or_default()
}

/// Whether everything is owned, evenly, by hosts that stay, finished and saved.
pub fn is_right(protocol: &Protocol, state: &State) -> bool {
    let hosts = 0..protocol.bounds.hosts;
    let stay = hosts.filter(|host| !state.hosts[*host].leaving).count();
    let most = protocol.bounds.partitions.div_ceil(stay.max(1));
    let mut owned = [0; crate::state::MOST_HOSTS];
    state.partitions.iter().take(protocol.bounds.partitions).enumerate().all(|(partition, kept)| {
        let Some(lease) = kept.lease else { return false };
        let Some(owner) = lease.owner.map(usize::from) else { return false };
        owned[owner] += 1;
        let serves = state.hosts[owner].slots[partition]
            .is_some_and(|slot| slot.epoch == lease.epoch && slot.left > 0 && slot.way.is_none());
        serves
            && !state.hosts[owner].leaving
            && owned[owner] <= most
            && kept.position == protocol.bounds.events_of(partition)
    })
}

/// An attempt under way.
struct Run<'a> {
    protocol: &'a Protocol,
    state: State,
    words: Option<Vec<String>>,
}

impl Run<'_> {
    fn comes_right(&mut self) -> bool {
        let mut right_as = None;
        for _ in 0..ROUNDS {
            self.round();
            let owners = self.state.partitions.map(|kept| kept.lease.map(|lease| (lease.owner, lease.epoch)));
            let right = is_right(self.protocol, &self.state);
            if right && right_as == Some(owners) {
                return true;
            }
            right_as = right.then_some(owners);
        }
        false
    }

    /// Everybody does what is to do, and a tick passes.
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
            } else if slot.way.is_some() {
                Action::GiveAway(host, partition)
            } else if more && self.protocol.delivers(&self.state, host, partition) {
                Action::Deliver(host, partition)
            } else {
                return;
            };
            self.take(action);
        }
    }

    /// Takes a step, and lets everything arrive that follows from it.
    fn take(&mut self, action: Action) {
        let mut next = Some(action);
        while let Some(action) = next {
            let turn = self.protocol.turn(&self.state, action, self.words.is_some());
            self.state = turn.state;
            if let (Some(words), Some(more)) = (&mut self.words, turn.words) {
                words.extend(more);
            }
            next = self.state.messages[0].map(|_| Action::Arrive(0));
        }
    }
}
