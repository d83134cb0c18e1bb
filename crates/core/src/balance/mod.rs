//! Decides which host should own which partition: a pure function of the view that all hosts share.
//!
//! Every host computes the same plan from the same view and carries out its own part: it claims the
//! free partitions that fall to it, and asks owners for the partitions that they hold above their
//! share. There is no elected leader, and with equal views no two hosts want the same partition.
//!
//! ```text
//!   view ──► Fleet ──► shares ──► free partitions to hosts below their share
//!                                 then moves from hosts above to hosts below
//! ```
//!
//! The number of moves is the smallest possible: if the division leaves a remainder, the hosts that
//! already hold more keep the extra partitions.

#[cfg(test)]
mod reference;
mod shares;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::expiry::Liveness;
use crate::host_record::HostState;
use crate::ids::{HostId, HostName, Incarnation, PartitionId};
use crate::rules::Rules;
use crate::store::View;

pub use shares::shares;

/// A host that is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The host.
    pub id: HostId,
    /// True if it counts when the load is shared.
    pub takes_part: bool,
    /// The most partitions that it may own.
    pub max: Option<u32>,
}

/// A partition and its owner. Members are named by their index in [`Fleet::members`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionSlot {
    /// The partition.
    pub partition: PartitionId,
    /// Its owner, if that is alive.
    pub holder: Option<usize>,
    /// The preferred owner of a free partition, if it has room: the host that lost the lease to a
    /// seek or a takeover and can take it back without waiting, or else the successor that the last
    /// owner named.
    pub preferred_owner: Option<usize>,
    /// True if it has been free for so long that any host should claim it.
    pub overdue: bool,
}

/// The living hosts and the partitions: everything that the plan depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Living hosts, in order of their ids.
    pub members: Vec<Member>,
    /// All partitions, in order.
    pub slots: Vec<PartitionSlot>,
    /// Pending requests, sorted: the partition, and the member that asks for it.
    pub wants: Vec<(PartitionId, usize)>,
}

impl Fleet {
    /// Reads a view. `partitions` are those of the hub; leases of other partitions are ignored. A
    /// partition is overdue when it has been free for `patience` or longer.
    pub fn read(
        view: &View,
        liveness: &Liveness,
        partitions: &[PartitionId],
        patience: Duration,
        rules: &Rules,
    ) -> Self {
        let counts = |state: HostState| {
            state.takes_part() || (state == HostState::Unhealthy && !rules.unhealthy_hosts_do_not_count())
        };
        let members: Vec<Member> = liveness
            .alive
            .iter()
            .map(|id| {
                let record = view.host(id).map(|entry| &entry.record);
                Member {
                    id: id.clone(),
                    takes_part: record.is_none_or(|record| counts(record.state)),
                    max: record.and_then(|record| record.max_partitions),
                }
            })
            .collect();
        let directory = Directory::new(&members);
        let index = |id: &HostId| directory.find(id);
        // Partitions and leases are in the same order, so the next lease is almost always the right
        // one.
        let mut next = 0;
        let mut lease_of = |partition: PartitionId| {
            let expected = view.leases.get(next).filter(|lease| lease.partition == partition);
            next += usize::from(expected.is_some());
            expected.or_else(|| view.lease(partition))
        };
        let slots = partitions
            .iter()
            .map(|&partition| {
                let Some(lease) = lease_of(partition) else {
                    return PartitionSlot { partition, holder: None, preferred_owner: None, overdue: false };
                };
                let expired = liveness.expired.binary_search(&partition).is_ok();
                let holder = lease.owner.as_ref().filter(|_| !expired).and_then(index);
                let taken_from = lease.previous_owner.as_ref().filter(|_| !lease.takeover_delay.is_zero());
                let preferred_owner =
                    taken_from.or(lease.successor.as_ref()).filter(|_| lease.owner.is_none());
                let free_for = lease.age.saturating_sub(lease.duration.unwrap_or_default());
                PartitionSlot {
                    partition,
                    holder,
                    preferred_owner: preferred_owner.and_then(index),
                    overdue: holder.is_none() && free_for >= patience,
                }
            })
            .collect();
        let mut wants: Vec<(PartitionId, usize)> = view
            .hosts
            .iter()
            .filter_map(|entry| Some((index(&entry.record.id)?, &entry.record.wants)))
            .flat_map(|(asker, wants)| wants.iter().map(move |want| (want.partition, asker)))
            .collect();
        wants.sort_unstable();
        Self { members, slots, wants }
    }

    /// The index of a member.
    pub fn member(&self, id: &HostId) -> Option<usize> {
        self.members.binary_search_by(|member| member.id.cmp(id)).ok()
    }

    /// The index of a partition's slot.
    fn slot(&self, partition: PartitionId) -> Option<usize> {
        self.slots.binary_search_by_key(&partition, |slot| slot.partition).ok()
    }

    fn is_overdue(&self, partition: PartitionId) -> bool {
        self.slot(partition).is_some_and(|slot| self.slots[slot].overdue)
    }

    /// The number of partitions that each member holds.
    pub fn held(&self) -> Vec<u32> {
        let mut held = vec![0; self.members.len()];
        for holder in self.slots.iter().filter_map(|slot| slot.holder) {
            held[holder] += 1;
        }
        held
    }
}

/// Finds members by their ids. Incarnations are random and rarely equal, so names are rarely
/// compared: with thousands of partitions that would be most of the work.
struct Directory<'a>(Vec<(Incarnation, &'a HostName, usize)>);

impl<'a> Directory<'a> {
    fn new(members: &'a [Member]) -> Self {
        let entry = |(index, member): (usize, &'a Member)| (member.id.incarnation, &member.id.name, index);
        let mut entries: Vec<_> = members.iter().enumerate().map(entry).collect();
        entries.sort_unstable();
        Self(entries)
    }

    fn find(&self, id: &HostId) -> Option<usize> {
        let key = (id.incarnation, &id.name);
        let found = self.0.binary_search_by(|(incarnation, name, _)| (*incarnation, *name).cmp(&key));
        found.ok().map(|place| self.0[place].2)
    }
}

/// A partition that should change hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// The partition.
    pub partition: PartitionId,
    /// Its owner.
    pub from: usize,
    /// The member that should get it.
    pub to: usize,
}

/// The plan for the whole fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The number of partitions that each member should have in the end.
    pub shares: Vec<u32>,
    /// Free partitions, each with the member that should claim it.
    pub claims: Vec<(PartitionId, usize)>,
    /// Owned partitions that should change hands, in order.
    pub moves: Vec<Move>,
    /// The number of partitions that get no owner, because every member is at its maximum or
    /// takes no part.
    pub without_owner: usize,
}

/// Makes the plan.
pub fn plan(fleet: &Fleet) -> Plan {
    let held = fleet.held();
    // The preferred owner of a free partition counts as its holder, so that it gets it.
    let mut rank = held.clone();
    for slot in fleet.slots.iter().filter(|slot| slot.holder.is_none()) {
        if let Some(preferred_owner) = slot.preferred_owner {
            rank[preferred_owner] += 1;
        }
    }
    let shares = shares(&fleet.members, &rank, fleet.slots.len());
    let mut room: Vec<u32> =
        shares.iter().zip(&held).map(|(share, held)| share.saturating_sub(*held)).collect();
    let mut surplus: Vec<u32> =
        shares.iter().zip(&held).map(|(share, held)| held.saturating_sub(*share)).collect();

    let (claims, without_owner) = claims(fleet, &mut room);
    let moves = moves(fleet, &mut room, &mut surplus);
    Plan { shares, claims, moves, without_owner }
}

/// Members by their counts, the largest first; ties are broken by a hash, so that no host is always
/// first.
struct Queue(BinaryHeap<(u32, Reverse<u64>, Reverse<usize>)>);

impl Queue {
    fn new(fleet: &Fleet, counts: &[u32]) -> Self {
        let entry =
            |index: usize| (counts[index], Reverse(tie_breaker(&fleet.members[index].id)), Reverse(index));
        Self((0..counts.len()).filter(|&index| counts[index] > 0).map(entry).collect())
    }

    /// Takes one from the member with the largest count.
    fn take(&mut self) -> Option<usize> {
        let (count, tie_breaker, index) = self.0.pop()?;
        if count > 1 {
            self.0.push((count - 1, tie_breaker, index));
        }
        Some(index.0)
    }
}

fn claims(fleet: &Fleet, room: &mut [u32]) -> (Vec<(PartitionId, usize)>, usize) {
    let mut claims = vec![];
    let mut open = vec![];
    for slot in fleet.slots.iter().filter(|slot| slot.holder.is_none()) {
        match slot.preferred_owner.filter(|&preferred_owner| room[preferred_owner] > 0) {
            Some(preferred_owner) => {
                room[preferred_owner] -= 1;
                claims.push((slot.partition, preferred_owner));
            }
            None => open.push(slot.partition),
        }
    }
    let mut queue = Queue::new(fleet, room);
    let mut without_owner = 0;
    for partition in open {
        match queue.take() {
            Some(member) => {
                room[member] -= 1;
                claims.push((partition, member));
            }
            None => without_owner += 1,
        }
    }
    claims.sort_unstable();
    (claims, without_owner)
}

fn moves(fleet: &Fleet, room: &mut [u32], surplus: &mut [u32]) -> Vec<Move> {
    let nothing_in = |counts: &[u32]| counts.iter().all(|&count| count == 0);
    if nothing_in(room) || nothing_in(surplus) {
        return vec![];
    }
    let mut moves = vec![];
    let mut promised = vec![false; fleet.slots.len()];
    // Pending requests come first, so that the plan is stable while moves are under way.
    for &(partition, to) in &fleet.wants {
        let Some(slot) = fleet.slot(partition).filter(|&slot| !promised[slot]) else { continue };
        let Some(from) = fleet.slots[slot].holder else { continue };
        if from != to && surplus[from] > 0 && room[to] > 0 {
            surplus[from] -= 1;
            room[to] -= 1;
            promised[slot] = true;
            moves.push(Move { partition, from, to });
        }
    }
    let mut givers = Queue::new(fleet, surplus);
    let mut takers = Queue::new(fleet, room);
    let mut offers: Vec<Vec<(u64, PartitionId)>> = vec![vec![]; fleet.members.len()];
    for (slot, promised) in fleet.slots.iter().zip(promised) {
        if let Some(holder) = slot.holder.filter(|&holder| !promised && surplus[holder] > 0) {
            offers[holder].push((mix(u64::from(slot.partition.0)), slot.partition));
        }
    }
    for offer in &mut offers {
        offer.sort_unstable();
    }
    while let Some(to) = takers.take() {
        let Some(from) = givers.take() else { break };
        let Some((_, partition)) = offers[from].pop() else { break };
        moves.push(Move { partition, from, to });
    }
    moves.sort_unstable();
    moves
}

/// A hash of the host's id, independent of the alphabetical order. It is part of the protocol: all
/// hosts must compute the same value, whatever their version.
fn tie_breaker(id: &HostId) -> u64 {
    id.name.as_str().bytes().fold(mix(id.incarnation.0), |hash, byte| mix(hash ^ u64::from(byte)))
}

/// Scatters a number over all of u64 (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Plan {
    /// The partitions that `me` should claim now: those that the plan gives to it, and overdue ones
    /// of others, as far as its maximum allows.
    pub fn claims_of(&self, fleet: &Fleet, me: usize) -> Vec<PartitionId> {
        let member = &fleet.members[me];
        if !member.takes_part {
            return vec![];
        }
        let held = || fleet.slots.iter().filter(|slot| slot.holder == Some(me)).count();
        let mut spare = member.max.map_or(usize::MAX, |max| (max as usize).saturating_sub(held()));
        let mut mine = vec![];
        for &(partition, to) in &self.claims {
            if spare > 0 && (to == me || fleet.is_overdue(partition)) {
                spare -= 1;
                mine.push(partition);
            }
        }
        mine
    }

    /// The moves to `me`: the partitions to ask for.
    pub fn asks_of(&self, me: usize) -> impl Iterator<Item = &Move> {
        self.moves.iter().filter(move |step| step.to == me)
    }

    /// True if `me` should hand this partition over to `asker`.
    pub fn grants(&self, partition: PartitionId, me: usize, asker: usize) -> bool {
        self.moves.binary_search(&Move { partition, from: me, to: asker }).is_ok()
    }

    /// True if nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.claims.is_empty() && self.moves.is_empty()
    }
}
