//! Tests of the memory budget: waiting, eviction, wake-ups and log lines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ephor_core::time::Monotonic;
use ephor_runtime::environment::SystemClock;
use ephor_testkit::CapturedLog;
use futures_util::FutureExt;

use super::*;

const KIB: usize = 1 << 10;

fn budget() -> Arc<Budget> {
    Budget::new(1_000 * KIB, Arc::new(SystemClock))
}

fn at(seconds: u64) -> Monotonic {
    Monotonic::default() + Duration::from_secs(seconds)
}

/// A connection from an address of its own.
fn share(budget: &Arc<Budget>) -> Share {
    let number = budget.next.load(Ordering::SeqCst) as u16;
    budget.share(SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 5672)))
}

fn keeps(bytes: usize) -> Usage {
    Usage { bytes, ..Usage::default() }
}

fn keeps_incomplete(bytes: usize, since: u64) -> Usage {
    Usage { bytes, unended: bytes, since: Some(at(since)), ..Usage::default() }
}

/// Output that waits since this time.
fn unread(bytes: usize, since: Monotonic) -> Usage {
    Usage { bytes, output: bytes, output_since: Some(since), ..Usage::default() }
}

/// A clock that is set by hand, in seconds.
struct SetClock(AtomicU64);

impl Clock for SetClock {
    fn now(&self) -> Monotonic {
        at(self.0.load(Ordering::SeqCst))
    }

    fn wall(&self) -> ephor_core::time::Timestamp {
        ephor_core::time::Timestamp(0)
    }
}

/// A budget at 1,000 s.
fn budget_with_clock(most: usize) -> (Arc<Budget>, Arc<SetClock>) {
    let clock = Arc::new(SetClock(AtomicU64::new(1_000)));
    (Budget::new(most, clock.clone()), clock)
}

fn is_evicted(share: &Share) -> bool {
    share.evicted().now_or_never().is_some()
}

fn is_relieved(share: &Share) -> bool {
    share.relieved().now_or_never().is_some()
}

#[test]
fn a_connection_over_its_fair_share_waits_and_the_others_do_not() {
    let budget = budget();
    let (mut large, mut small) = (share(&budget), share(&budget));
    assert!(!large.report(keeps(900 * KIB)));
    assert!(!small.report(keeps(100 * KIB)));
    assert!(large.report(keeps(900 * KIB + UNCOUNTED)));
    assert!(!small.report(keeps(200 * KIB)) && !is_relieved(&large));
    // Others give memory back.
    small.report(keeps(50 * KIB));
    assert!(is_relieved(&large) && !large.report(keeps(900 * KIB)));
    drop((large, small));
    assert_eq!(budget.lock().used, 0);
}

#[test]
fn the_connection_with_the_oldest_unended_delivery_is_evicted_and_one_at_a_time() {
    let budget = budget();
    let mut holders: Vec<_> = (0..4).map(|_| share(&budget)).collect();
    for (since, share) in holders.iter_mut().enumerate().skip(1) {
        share.report(keeps_incomplete(300 * KIB, since as u64));
    }
    assert!(!holders.iter().any(is_evicted));
    // It is the newest, and the one that makes the eviction necessary.
    holders[0].report(keeps_incomplete(300 * KIB, 9));
    assert!(is_evicted(&holders[1]));
    assert!(!holders.iter().any(is_evicted));
    drop(holders.remove(1));
    assert_eq!(budget.lock().used, 900 * KIB);
}

#[test]
fn a_connection_within_its_fair_share_is_never_evicted_however_old_its_delivery_is() {
    let budget = budget();
    let (mut old, mut newer) = (share(&budget), share(&budget));
    old.report(keeps_incomplete(100 * KIB, 1));
    assert!(newer.report(keeps_incomplete(1_000 * KIB, 5)));
    assert!(is_evicted(&newer) && !is_evicted(&old));
    assert!(!old.report(keeps_incomplete(120 * KIB, 1)));
}

#[test]
fn what_gets_less_by_itself_is_waited_for_and_costs_nobody_its_connection() {
    let budget = budget();
    let mut shares: Vec<_> = (0..10).map(|_| share(&budget)).collect();
    for share in &mut shares {
        share.report(keeps(150 * KIB));
    }
    assert!(!shares.iter().any(is_evicted));
    assert_eq!(shares.iter().filter(|share| share.waits()).count(), 4);
}

#[test]
fn what_would_be_too_much_is_waited_for_before_it_is_kept() {
    let budget = budget();
    let (mut one, mut other) = (share(&budget), share(&budget));
    other.report(keeps(900 * KIB));
    assert!(one.admit(50 * KIB), "there is room");
    one.report(keeps(50 * KIB));
    assert!(one.admit(250 * KIB), "it is within its part");
    assert!(!one.admit(500 * KIB) && one.waits() && !is_relieved(&one));
    other.report(keeps(500 * KIB));
    assert!(!is_relieved(&one), "half of it is not enough");
    other.report(keeps(100 * KIB));
    assert!(is_relieved(&one));
    one.take_relief();
    assert!(one.admit(500 * KIB) && !one.waits());
}

#[test]
fn a_refused_connection_is_relieved_later_even_if_there_was_room_when_it_asked() {
    let budget = budget();
    let (mut one, mut other) = (share(&budget), share(&budget));
    other.report(keeps(400 * KIB));
    assert!(one.report(keeps(600 * KIB)));
    other.report(keeps(0));
    // It has not been notified of the room yet.
    assert!(!one.admit(64 * KIB));
    one.report(keeps(600 * KIB));
    assert!(one.waits() && is_relieved(&one), "it stands in line for somebody who calls it");
    one.take_relief();
    assert!(!one.report(keeps(600 * KIB)) && one.admit(64 * KIB));
}

#[test]
fn deliveries_that_take_less_than_half_cost_nobody_its_connection() {
    let budget = budget();
    let (mut honest, mut others) = (share(&budget), [share(&budget), share(&budget)]);
    for other in &mut others {
        other.report(keeps(450 * KIB));
    }
    assert!(honest.report(keeps_incomplete(400 * KIB, 1)), "it waits until the others have less");
    assert!(!is_evicted(&honest));
    others[0].report(keeps(0));
    assert!(is_relieved(&honest));
}

#[test]
fn a_thousand_connections_that_keep_next_to_nothing_are_not_counted() {
    let budget = budget();
    let mut shares: Vec<_> = (0..1_000).map(|_| share(&budget)).collect();
    assert!(!shares.iter_mut().any(|share| share.report(keeps(UNCOUNTED - 1))));
    assert_eq!(budget.lock().used, 0);
}

/// Two connections that use nearly all of the budget together, the first one more than its part.
fn nearly_full() -> (Arc<Budget>, Share, Share) {
    let budget = budget();
    let (mut one, mut other) = (share(&budget), share(&budget));
    assert!(!one.report(keeps(520 * KIB)) && !other.report(keeps(380 * KIB)));
    (budget, one, other)
}

#[test]
fn the_connection_that_was_refused_first_is_notified_when_there_is_room_for_it() {
    let (_budget, mut one, mut other) = nearly_full();
    // Two receivers of one connection: the second wants more, and queues after the first.
    assert!(!one.admit(120 * KIB) && !one.admit(400 * KIB));
    assert!(!is_relieved(&one));
    other.report(keeps(340 * KIB));
    assert!(is_relieved(&one), "there is room for the first");
    one.take_relief();
    assert!(one.admit(120 * KIB) && !one.admit(400 * KIB));
}

#[test]
fn what_a_closed_connection_wanted_is_not_waited_for() {
    let (_budget, mut one, mut other) = nearly_full();
    assert!(!one.admit(400 * KIB));
    other.report(keeps(340 * KIB));
    assert!(!is_relieved(&one));
    one.forget_want();
    assert!(is_relieved(&one), "the next in line asks for what it wants itself");
    one.take_relief();
    assert!(one.admit(100 * KIB));
    one.forget_want();
    assert!(!one.waits(), "nobody waits, and so nobody is called");
}

#[test]
fn a_connection_that_only_wants_more_is_still_read_from() {
    let (_budget, mut one, _other) = nearly_full();
    assert!(!one.admit(400 * KIB) && one.waits());
    assert!(!one.report(keeps(520 * KIB)), "it keeps no more than before, and that was not too much");
}

#[test]
fn output_that_has_not_been_read_for_a_while_costs_its_connection_the_oldest_first() {
    let (budget, clock) = budget_with_clock(1_000 * KIB);
    let mut readers: Vec<_> = (0..5).map(|_| share(&budget)).collect();
    for (number, reader) in readers.iter_mut().enumerate() {
        reader.report(unread(230 * KIB, at(if number == 3 { 998 } else { 1_000 })));
    }
    assert!(!readers.iter().any(is_evicted), "they may read it soon");
    clock.0.store(1_004, Ordering::SeqCst);
    readers[0].report(unread(230 * KIB, at(1_004)));
    assert!(!readers.iter().any(is_evicted), "the stale output is less than half");
    clock.0.store(1_006, Ordering::SeqCst);
    readers[0].report(unread(230 * KIB, at(1_006)));
    assert!(is_evicted(&readers[3]), "it has not read for longest");
    assert!(!readers.iter().any(is_evicted), "there is room when it is gone");
}

#[test]
fn output_of_any_age_costs_its_connection_when_nothing_is_left_for_others() {
    let (budget, _clock) = budget_with_clock(1_000 * KIB);
    let mut readers: Vec<_> = (0..12).map(|_| share(&budget)).collect();
    for reader in &mut readers {
        // All of this happens within a moment.
        reader.report(unread(120 * KIB, at(1_000)));
        let state = budget.lock();
        assert!(state.staying() < 1_250 * KIB, "{} bytes", state.staying());
    }
    assert!(readers.iter().any(is_evicted));
}

#[test]
fn whoever_keeps_little_goes_on_while_slow_readers_keep_everything() {
    const MIB: usize = 1_000 * KIB;
    let (budget, _clock) = budget_with_clock(32 * MIB);
    let mut slow: Vec<_> = (0..300).map(|_| share(&budget)).collect();
    for reader in &mut slow {
        reader.report(unread(110 * KIB, at(999)));
    }
    assert!(budget.lock().used >= 32 * MIB);
    // Its part is 109 KiB, and its message is 1 MiB. It comes bit by bit.
    let mut sender = share(&budget);
    for part in 1..=16 {
        assert!(!sender.report(keeps_incomplete(part * 64 * KIB, 1_000)), "it waits after {part} parts");
    }
    assert!(!is_evicted(&sender));
    let mut receiver = share(&budget);
    assert!(receiver.admit(64 * KIB));
    receiver.report(keeps(1_024 * KIB));
    assert!(receiver.admit(1_000 * KIB), "one message, while it reads");
}

#[test]
fn somebody_goes_for_whoever_keeps_little_and_finds_no_room() {
    let (budget, _clock) = budget_with_clock(32_000 * KIB);
    let mut slow: Vec<_> = (0..300).map(|_| share(&budget)).collect();
    for (number, reader) in slow.iter_mut().enumerate() {
        // They use nearly all that is set aside, and have read a moment ago.
        reader.report(unread(132 * KIB, at(if number == 7 { 998 } else { 999 })));
    }
    let mut honest = share(&budget);
    assert!(!honest.admit(600 * KIB) && !is_relieved(&honest));
    assert!(is_evicted(&slow[7]), "it has not read for longest");
    drop(slow.remove(7));
    slow.retain(|reader| !is_evicted(reader));
    assert_eq!(slow.len(), 298, "as many go as it takes");
    assert!(is_relieved(&honest));
    honest.take_relief();
    assert!(honest.admit(600 * KIB));
}

#[test]
fn whoever_keeps_next_to_nothing_goes_on_when_nothing_is_left_for_anybody() {
    let (budget, _clock) = budget_with_clock(32_000 * KIB);
    let mut large: Vec<_> = (0..100).map(|_| share(&budget)).collect();
    for connection in &mut large {
        // It gets less by itself, and so nobody is evicted.
        connection.report(keeps(500 * KIB));
    }
    assert!(budget.lock().used > 40_000 * KIB && large[99].waits());
    let mut honest = share(&budget);
    assert!(honest.admit(LITTLE) && !honest.report(keeps(LITTLE)) && !honest.waits());
    assert!(!honest.admit(500 * KIB));
}

#[test]
fn it_is_logged_once_that_memory_is_used_up_and_once_that_there_is_room() {
    let lines = CapturedLog::of_this_thread();
    let (_budget, mut one, mut other) = nearly_full();
    assert_eq!(lines.take(), [""; 0]);
    one.report(keeps(700 * KIB));
    let said = lines.take();
    assert!(said.len() == 1 && said[0].starts_with("WARN "), "{said:?}");
    for part in [
        "used=1105920",
        "buffered_bytes=1024000",
        "connections=2",
        "10.0.0.0: 716800 bytes of 1 connection; 10.0.0.1: 389120 bytes",
    ] {
        assert!(said[0].contains(part), "{said:?}");
    }
    assert!(!said[0].contains("raise"), "there is no such option of `ephor dev`: {said:?}");
    // Full and not full alternate, and a connection that would buffer more is refused.
    for _ in 0..100 {
        one.report(keeps(400 * KIB));
        one.report(keeps(700 * KIB));
        assert!(!one.admit(100 * KIB));
        one.take_relief();
    }
    assert_eq!(lines.take(), [""; 0]);
    other.report(keeps(0));
    let said = lines.take();
    assert!(said.len() == 1 && said[0].starts_with("INFO ") && said[0].contains("again"), "{said:?}");
    // A connection that is refused because of what it would buffer finds the budget full as well.
    assert!(!one.report(keeps(700 * KIB)) && !other.report(keeps(290 * KIB)));
    assert!(!one.admit(100 * KIB));
    assert_eq!(lines.take().len(), 1);
    // One connection goes away and gives back what it used; then the other one fills the budget and
    // empties it, many times.
    drop(one);
    assert_eq!(lines.take().len(), 1);
    for _ in 0..1_000 {
        other.report(keeps(1_000 * KIB));
        other.report(keeps(0));
    }
    let said = lines.take();
    assert!(said.len() <= 10, "{} lines", said.len());
}

/// A log whose writer may block, and then blocks only the connection that logs.
#[derive(Clone)]
struct Unlocked(Arc<Budget>, Arc<AtomicU64>);

impl std::io::Write for Unlocked {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        assert!(self.0.state.try_lock().is_ok(), "logged under the lock: {}", String::from_utf8_lossy(bytes));
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn nothing_is_logged_while_other_connections_wait_for_the_lock() {
    let writer = Unlocked(budget(), Arc::default());
    let (budget, lines) = (writer.0.clone(), writer.1.clone());
    let log = tracing_subscriber::fmt().with_writer(move || writer.clone());
    tracing::subscriber::with_default(log.finish(), || {
        let mut one = share(&budget);
        one.report(keeps(1_000 * KIB));
        one.report(keeps(0));
        one.report(keeps(600 * KIB));
        assert!(!one.admit(600 * KIB));
    });
    assert_eq!(lines.load(Ordering::SeqCst), 4);
}
