//! Implements the interface of the model checker: initial state, actions, next state, properties.

use std::collections::BTreeMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ephor_core::ids::{HostId, Incarnation};
use ephor_core::rules::Rules;
use stateright::{Model, Property};

use crate::action::{self, Action};
use crate::bounds::Bounds;
use crate::host_view::PlanCache;
use crate::state::State;
use crate::step::{Kind, Step};
use crate::{properties, state_reduction};

/// The names of the hosts, in order.
pub const NAMES: [&str; 3] = ["ada", "ben", "cyd"];

/// The lease protocol of a small fleet.
#[derive(Debug)]
pub struct Protocol {
    /// The limits of the search.
    pub bounds: Bounds,
    /// The rules in force.
    pub rules: Rules,
    /// Symmetry reduction: states that differ only in names count as one. Without it, names stay, for a readable
    /// counterexample.
    pub symmetric: bool,
    /// State reduction. The test that it changes nothing switches it off.
    pub reduces: bool,
    /// Whether recovery is tried from every state without messages in flight.
    pub recovers: bool,
    /// The hosts' ids, in order.
    pub ids: Vec<HostId>,
    /// All permutations of names.
    pub renamings: Vec<(Vec<usize>, Vec<usize>)>,
    /// The cached views.
    pub plan_cache: PlanCache,
    /// The number of events of each kind.
    pub counts: [AtomicU64; Kind::ALL.len()],
}

impl Protocol {
    /// Creates the model with these limits and rules.
    pub fn new(bounds: Bounds, rules: Rules) -> Self {
        let ids = NAMES
            .iter()
            .filter_map(|name| Some(HostId { name: name.parse().ok()?, incarnation: Incarnation(1) }));
        Self {
            bounds,
            rules,
            symmetric: true,
            reduces: true,
            recovers: true,
            ids: ids.collect(),
            renamings: state_reduction::renamings(bounds.hosts, bounds.partitions),
            plan_cache: RwLock::new(BTreeMap::new()),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Switches the symmetry reduction off.
    pub fn named(self) -> Self {
        Self { symmetric: false, ..self }
    }

    /// Takes one step. Names stay as they are.
    pub fn step(&self, state: &State, action: Action, traced: bool) -> Step<'_> {
        let trace = traced.then(Vec::new);
        let mut step = Step { protocol: self, state: *state, kinds: 0, trace };
        step.take(action);
        step.take_eager_steps();
        if self.reduces {
            state_reduction::reduce(&mut step.state);
        }
        state_reduction::sort(&mut step.state);
        step
    }

    /// Returns the number of events of each kind.
    pub fn counted(&self) -> Vec<(&'static str, u64)> {
        let count = |kind: Kind| self.counts[kind as usize].load(Ordering::Relaxed);
        Kind::ALL.iter().map(|(kind, trace)| (*trace, count(*kind))).collect()
    }
}

impl Step<'_> {
    fn take(&mut self, action: Action) {
        match action {
            Action::Tick => {
                state_reduction::tick(&mut self.state);
                self.state.ticks += u8::from(self.protocol.bounds.ticks.is_some());
                self.log(format_args!("a tick passes"));
            }
            Action::Look(host, index) => {
                let host_views = self.protocol.host_views(&self.state, host);
                self.look(host, &host_views[index]);
            }
            Action::Renew(host) => self.renew(host),
            Action::Deliver(host, partition) => self.deliver(host, partition),
            Action::Save(host, partition) => self.save(host, partition),
            Action::Handoff(host, partition) => self.give_away(host, partition),
            Action::Fail(host, partition) => self.fail(host, partition),
            Action::Notice(host, partition) => self.notice(host, partition),
            Action::Stop(host) => self.stop(host),
            Action::Seek(partition) => self.seek(partition),
            Action::Arrive(index) => {
                let Some(message) = self.state.messages[index].take() else { return };
                if message.is_answer() { self.receive_answer(message) } else { self.apply_request(message) }
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

impl Step<'_> {
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
        // A state with a violation is not searched further.
        if state.violation.is_none() {
            action::possible(self, state, actions);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let step = self.step(state, action, false);
        let mut kinds = step.kinds;
        while kinds != 0 {
            self.counts[kinds.trailing_zeros() as usize].fetch_add(1, Ordering::Relaxed);
            kinds &= kinds - 1;
        }
        if step.state == *state {
            return None;
        }
        Some(if self.symmetric { state_reduction::representative(self, &step.state) } else { step.state })
    }

    fn within_boundary(&self, state: &State) -> bool {
        let changes =
            state.partitions.iter().filter_map(|partition| partition.lease).map(|lease| lease.epoch);
        changes.sum::<u8>() <= self.bounds.changes
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self.recovers)
    }
}
