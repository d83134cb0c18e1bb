//! Tests what a search for connections to evict costs.

use std::net::Ipv4Addr;

use futures_util::FutureExt;

use super::*;

const KIB: usize = 1 << 10;

fn at(seconds: u64) -> Monotonic {
    Monotonic::default() + Duration::from_secs(seconds)
}

/// The time of all searches, unless a test says otherwise.
const NOW: u64 = 1_000;
const NOBODY: [usize; 0] = [];

fn working(bytes: usize) -> Usage {
    Usage { bytes, ..Usage::default() }
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
