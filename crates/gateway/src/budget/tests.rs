//! Tests of the memory budget: waiting, eviction and wake-ups.

use std::time::Duration;

use ephor::environment::SystemClock;
use futures_util::FutureExt;

use super::*;

const KIB: usize = 1 << 10;

fn budget() -> Arc<Budget> {
    Budget::new(1_000 * KIB, Arc::new(SystemClock))
}

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
    let budget = budget();
    let (mut large, mut small) = (budget.share(), budget.share());
    assert!(!large.tell(keeps(900 * KIB)));
    assert!(!small.tell(keeps(100 * KIB)));
    assert!(large.tell(keeps(900 * KIB + GRAIN)));
    assert!(!small.tell(keeps(200 * KIB)) && !is_relieved(&large));
    // Others give memory back.
    small.tell(keeps(50 * KIB));
    assert!(is_relieved(&large) && !large.tell(keeps(900 * KIB)));
    drop((large, small));
    assert_eq!(budget.used(), 0);
}

#[test]
fn whose_delivery_has_been_unended_for_longest_goes_and_one_at_a_time() {
    let budget = budget();
    let mut hoarders: Vec<_> = (0..4).map(|_| budget.share()).collect();
    for (since, share) in hoarders.iter_mut().enumerate().skip(1) {
        share.tell(hoards(300 * KIB, since as u64));
    }
    assert!(!hoarders.iter().any(is_evicted));
    // It is the newest, and the one that makes the eviction necessary.
    hoarders[0].tell(hoards(300 * KIB, 9));
    assert!(is_evicted(&hoarders[1]));
    assert!(!hoarders.iter().any(is_evicted));
    drop(hoarders.remove(1));
    assert_eq!(budget.used(), 900 * KIB);
}

#[test]
fn whoever_keeps_less_than_its_part_never_goes_however_old_its_delivery_is() {
    let budget = budget();
    let (mut old, mut hoarder) = (budget.share(), budget.share());
    old.tell(hoards(100 * KIB, 1));
    assert!(hoarder.tell(hoards(1_000 * KIB, 5)));
    assert!(is_evicted(&hoarder) && !is_evicted(&old));
    assert!(!old.tell(hoards(120 * KIB, 1)));
}

#[test]
fn what_gets_less_by_itself_is_waited_for_and_costs_nobody_its_connection() {
    let budget = budget();
    let mut shares: Vec<_> = (0..10).map(|_| budget.share()).collect();
    for share in &mut shares {
        share.tell(keeps(150 * KIB));
    }
    assert!(!shares.iter().any(is_evicted));
    assert_eq!(shares.iter().filter(|share| share.waits()).count(), 4);
}

#[test]
fn what_would_be_too_much_is_waited_for_before_it_is_kept() {
    let budget = budget();
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
    let budget = budget();
    let (mut one, mut other) = (budget.share(), budget.share());
    other.tell(keeps(400 * KIB));
    assert!(one.tell(keeps(600 * KIB)));
    other.tell(keeps(0));
    // It has not been notified of the room yet.
    assert!(!one.admit(64 * KIB));
    one.tell(keeps(600 * KIB));
    assert!(one.waits() && is_relieved(&one), "it stands in line for somebody who calls it");
    one.take_relief();
    assert!(!one.tell(keeps(600 * KIB)) && one.admit(64 * KIB));
}

#[test]
fn deliveries_that_take_less_than_half_cost_nobody_its_connection() {
    let budget = budget();
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
    let budget = budget();
    let mut shares: Vec<_> = (0..1_000).map(|_| budget.share()).collect();
    assert!(!shares.iter_mut().any(|share| share.tell(keeps(GRAIN - 1))));
    assert_eq!(budget.used(), 0);
}

/// Two connections that use nearly all of the budget together, the first one more than its part.
fn nearly_full() -> (Arc<Budget>, Share, Share) {
    let budget = budget();
    let (mut one, mut other) = (budget.share(), budget.share());
    assert!(!one.tell(keeps(520 * KIB)) && !other.tell(keeps(380 * KIB)));
    (budget, one, other)
}

#[test]
fn whoever_was_refused_first_is_called_when_there_is_room_for_it() {
    let (_budget, mut one, mut other) = nearly_full();
    // Two receivers of one connection: the second wants more, and queues after the first.
    assert!(!one.admit(120 * KIB) && !one.admit(400 * KIB));
    assert!(!is_relieved(&one));
    other.tell(keeps(340 * KIB));
    assert!(is_relieved(&one), "there is room for the first");
    one.take_relief();
    assert!(one.admit(120 * KIB) && !one.admit(400 * KIB));
}

#[test]
fn what_somebody_wanted_who_is_gone_is_not_waited_for() {
    let (_budget, mut one, mut other) = nearly_full();
    assert!(!one.admit(400 * KIB));
    other.tell(keeps(340 * KIB));
    assert!(!is_relieved(&one));
    one.forget_want();
    assert!(is_relieved(&one), "the next in line asks for what it wants itself");
    one.take_relief();
    assert!(one.admit(100 * KIB));
    one.forget_want();
    assert!(!one.waits(), "nobody waits, and so nobody is called");
}

#[test]
fn whoever_only_wants_to_keep_more_is_read_from() {
    let (_budget, mut one, _other) = nearly_full();
    assert!(!one.admit(400 * KIB) && one.waits());
    assert!(!one.tell(keeps(520 * KIB)), "it keeps no more than before, and that was not too much");
}

/// The log output as text.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn take(&self) -> Vec<String> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn people_hear_once_that_memory_is_used_up_and_once_that_there_is_room() {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    tracing::subscriber::with_default(log.finish(), || {
        let (_budget, mut one, mut other) = nearly_full();
        assert_eq!(lines.take(), [""; 0]);
        one.tell(keeps(700 * KIB));
        let said = lines.take();
        assert!(said.len() == 1 && said[0].contains(" WARN "), "{said:?}");
        for part in ["used=1105920", "buffered_bytes=1024000", "connections=2", "raise `buffered_bytes`"] {
            assert!(said[0].contains(part), "{said:?}");
        }
        // Full and not full alternate, and a connection that would buffer more is refused.
        for _ in 0..100 {
            one.tell(keeps(400 * KIB));
            one.tell(keeps(700 * KIB));
            assert!(!one.admit(100 * KIB));
            one.take_relief();
        }
        assert_eq!(lines.take(), [""; 0]);
        other.tell(keeps(0));
        let said = lines.take();
        assert!(said.len() == 1 && said[0].contains(" INFO ") && said[0].contains("again"), "{said:?}");
        // A connection that is refused because of what it would buffer finds the budget full as well.
        assert!(!one.tell(keeps(700 * KIB)) && !other.tell(keeps(290 * KIB)));
        assert!(!one.admit(100 * KIB));
        assert_eq!(lines.take().len(), 1);
        // One connection goes away and gives back what it used; then the other one fills the budget and
        // empties it, many times.
        drop(one);
        assert_eq!(lines.take().len(), 1);
        for _ in 0..1_000 {
            other.tell(keeps(1_000 * KIB));
            other.tell(keeps(0));
        }
        let said = lines.take();
        assert!(said.len() <= 10, "{} lines", said.len());
    });
}
