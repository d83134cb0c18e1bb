//! The model that the checker searches: states, what can happen in them, and what must hold.

use std::collections::BTreeMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ephor_core::ids::{HostId, Incarnation};
use ephor_core::rules::Rules;
use stateright::{Model, Property};

use crate::action::{self, Action};
use crate::bounds::Bounds;
use crate::outlook::Memory;
use crate::state::State;
use crate::turn::{Kind, Turn};
use crate::{fold, promises};

/// What the hosts are called, in order.
pub const NAMES: [&str; 3] = ["ada", "ben", "cyd"];

/// The lease protocol of a small fleet.
#[derive(Debug)]
pub struct Protocol {
    /// How far the search goes.
    pub bounds: Bounds,
    /// The rules in force.
    pub rules: Rules,
    /// Hosts and partitions are alike: states that differ in names only count as one. Otherwise names are as
    /// they are, for a story in which nobody changes its name.
    pub alike: bool,
    /// Nothing is forgotten; for the test that forgetting changes nothing.
    pub forgets: bool,
    /// Whether recovery is tried from every state in which nothing is on its way.
    pub recovers: bool,
    /// The hosts' ids, in order.
    pub ids: Vec<HostId>,
    /// All ways to rename.
    pub renamings: Vec<(Vec<usize>, Vec<usize>)>,
    /// What was worked out of looks.
    pub memory: Memory,
    /// How often each kind of thing happened.
    pub census: [AtomicU64; Kind::ALL.len()],
}

impl Protocol {
    /// Within these bounds, under these rules.
    pub fn new(bounds: Bounds, rules: Rules) -> Self {
        let ids = NAMES
            .iter()
            .filter_map(|name| Some(HostId { name: name.parse().ok()?, incarnation: Incarnation(1) }));
        Self {
            bounds,
            rules,
            alike: true,
            forgets: true,
            recovers: true,
            ids: ids.collect(),
            renamings: fold::renamings(bounds.hosts, bounds.partitions),
            memory: RwLock::new(BTreeMap::new()),
            census: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// With hosts and partitions that keep their names.
    pub fn named(self) -> Self {
        Self { alike: false, ..self }
    }

    /// One step, with what happened in it. Names stay as they are.
    pub fn turn(&self, state: &State, action: Action, listened: bool) -> Turn<'_> {
        let words = listened.then(Vec::new);
        let mut turn = Turn { protocol: self, state: *state, kinds: 0, words };
        turn.take(action);
        turn.hasten();
        if self.forgets {
            fold::forget(&mut turn.state);
        }
        fold::sort(&mut turn.state);
        turn
    }

    /// How often each kind of thing happened.
    pub fn counted(&self) -> Vec<(&'static str, u64)> {
        let count = |kind: Kind| self.census[kind as usize].load(Ordering::Relaxed);
        Kind::ALL.iter().map(|(kind, words)| (*words, count(*kind))).collect()
    }
}

impl Turn<'_> {
    fn take(&mut self, action: Action) {
        match action {
            Action::Tick => {
                fold::tick(&mut self.state);
                self.state.ticks += u8::from(self.protocol.bounds.ticks.is_some());
                self.tell(format_args!("a tick passes"));
            }
            Action::Look(host, index) => {
                let outlooks = self.protocol.outlooks(&self.state, host);
                self.look(host, &outlooks[index]);
            }
            Action::Renew(host) => self.renew(host),
            Action::Deliver(host, partition) => self.deliver(host, partition),
            Action::Save(host, partition) => self.save(host, partition),
            Action::GiveAway(host, partition) => self.give_away(host, partition),
            Action::Fail(host, partition) => self.fail(host, partition),
            Action::Notice(host, partition) => self.notice(host, partition),
            Action::Stop(host) => self.stop(host),
            Action::Seek(partition) => self.seek(partition),
            Action::Arrive(index) => {
                let Some(message) = self.state.messages[index].take() else { return };
                if message.is_answer() { self.hear(message) } else { self.land(message) }
            }
            Action::GiveUp(index) => {
                self.count_unknown();
                self.give_up(index);
            }
            Action::Lose(index) => {
                let Some(message) = self.state.messages[index].take() else { return };
                if message.awaited {
                    self.count_unknown();
                }
                self.lose(message);
            }
        }
    }
}

impl Turn<'_> {
    fn count_unknown(&mut self) {
        self.state.unknowns += u8::from(self.protocol.bounds.unknowns.is_some());
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // What follows from a broken promise follows from it.
        if state.broken.is_none() {
            action::possible(self, state, actions);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let turn = self.turn(state, action, false);
        let mut kinds = turn.kinds;
        while kinds != 0 {
            self.census[kinds.trailing_zeros() as usize].fetch_add(1, Ordering::Relaxed);
            kinds &= kinds - 1;
        }
        if turn.state == *state {
            return None;
        }
        Some(if self.alike { fold::representative(self, &turn.state) } else { turn.state })
    }

    fn within_boundary(&self, state: &State) -> bool {
        let changes =
            state.partitions.iter().filter_map(|partition| partition.lease).map(|lease| lease.epoch);
        changes.sum::<u8>() <= self.bounds.changes
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all(self.recovers)
    }
}
