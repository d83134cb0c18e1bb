//! Tests of the memory budget's decisions: which connections are evicted, the cost of finding them, and the
//! limit of all connections together.

use std::net::Ipv4Addr;

use futures_util::FutureExt;

use super::*;
use crate::config::{DEFAULT_BUFFERED_BYTES, DEFAULT_CONNECTIONS};
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn at(seconds: u64) -> Monotonic {
    Monotonic::default() + Duration::from_secs(seconds)
}

/// The time of all searches, unless a test says otherwise.
const NOW: u64 = 1_000;
const NOBODY: [usize; 0] = [];

fn working(bytes: usize) -> Usage {
    Usage { bytes, ..Usage::default() }
}

fn unended(bytes: usize, since: u64) -> Usage {
    Usage { bytes, unended: bytes, since: Some(at(since)), ..Usage::default() }
}

fn unread(bytes: usize, since: u64) -> Usage {
    Usage { bytes, output: bytes, output_since: Some(at(since)), ..Usage::default() }
}

/// A budget and its connections, numbered from 0.
struct Connections {
    state: State,
    evicted: Vec<Arc<Notify>>,
}

impl Connections {
    fn new(max: usize, usages: impl IntoIterator<Item = Usage>) -> Self {
        let mut connections = Self { state: State::new(max), evicted: Vec::new() };
        for usage in usages {
            connections.evicted.push(Arc::default());
            connections.set(connections.evicted.len() - 1, usage);
        }
        connections
    }

    fn set(&mut self, number: usize, usage: Usage) {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        self.state.set(number as u64, peer, &self.evicted[number], usage);
    }

    /// Searches once; returns those who have to go.
    fn evict(&mut self, seconds: u64) -> Vec<usize> {
        self.state.evict(0, at(seconds));
        let goes = |number: &usize| self.evicted[*number].notified().now_or_never().is_some();
        (0..self.evicted.len()).filter(goes).collect()
    }
}

/// The most that all connections buffer together, if each adds at most `step` bytes in a turn.
fn bound(max: usize, connections: usize, step: usize) -> usize {
    max + max / 4 + connections * (UNCOUNTED + LITTLE + step)
}

/// Numbers that look random, and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

#[test]
fn what_others_keep_within_their_part_costs_nobody_its_connection() {
    // Together they keep 480 KiB for long, and each less than its part of 45 KiB.
    let crowd = (0..20).map(|_| unended(24 * KIB, 1));
    // Most of the rest is on its way to the disk.
    let rest = [working(460 * KIB), unended(60 * KIB, NOW - 10)];
    let mut connections = Connections::new(1_000 * KIB, crowd.chain(rest));
    assert_eq!(connections.state.used, 1_000 * KIB);
    assert_eq!(connections.evict(NOW), NOBODY, "closing it would free a tenth of what is kept");
    // Without the crowd it is the same.
    let mut connections = Connections::new(520 * KIB, rest);
    assert_eq!(connections.evict(NOW), NOBODY);
}

#[test]
fn somebody_goes_although_most_of_what_is_kept_is_within_the_parts_of_others() {
    // Nothing gets less by itself, and those who may be closed keep less than half of the budget.
    let within = (0..20).map(|_| unread(39 * KIB, NOW - 3));
    let beyond = (0..5).map(|number| unread(96 * KIB, NOW - 2 - number));
    let mut connections = Connections::new(1_000 * KIB, within.chain(beyond));
    assert!(connections.state.used >= connections.state.end());
    assert_eq!(connections.evict(NOW), [24], "the oldest, and then there is room for modest connections");
    assert_eq!(connections.evict(NOW + 10), [22, 23], "now their output is stale");
    assert!(connections.state.staying() < 1_000 * KIB);
}

#[test]
fn senders_are_not_closed_while_there_is_room_for_them_beside_a_crowd_within_its_parts() {
    let crowd = || (0..470).map(|_| unended(64 * KIB, 1));
    let senders = |count| (0..count).map(|number| unended(MIB, NOW - 1 - number));
    let mut connections = Connections::new(32 * MIB, crowd().chain(senders(3)));
    assert!(connections.state.used >= 32 * MIB && !connections.state.must_wait(MIB, 64 * KIB));
    assert_eq!(connections.evict(NOW), NOBODY);
    // They take most of what the crowd leaves of the budget and its quarter.
    let mut connections = Connections::new(32 * MIB, crowd().chain(senders(6)));
    assert_eq!(connections.evict(NOW), [475], "the oldest");
}

#[test]
fn memory_that_only_peers_can_end_never_leaves_no_room_and_nobody_is_closed_within_its_part() {
    let mut numbers = Numbers(17);
    for round in 0..300 {
        let (count, most) = (1 + numbers.below(120), 17 + numbers.below(400));
        let usages: Vec<_> = (0..count)
            .map(|_| match numbers.below(2) {
                0 => unended((16 + numbers.below(most)) * KIB, numbers.below(900) as u64),
                _ => unread((16 + numbers.below(most)) * KIB, numbers.below(900) as u64),
            })
            .collect();
        let mut connections = Connections::new(1_000 * KIB, usages.iter().copied());
        for search in 0..count as u64 + 1 {
            let part = connections.state.part();
            let gone = connections.evict(NOW + search);
            for number in gone {
                let kept = usages[number].bytes;
                assert!(kept >= part, "round {round}: {kept} bytes are within the part of {part}");
                connections.set(number, Usage::default());
            }
        }
        assert!(connections.state.used < connections.state.end(), "round {round}: {:?}", connections.state);
    }
}

#[test]
fn a_search_looks_at_every_connection_twice_at_most_however_many_have_to_go() {
    const COUNT: usize = 3_000;
    let mut connections = Connections::new(1_000 * KIB, (0..COUNT).map(|_| unread(100 * KIB, 1)));
    assert_eq!(connections.evict(NOW).len(), COUNT - 9);
    assert!(connections.state.visited <= 2 * COUNT, "{} visits", connections.state.visited);
}

#[test]
fn a_search_that_found_nobody_is_not_repeated_at_every_report() {
    const COUNT: usize = 3_000;
    // It is used up for all, and gets less by itself.
    let mut connections = Connections::new(COUNT * 10 * KIB, (0..COUNT).map(|_| working(20 * KIB)));
    for _ in 0..COUNT {
        assert_eq!(connections.evict(NOW), NOBODY);
    }
    assert!(connections.state.visited <= 2 * COUNT, "{} visits", connections.state.visited);
    // More is used than at the last search, and it is kept by peers.
    connections.set(7, unread(COUNT * 10 * KIB, NOW));
    assert_eq!(connections.evict(NOW), [7]);
}

#[test]
fn all_connections_together_stay_within_the_bound_whatever_they_do() {
    for (max, count, step) in [(32 * MIB, 50, 256 * KIB), (32 * MIB, 2_000, 16 * KIB), (MIB, 300, 64 * KIB)] {
        let (mut numbers, mut largest) = (Numbers(count as u64), 0);
        let mut connections = Connections::new(max, (0..count).map(|_| working(0)));
        let (mut bytes, mut reported, mut waits) = (vec![0; count], vec![0_usize; count], vec![false; count]);
        for round in 0..200 {
            // All that may go on buffer more before any of them reports it.
            for number in (0..count).filter(|number| !waits[*number]) {
                bytes[number] += numbers.below(step + 1);
            }
            let all = bytes.iter().sum::<usize>();
            assert!(all <= bound(max, count, step), "round {round}: {all} bytes of {count} connections");
            largest = largest.max(all);
            // The disk and the peers take something from some of them, and less and less.
            if round < 100 {
                (0..count / 10).for_each(|_| bytes[numbers.below(count)] /= 2);
            }
            for number in 0..count {
                if waits[number] || bytes[number].abs_diff(reported[number]) >= UNCOUNTED {
                    reported[number] = if bytes[number] < UNCOUNTED { 0 } else { bytes[number] };
                    connections.set(number, working(reported[number]));
                    waits[number] = connections.state.must_wait(reported[number], 0);
                }
            }
        }
        assert!(largest > connections.state.end(), "those who buffer little come on top: {largest} bytes");
    }
    // As the configuration says.
    assert_eq!(bound(DEFAULT_BUFFERED_BYTES, DEFAULT_CONNECTIONS, 0), 640 * MIB);
}
