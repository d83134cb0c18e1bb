//! Counts the memory of all connections, and decides which connections have to wait and which are closed.
//! Pure code without a lock or a clock.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ephor_core::time::Monotonic;
use tokio::sync::Notify;

use super::usage::{STALE_AFTER, Usage};
use super::{LITTLE, ONE_OF_EACH, UNCOUNTED};

/// The interval at which connections are searched for stale memory.
const SEARCH_EVERY: Duration = Duration::from_millis(100);

/// The warning that memory is used up names this many addresses, those that use most.
const NAMED: usize = 3;

/// A change between full and not full that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressure {
    /// The budget is used up: connections that buffer much may not buffer more.
    Full,
    /// There is room for all again.
    Room,
}

#[derive(Debug)]
pub(super) struct State {
    /// The budget.
    pub(super) max: usize,
    pub(super) used: usize,
    /// The part of `used` of the connections that are being evicted.
    pub(super) leaving: usize,
    holders: BTreeMap<u64, Holder>,
    /// The last search for connections to evict.
    searched: Option<Search>,
    /// It was full, and since then a quarter has not been free.
    full: bool,
    /// A warning was logged that it is full.
    pub(super) warned: bool,
    /// The number of connections that searches have looked at.
    #[cfg(test)]
    pub(super) visited: usize,
}

/// A search for connections to evict.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// The time of the next one.
    again_at: Monotonic,
    /// The bytes that were used and wanted when it had evicted all that it could.
    left: usize,
}

#[derive(Debug)]
struct Holder {
    peer: SocketAddr,
    usage: Usage,
    evicted: Arc<Notify>,
    leaving: bool,
}

impl State {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            used: 0,
            leaving: 0,
            holders: BTreeMap::new(),
            searched: None,
            full: false,
            warned: false,
            #[cfg(test)]
            visited: 0,
        }
    }

    /// The bytes from which on only connections that buffer [`LITTLE`] may buffer more: the budget, and a
    /// quarter that is set aside for modest connections.
    pub(super) fn end(&self) -> usize {
        self.max + self.max / 4
    }

    /// The number of connections that count.
    pub(super) fn connections(&self) -> usize {
        self.holders.len()
    }

    /// The bytes of the connections that are not being evicted.
    pub(super) fn staying(&self) -> usize {
        self.used - self.leaving
    }

    pub(super) fn set(&mut self, number: u64, peer: SocketAddr, evicted: &Arc<Notify>, usage: Usage) {
        if let Some(before) = self.holders.get_mut(&number) {
            self.used -= before.usage.bytes;
            if before.leaving {
                self.leaving = self.leaving - before.usage.bytes + usage.bytes;
            }
            before.usage = usage;
        } else if usage.bytes > 0 {
            let evicted = evicted.clone();
            self.holders.insert(number, Holder { peer, usage, evicted, leaving: false });
        }
        self.used += usage.bytes;
        if usage.bytes == 0 {
            self.holders.remove(&number);
        }
    }

    /// The part of each connection in the budget.
    fn part(&self) -> usize {
        (self.max / self.holders.len().max(1)).max(UNCOUNTED)
    }

    /// True if a connection that buffers `bytes` has to wait before it buffers `more`.
    pub(super) fn must_wait(&self, bytes: usize, more: usize) -> bool {
        let (all, own) = (self.used + more, bytes + more);
        if all < self.max || own <= LITTLE.min(self.part()) {
            return false;
        }
        !self.is_modest(own) || all >= self.end()
    }

    /// True if this is within the part of a connection, or no more than one message and one read.
    pub(super) fn is_modest(&self, bytes: usize) -> bool {
        bytes <= self.part().max(ONE_OF_EACH.min(self.max / 12))
    }

    /// True if waiting connections may go on, because less is used than before.
    pub(super) fn is_relief_since(&self, before: usize) -> bool {
        let left_the_end = before + ONE_OF_EACH >= self.end() && self.used < self.end();
        self.used < before && (self.used < self.max || left_the_end)
    }

    /// Evicts connections whose peers do not free memory, while the budget is used up. Somebody waits for
    /// `wanted` bytes.
    pub(super) fn evict(&mut self, wanted: usize, now: Monotonic) {
        let (end, needed) = (self.end(), self.staying() + wanted);
        if let Some(last) = self.searched
            && now < last.again_at
            && (needed < end || needed <= last.left)
        {
            return;
        }
        if needed >= end {
            self.evict_until(self.max.max(end - wanted.min(end)), None);
        }
        self.evict_until(self.max, Some(now.before(STALE_AFTER)));
        self.searched = Some(Search { again_at: now + SEARCH_EVERY, left: self.staying() + wanted });
    }

    /// Evicts connections until the others use less than `enough`, the oldest first. It can close only those
    /// that keep at least their part, and does so only while they keep at least half of what the others leave:
    /// otherwise most of that shrinks by itself, or is free. Output counts that has waited since `stale`, or
    /// all of it without a time.
    fn evict_until(&mut self, enough: usize, stale: Option<Monotonic>) {
        if self.staying() < enough {
            return;
        }
        let part = self.part();
        let (mut closable, mut protected, mut candidates) = (0, 0, Vec::new());
        for (number, holder) in self.holders.iter().filter(|(_, holder)| !holder.leaving) {
            let (bytes, since) = holder.usage.kept_by_peer(stale);
            if bytes >= part {
                closable += bytes;
                candidates.push((since, Reverse(bytes), *number));
            } else {
                protected += bytes;
            }
        }
        #[cfg(test)]
        {
            self.visited += self.holders.len();
        }
        let half = self.end().saturating_sub(protected) / 2;
        if closable < half {
            return;
        }
        candidates.sort_unstable();
        for (_, Reverse(bytes), number) in candidates {
            if self.staying() < enough || closable < half {
                return;
            }
            let Some(holder) = self.holders.get_mut(&number) else { continue };
            closable -= bytes;
            holder.leaving = true;
            self.leaving += holder.usage.bytes;
            holder.evicted.notify_one();
        }
    }

    /// The change to log, if there is one. There is room again only when a quarter is free, because full and
    /// not full alternate quickly.
    pub(super) fn pressure(&mut self, is_full: bool) -> Option<Pressure> {
        let is_over = self.used <= self.max - self.max / 4;
        match self.full {
            false if is_full => {
                self.full = true;
                Some(Pressure::Full)
            }
            true if !is_full && is_over => {
                self.full = false;
                Some(Pressure::Room)
            }
            _ => None,
        }
    }

    /// The addresses that use most, with their connections and bytes.
    pub(super) fn largest(&self) -> String {
        let mut by_address: BTreeMap<IpAddr, (usize, usize)> = BTreeMap::new();
        for holder in self.holders.values() {
            let (bytes, connections) = by_address.entry(holder.peer.ip()).or_default();
            (*bytes, *connections) = (*bytes + holder.usage.bytes, *connections + 1);
        }
        let mut largest: Vec<_> = by_address.into_iter().collect();
        largest.sort_by_key(|(_, used)| Reverse(*used));
        let reported = largest.iter().take(NAMED).map(|(address, (bytes, connections))| {
            let s = if *connections == 1 { "" } else { "s" };
            format!("{address}: {bytes} bytes of {connections} connection{s}")
        });
        reported.collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests;
