//! The interrupts of a pump: requests to stop or pause, and the deadline of the lease.
//!
//! The deadline is checked on every poll, before any of the user's code can run: a process that was
//! paused and resumes finds out here that its time is over, not from a timer that may fire a moment
//! later.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use ephor_core::BoxFuture;
use ephor_core::time::Monotonic;
use tokio::sync::watch;

use crate::environment::Environment;
use crate::lease_state::LeaseState;
use crate::processor::CloseReason;
use crate::pump_interface::{Control, Disposition, Drain, Stop};

/// An interrupt that the guard found.
#[derive(Debug)]
pub(crate) enum Interrupt {
    Lost(CloseReason),
    Drain(Drain),
    Paused,
    Resumed,
}

/// The interrupts to react to, besides a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterruptMask {
    /// A drain, and a pause.
    Everything,
    /// A drain, and the end of a pause.
    Resume,
    /// A drain.
    Drain,
    /// Only the end of a drain's time.
    DrainDeadline,
    /// Nothing else.
    Loss,
}

/// Interrupts what a pump does. It reads the clock on every poll, before the user's code can run, so
/// that nothing continues after the deadline of the lease.
pub(crate) struct InterruptGuard {
    environment: Arc<dyn Environment>,
    lease: Arc<LeaseState>,
    control: watch::Receiver<Control>,
    timer: LazyTimer,
}

impl InterruptGuard {
    pub(crate) fn new(
        environment: Arc<dyn Environment>,
        lease: Arc<LeaseState>,
        control: watch::Receiver<Control>,
    ) -> Self {
        Self { environment, lease, control, timer: LazyTimer::default() }
    }

    /// How the partition is to be given away, as last requested.
    pub(crate) fn disposition(&self) -> Option<Disposition> {
        match &self.control.borrow().stop {
            Some(Stop::Drain(drain)) => Some(drain.disposition.clone()),
            _ => None,
        }
    }

    /// The same, once it is decided: it waits until then, but no longer than the lease lasts.
    pub(crate) async fn decided_disposition(&mut self, until: Monotonic) -> Option<Disposition> {
        loop {
            let disposition = self.disposition()?;
            let now = self.environment.now();
            let Disposition::Undecided = disposition else { return Some(disposition) };
            if now >= until || !self.lease.is_ours(now) {
                return Some(Disposition::Release { successor: None });
            }
            let Self { environment, lease, control, timer } = self;
            tokio::select! {
                biased;
                // There is nobody left to decide.
                changed = control.changed() => changed.ok()?,
                () = timer.until(&**environment, until.min(lease.deadline())) => {}
            }
        }
    }

    /// The current interrupt, if there is one.
    pub(crate) fn check(&self, mask: InterruptMask) -> Option<Interrupt> {
        check(&*self.environment, &self.lease, &self.control, mask)
    }

    /// Waits for an interrupt. Allocates nothing as long as the deadline keeps moving ahead.
    pub(crate) async fn wait(&mut self, mask: InterruptMask) -> Interrupt {
        let Self { environment, lease, control, timer } = self;
        loop {
            if let Some(interrupt) = check(&**environment, lease, control, mask) {
                return interrupt;
            }
            let drain_until = match &control.borrow().stop {
                Some(Stop::Drain(drain)) if mask != InterruptMask::Loss => drain.until,
                _ => Monotonic::NEVER,
            };
            let next = lease.deadline().min(drain_until);
            // `changed` below sees it, whatever happens in between.
            let changed = async {
                if control.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let mut changed = pin!(changed);
            let mut due = pin!(timer.until(&**environment, next));
            poll_fn(|context| {
                if !lease.is_ours(environment.now())
                    || changed.as_mut().poll(context).is_ready()
                    || due.as_mut().poll(context).is_ready()
                {
                    return Poll::Ready(());
                }
                Poll::Pending
            })
            .await;
        }
    }
}

fn check(
    environment: &dyn Environment,
    lease: &LeaseState,
    control: &watch::Receiver<Control>,
    mask: InterruptMask,
) -> Option<Interrupt> {
    let now = environment.now();
    let control = control.borrow();
    if !lease.is_ours(now) {
        let reason = match control.stop {
            Some(Stop::Lost(reason)) => reason,
            _ => CloseReason::LeaseLost,
        };
        return Some(Interrupt::Lost(reason));
    }
    if let Some(Stop::Drain(drain)) = &control.stop {
        let interrupts = match mask {
            InterruptMask::Loss => false,
            InterruptMask::DrainDeadline => now >= drain.until,
            InterruptMask::Everything | InterruptMask::Resume | InterruptMask::Drain => true,
        };
        if interrupts {
            return Some(Interrupt::Drain(drain.clone()));
        }
    }
    match mask {
        InterruptMask::Everything if control.paused => Some(Interrupt::Paused),
        InterruptMask::Resume if !control.paused => Some(Interrupt::Resumed),
        _ => None,
    }
}

/// A timer that is set once and then left alone: if its target has moved ahead when it fires, it is
/// set again. A busy pump moves its targets with every batch, but sets a timer only now and then.
#[derive(Default)]
pub(crate) struct LazyTimer(Option<(Monotonic, BoxFuture<'static, ()>)>);

impl LazyTimer {
    /// Completes at `at`.
    pub(crate) async fn until(&mut self, environment: &dyn Environment, at: Monotonic) {
        if at == Monotonic::NEVER {
            return std::future::pending().await;
        }
        loop {
            if environment.now() >= at {
                return;
            }
            if self.0.as_ref().is_none_or(|(set_for, _)| *set_for > at) {
                self.0 = Some((at, environment.sleep_until(at)));
            }
            if let Some((_, sleep)) = &mut self.0 {
                sleep.as_mut().await;
                self.0 = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use ephor_core::epoch::Epoch;
    use ephor_core::ids::{HostId, Incarnation, PartitionId};
    use ephor_core::lease::LeaseToken;
    use ephor_core::time::{Clock, Timestamp};
    use futures_util::FutureExt;

    use super::*;
    use crate::environment::TaskHandle;

    /// A machine whose clock is moved by hand and whose timers never fire, as for a process that
    /// was paused and resumes.
    #[derive(Default)]
    struct Frozen(AtomicU64);

    impl Clock for Frozen {
        fn now(&self) -> Monotonic {
            Monotonic(self.0.load(Ordering::Relaxed))
        }
        fn wall(&self) -> Timestamp {
            Timestamp(0)
        }
    }

    impl Environment for Frozen {
        fn sleep_until(&self, _: Monotonic) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
        fn spawn(&self, _: BoxFuture<'static, ()>) -> TaskHandle {
            TaskHandle::new(|| {})
        }
        fn random(&self) -> u64 {
            0
        }
    }

    fn host(name: &str) -> HostId {
        HostId { name: name.parse().unwrap(), incarnation: Incarnation(1) }
    }

    fn guard() -> (Arc<Frozen>, Arc<LeaseState>, watch::Sender<Control>, InterruptGuard) {
        let frozen = Arc::new(Frozen::default());
        let token = LeaseToken { partition: PartitionId(0), owner: host("a"), epoch: Epoch::FIRST };
        let lease = Arc::new(LeaseState::new(token, Monotonic(100)));
        let (control, receiver) = watch::channel(Control::default());
        let guard = InterruptGuard::new(frozen.clone(), lease.clone(), receiver);
        (frozen, lease, control, guard)
    }

    fn drain(until: u64) -> Option<Stop> {
        Some(Stop::Drain(Drain {
            until: Monotonic(until),
            disposition: Disposition::Release { successor: None },
        }))
    }

    #[test]
    fn the_deadline_is_seen_on_the_next_poll_although_no_timer_fired() {
        let (frozen, _, _control, mut guard) = guard();
        let mut waiting = pin!(guard.wait(InterruptMask::DrainDeadline));
        assert!(waiting.as_mut().now_or_never().is_none());
        frozen.0.store(99, Ordering::Relaxed);
        assert!(waiting.as_mut().now_or_never().is_none());
        frozen.0.store(100, Ordering::Relaxed);
        let seen = waiting.as_mut().now_or_never();
        assert!(matches!(seen, Some(Interrupt::Lost(CloseReason::LeaseLost))), "{seen:?}");
    }

    #[test]
    fn a_renewal_moves_the_deadline_ahead() {
        let (frozen, lease, _control, mut guard) = guard();
        frozen.0.store(99, Ordering::Relaxed);
        assert!(guard.check(InterruptMask::Everything).is_none());
        lease.extend(Monotonic(200));
        frozen.0.store(150, Ordering::Relaxed);
        assert!(guard.wait(InterruptMask::Everything).now_or_never().is_none());
    }

    #[test]
    fn being_lost_tells_why_and_overrules_everything() {
        let (_, lease, control, mut guard) = guard();
        control.send_replace(Control { paused: true, stop: Some(Stop::Lost(CloseReason::Seek)) });
        lease.end();
        for mask in [
            InterruptMask::Everything,
            InterruptMask::Resume,
            InterruptMask::Drain,
            InterruptMask::DrainDeadline,
            InterruptMask::Loss,
        ] {
            let seen = guard.wait(mask).now_or_never();
            assert!(matches!(seen, Some(Interrupt::Lost(CloseReason::Seek))), "{mask:?}: {seen:?}");
        }
    }

    #[test]
    fn a_drain_interrupts_at_once_or_at_its_end_or_not_at_all() {
        let (frozen, _, control, mut guard) = guard();
        control.send_replace(Control { paused: false, stop: drain(50) });
        for mask in [InterruptMask::Everything, InterruptMask::Resume, InterruptMask::Drain] {
            assert!(matches!(guard.check(mask), Some(Interrupt::Drain(_))), "{mask:?}");
        }
        frozen.0.store(49, Ordering::Relaxed);
        assert!(guard.wait(InterruptMask::DrainDeadline).now_or_never().is_none());
        frozen.0.store(50, Ordering::Relaxed);
        assert!(matches!(guard.wait(InterruptMask::DrainDeadline).now_or_never(), Some(Interrupt::Drain(_))));
        assert!(guard.wait(InterruptMask::Loss).now_or_never().is_none());
    }

    #[test]
    fn a_pause_interrupts_only_who_waits_for_it() {
        let (_, _, control, guard) = guard();
        assert!(matches!(guard.check(InterruptMask::Resume), Some(Interrupt::Resumed)));
        control.send_modify(|control| control.paused = true);
        assert!(matches!(guard.check(InterruptMask::Everything), Some(Interrupt::Paused)));
        for mask in
            [InterruptMask::Resume, InterruptMask::Drain, InterruptMask::DrainDeadline, InterruptMask::Loss]
        {
            assert!(guard.check(mask).is_none(), "{mask:?}");
        }
    }

    #[test]
    fn requests_wake_a_guard_that_waits() {
        let (_, _, control, mut guard) = guard();
        let mut waiting = pin!(guard.wait(InterruptMask::Drain));
        assert!(waiting.as_mut().now_or_never().is_none());
        control.send_replace(Control { paused: false, stop: drain(50) });
        assert!(matches!(waiting.as_mut().now_or_never(), Some(Interrupt::Drain(_))));
    }
}
