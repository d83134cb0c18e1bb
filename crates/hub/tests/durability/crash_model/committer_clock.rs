//! The clock of one simulated process, which also controls the order of the committer threads.
//!
//! A committer thread reads this clock in a fixed pattern: `now` before and after each commit, `wall` in every commit,
//! and `wall`, then `now` when it is idle. So the clock knows the state of each committer:
//!
//!   idle ─now─► committing ─wall (may be held)─► committing ─now─► done ─wall, now─► idle
//!
//! A test that waits for idle committers after each call takes the same steps in every run. A test that holds a commit
//! can fill the queue meanwhile. Nothing sleeps.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use ephor_core::time::{Clock, Monotonic, Timestamp};

/// A committer that does not come to rest within this time never will.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// When all process runs begin.
pub const START: i64 = 1_700_000_000_000;

#[derive(Debug)]
pub struct CommitterClock {
    owner: ThreadId,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    wall: i64,
    /// A commit waits at its beginning while this is set.
    held: bool,
    committers: Vec<Committer>,
}

#[derive(Debug)]
struct Committer {
    thread: ThreadId,
    committing: bool,
    waiting: bool,
    resting: bool,
    /// It rests, and asks for `now` as well.
    looking: bool,
}

impl CommitterClock {
    /// Every thread but the one that makes it is a committer.
    pub fn new(wall: i64) -> Arc<CommitterClock> {
        let state = State { wall, held: false, committers: Vec::new() };
        Arc::new(CommitterClock {
            owner: thread::current().id(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// Moves the wall clock, also back.
    pub fn advance(&self, milliseconds: i64) {
        self.state().wall += milliseconds;
    }

    pub fn wall_time(&self) -> i64 {
        self.state().wall
    }

    /// Waits until this many committers have begun and none has anything to do.
    pub fn wait_for_rest(&self, committers: usize) -> bool {
        self.wait(|state| {
            state.committers.len() >= committers && state.committers.iter().all(|one| one.resting)
        })
    }

    /// From now on a commit stops where it begins.
    pub fn hold(&self) {
        self.state().held = true;
    }

    /// Waits until a commit is held.
    pub fn wait_for_held(&self) -> bool {
        self.wait(|state| state.committers.iter().any(|one| one.waiting))
    }

    pub fn release(&self) {
        self.state().held = false;
        self.changed.notify_all();
    }

    fn wait(&self, done: impl Fn(&State) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), MAX_WAIT, |state| !done(state));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn committer(&mut self) -> &mut Committer {
        let thread = thread::current().id();
        let at = self.committers.iter().position(|one| one.thread == thread).unwrap_or_else(|| {
            self.committers.push(Committer {
                thread,
                committing: false,
                waiting: false,
                resting: false,
                looking: false,
            });
            self.committers.len() - 1
        });
        &mut self.committers[at]
    }
}

impl Clock for CommitterClock {
    fn now(&self) -> Monotonic {
        if thread::current().id() != self.owner {
            let mut state = self.state();
            let committer = state.committer();
            if std::mem::take(&mut committer.looking) {
                return Monotonic(1);
            }
            committer.committing = !committer.committing;
            committer.resting = false;
        }
        // Commits take no time: no committer waits for company.
        Monotonic(1)
    }

    fn wall(&self) -> Timestamp {
        let mut state = self.state();
        if thread::current().id() != self.owner {
            if state.committer().committing {
                state.committer().waiting = true;
                self.changed.notify_all();
                let released = self.changed.wait_timeout_while(state, MAX_WAIT, |state| state.held);
                state = released.unwrap_or_else(PoisonError::into_inner).0;
                state.committer().waiting = false;
            } else {
                state.committer().resting = true;
                state.committer().looking = true;
                self.changed.notify_all();
            }
        }
        Timestamp(state.wall)
    }
}
