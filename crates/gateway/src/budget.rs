//! Bounds the memory of all connections together.
//!
//! ```text
//! connection ─ how much it keeps ─► Budget ─ all is used up, and it has more than its part ─► it waits
//!                                      └── its deliveries have been unended for longest ────► it goes
//! ```
//!
//! Most of what a connection keeps gets less by itself: events reach the disk, output is read or the peer is
//! closed. Whoever keeps more than its part of the budget is not read from until there is room, and nothing
//! more is put into its output. Deliveries that have not ended get less only when the peer goes on, and nobody
//! can wait for that: when they take half of the budget, the connection that has had one for longest is
//! closed, if they are more than its part. So whoever keeps little is never in the way and never waits.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_core::time::Monotonic;
use tokio::sync::Notify;

/// A connection that keeps less is not counted, and smaller changes are not told: what every connection costs,
/// whatever it does.
const GRAIN: usize = 16 << 10;

/// What a connection keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// All of it.
    pub(crate) bytes: usize,
    /// What only the peer can end.
    pub(crate) unended: usize,
    /// Since when.
    pub(crate) since: Option<Monotonic>,
}

/// The memory of a gateway's connections.
#[derive(Debug)]
pub(crate) struct Budget {
    most: usize,
    state: Mutex<State>,
    /// Rings when there is room, or more of it.
    relief: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    used: usize,
    /// How much of that is deliveries that have not ended, of those who were not told to go.
    unended: usize,
    holders: BTreeMap<u64, Holder>,
}

#[derive(Debug)]
struct Holder {
    usage: Usage,
    evicted: Arc<Notify>,
    leaving: bool,
}

impl Budget {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default(), relief: Notify::new() })
    }

    /// A connection came.
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        drop(state);
        let (told, evicted) = (Usage::default(), Arc::default());
        Share { budget: self.clone(), number, told, evicted, waits: false, wanted: 0 }
    }

    /// How many bytes are used.
    #[cfg(test)]
    fn used(&self) -> usize {
        self.lock().used
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what a connection keeps, and says whether it has to wait.
    fn change(&self, number: u64, usage: Usage, evicted: &Arc<Notify>) -> bool {
        let mut state = self.lock();
        let before = state.used;
        state.set(number, usage, evicted);
        if state.used >= self.most && state.unended >= self.most / 2 {
            state.evict(self.most);
        }
        let waits = state.must_wait(usage.bytes, 0, self.most);
        let relieved = state.used < before && state.used < self.most;
        drop(state);
        // Whoever wants much waits until much is free, so each of them looks for itself.
        if relieved {
            self.relief.notify_waiters();
        }
        waits
    }
}

impl State {
    fn set(&mut self, number: u64, usage: Usage, evicted: &Arc<Notify>) {
        if let Some(before) = self.holders.get_mut(&number) {
            self.used -= before.usage.bytes;
            if !before.leaving {
                self.unended = self.unended - before.usage.unended + usage.unended;
            }
            before.usage = usage;
        } else if usage.bytes > 0 {
            self.unended += usage.unended;
            self.holders.insert(number, Holder { usage, evicted: evicted.clone(), leaving: false });
        }
        self.used += usage.bytes;
        if usage.bytes == 0 {
            self.holders.remove(&number);
        }
    }

    /// The part of each.
    fn part(&self, most: usize) -> usize {
        (most / self.holders.len().max(1)).max(GRAIN)
    }

    /// Whether one that keeps so much has to wait before it keeps more.
    fn must_wait(&self, bytes: usize, more: usize, most: usize) -> bool {
        self.used + more >= most && bytes + more > self.part(most)
    }

    /// One goes: of those whose deliveries that have not ended are more than their part, the one that has had
    /// one for longest. Those who mean it begin a delivery and end it.
    fn evict(&mut self, most: usize) {
        let part = self.part(most);
        let hoards = |holder: &&mut Holder| !holder.leaving && holder.usage.unended >= part;
        if let Some(oldest) = self.holders.values_mut().filter(hoards).min_by_key(|one| one.usage.since) {
            oldest.leaving = true;
            self.unended -= oldest.usage.unended;
            oldest.evicted.notify_one();
        }
    }
}

/// What one connection keeps, as the budget knows it. Dropping it gives everything back.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    number: u64,
    told: Usage,
    evicted: Arc<Notify>,
    /// It keeps too much.
    waits: bool,
    /// It has to wait before it keeps so much more.
    wanted: usize,
}

impl Share {
    /// Tells what the connection keeps now. Says whether it has to wait until others have given something back.
    pub(crate) fn tell(&mut self, usage: Usage) -> bool {
        let usage = if usage.bytes < GRAIN { Usage::default() } else { usage };
        let same = usage.bytes.abs_diff(self.told.bytes) < GRAIN
            && usage.unended.abs_diff(self.told.unended) < GRAIN
            && usage.since == self.told.since;
        let gone = usage.bytes == 0 && self.told.bytes > 0;
        if !same || gone || self.waits {
            self.waits = self.budget.change(self.number, usage, &self.evicted);
            self.told = usage;
        }
        self.waits()
    }

    /// Whether it may keep so much more. If not, it has to wait until it is relieved, whatever it tells meanwhile.
    pub(crate) fn admit(&mut self, more: usize) -> bool {
        if self.waits || self.budget.lock().must_wait(self.told.bytes, more, self.budget.most) {
            self.wanted = more.max(1);
        }
        !self.waits()
    }

    /// Whether it has to wait, as of the last time that it told or asked.
    pub(crate) fn waits(&self) -> bool {
        self.waits || self.wanted > 0
    }

    /// It has waited for what it wanted to keep, and may ask again.
    pub(crate) fn take_relief(&mut self) {
        self.wanted = 0;
    }

    /// Waits until it need not wait any more.
    pub(crate) async fn relieved(&self) {
        loop {
            // Listens before it looks.
            let mut relief = pin!(self.budget.relief.notified());
            relief.as_mut().enable();
            if !self.budget.lock().must_wait(self.told.bytes, self.wanted, self.budget.most) {
                return;
            }
            relief.await;
        }
    }

    /// Waits until this one has to go, for the sake of the others.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.change(self.number, Usage::default(), &self.evicted);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    const KIB: usize = 1 << 10;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::default() + Duration::from_secs(seconds)
    }

    fn keeps(bytes: usize) -> Usage {
        Usage { bytes, ..Usage::default() }
    }

    fn hoards(bytes: usize, since: u64) -> Usage {
        Usage { bytes, unended: bytes, since: Some(at(since)) }
    }

    fn is_evicted(share: &Share) -> bool {
        share.evicted().now_or_never().is_some()
    }

    fn is_relieved(share: &Share) -> bool {
        share.relieved().now_or_never().is_some()
    }

    #[test]
    fn whoever_keeps_more_than_its_part_waits_and_those_who_keep_little_do_not() {
        let budget = Budget::new(1_000 * KIB);
        let (mut large, mut small) = (budget.share(), budget.share());
        assert!(!large.tell(keeps(900 * KIB)));
        assert!(!small.tell(keeps(100 * KIB)));
        assert!(large.tell(keeps(900 * KIB + GRAIN)));
        assert!(!small.tell(keeps(200 * KIB)) && !is_relieved(&large));
        // Others give something back.
        small.tell(keeps(50 * KIB));
        assert!(is_relieved(&large) && !large.tell(keeps(900 * KIB)));
        drop((large, small));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn whose_delivery_has_been_unended_for_longest_goes_and_one_at_a_time() {
        let budget = Budget::new(1_000 * KIB);
        let mut hoarders: Vec<_> = (0..4).map(|_| budget.share()).collect();
        for (since, share) in hoarders.iter_mut().enumerate().skip(1) {
            share.tell(hoards(300 * KIB, since as u64));
        }
        assert!(!hoarders.iter().any(is_evicted));
        // It is the newest, and the reason that one has to go.
        hoarders[0].tell(hoards(300 * KIB, 9));
        assert!(is_evicted(&hoarders[1]));
        assert!(!hoarders.iter().any(is_evicted));
        drop(hoarders.remove(1));
        assert_eq!(budget.used(), 900 * KIB);
    }

    #[test]
    fn whoever_keeps_less_than_its_part_never_goes_however_old_its_delivery_is() {
        let budget = Budget::new(1_000 * KIB);
        let (mut old, mut hoarder) = (budget.share(), budget.share());
        old.tell(hoards(100 * KIB, 1));
        assert!(hoarder.tell(hoards(1_000 * KIB, 5)));
        assert!(is_evicted(&hoarder) && !is_evicted(&old));
        assert!(!old.tell(hoards(120 * KIB, 1)));
    }

    #[test]
    fn what_gets_less_by_itself_is_waited_for_and_costs_nobody_its_connection() {
        let budget = Budget::new(1_000 * KIB);
        let mut shares: Vec<_> = (0..10).map(|_| budget.share()).collect();
        for share in &mut shares {
            share.tell(keeps(150 * KIB));
        }
        assert!(!shares.iter().any(is_evicted));
        assert_eq!(shares.iter().filter(|share| share.waits()).count(), 4);
    }

    #[test]
    fn what_would_be_too_much_is_waited_for_before_it_is_kept() {
        let budget = Budget::new(1_000 * KIB);
        let (mut one, mut other) = (budget.share(), budget.share());
        other.tell(keeps(900 * KIB));
        assert!(one.admit(50 * KIB), "there is room");
        one.tell(keeps(50 * KIB));
        assert!(one.admit(400 * KIB), "it is within its part");
        assert!(!one.admit(500 * KIB) && one.waits() && !is_relieved(&one));
        other.tell(keeps(500 * KIB));
        assert!(!is_relieved(&one), "half of it is not enough");
        other.tell(keeps(100 * KIB));
        assert!(is_relieved(&one));
        one.take_relief();
        assert!(one.admit(500 * KIB) && !one.waits());
    }

    #[test]
    fn whoever_is_refused_is_relieved_later_even_if_there_was_room_when_it_asked() {
        let budget = Budget::new(1_000 * KIB);
        let (mut one, mut other) = (budget.share(), budget.share());
        other.tell(keeps(400 * KIB));
        assert!(one.tell(keeps(600 * KIB)));
        other.tell(keeps(0));
        // It has not heard of the room yet.
        assert!(!one.admit(64 * KIB));
        assert!(
            one.tell(keeps(600 * KIB)) && is_relieved(&one),
            "it stands in line for somebody who calls it"
        );
        one.take_relief();
        assert!(!one.tell(keeps(600 * KIB)) && one.admit(64 * KIB));
    }

    #[test]
    fn deliveries_that_take_less_than_half_cost_nobody_its_connection() {
        let budget = Budget::new(1_000 * KIB);
        let (mut honest, mut others) = (budget.share(), [budget.share(), budget.share()]);
        for other in &mut others {
            other.tell(keeps(450 * KIB));
        }
        assert!(honest.tell(hoards(400 * KIB, 1)), "it waits until the others have less");
        assert!(!is_evicted(&honest));
        others[0].tell(keeps(0));
        assert!(is_relieved(&honest));
    }

    #[test]
    fn a_thousand_who_keep_next_to_nothing_are_not_counted() {
        let budget = Budget::new(1_000 * KIB);
        let mut shares: Vec<_> = (0..1_000).map(|_| budget.share()).collect();
        assert!(!shares.iter_mut().any(|share| share.tell(keeps(GRAIN - 1))));
        assert_eq!(budget.used(), 0);
    }
}
