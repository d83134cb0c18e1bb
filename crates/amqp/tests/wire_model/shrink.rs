//! Plays a list of steps and catches its failure; reduces a failing list to the steps that it needs.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Panics of this thread are caught, and their messages are kept instead of printed.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The most plays of one search.
const MAX_PLAYS: usize = 3_000;

/// A violation, as it was reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    /// The text without numbers, which change when steps are left out.
    fn kind(&self) -> String {
        self.0.chars().filter(|letter| !letter.is_ascii_digit()).take_while(|letter| *letter != ':').collect()
    }
}

/// Plays, and returns the violation instead of panicking.
pub(crate) fn attempt<T>(play: impl FnOnce() -> T) -> Result<T, Failure> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if CAUGHT.get() {
                MESSAGE.with_borrow_mut(|message| *message = info.to_string());
            } else {
                before(info);
            }
        }));
    });
    CAUGHT.set(true);
    let result = catch_unwind(AssertUnwindSafe(play));
    CAUGHT.set(false);
    result.map_err(|_| Failure(MESSAGE.take()))
}

/// Leaves out steps while the list fails in the same way: large parts first, then smaller ones.
pub(crate) fn shrink<S: Clone>(
    steps: &[S],
    failure: &Failure,
    play: impl Fn(&[S]) -> Option<Failure>,
) -> Vec<S> {
    let mut best = steps.to_vec();
    let mut plays = 0;
    let kind = failure.kind();
    let mut size = best.len().div_ceil(2);
    while size > 0 && plays < MAX_PLAYS {
        let mut at = 0;
        let before = best.len();
        while at < best.len() && plays < MAX_PLAYS {
            let end = (at + size).min(best.len());
            let fewer = [&best[..at], &best[end..]].concat();
            plays += 1;
            if play(&fewer).is_some_and(|failure| failure.kind() == kind) {
                best = fewer;
            } else {
                at = end;
            }
        }
        if best.len() == before || size > 1 {
            size /= 2;
        }
    }
    best
}

/// The steps, one in each line.
pub(crate) fn list<S: Debug>(steps: &[S]) -> String {
    steps.iter().enumerate().map(|(number, step)| format!("{:>4}  {step:?}\n", number + 1)).collect()
}
