//! Catches panics, so that a critical task survives them and can report them.
//!
//! This works only if panics unwind: with `panic = "abort"` the process ends, which is a crash like
//! any other.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// A panic that was caught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked {
    /// The panic message.
    pub message: String,
}

impl Panicked {
    /// The panic with this payload.
    pub fn of(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self { message: text.unwrap_or("(no message)").to_owned() }
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Calls `work` and catches its panic. The caller must know what `work` may have left half done.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| Panicked::of(&*payload))
}

/// The same for a future, which is not polled again after it panicked.
pub async fn caught_async<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    poll_fn(|context| match caught(|| future.as_mut().poll(context)) {
        Ok(poll) => poll.map(Ok),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_panic_becomes_its_words() {
        assert_eq!(caught(|| 7), Ok(7));
        let words = |work: fn()| caught(work).unwrap_err().to_string();
        assert_eq!(words(|| panic!("plain")), "plain");
        assert_eq!(words(|| panic!("number {}", 5)), "number 5");
        assert_eq!(words(|| std::panic::panic_any(5)), "(no message)");
    }

    #[test]
    fn a_future_that_panics_ends_with_its_words() {
        let mut context = Context::from_waker(Waker::noop());
        let mut well = pin!(caught_async(async { 7 }));
        assert_eq!(well.as_mut().poll(&mut context), Poll::Ready(Ok(7)));
        let mut ill = pin!(caught_async(async { panic!("late") }));
        let ended: Poll<Result<(), Panicked>> = ill.as_mut().poll(&mut context);
        assert_eq!(ended, Poll::Ready(Err(Panicked { message: "late".into() })));
    }
}
