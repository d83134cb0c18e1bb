//! Registers the hosts that wait for a wake-up through one store of this process, and encodes the
//! notifications that wake them.
//!
//! A notification carries a hash of the group and a hash of the host, or only that of the group. Hosts
//! with equal hashes wake each other, which costs a scan.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_core::ids::{GroupId, HostId};
use tokio::sync::Notify;

/// The hosts that a notification wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wake {
    group: u64,
    /// None for all hosts of the group.
    host: Option<u64>,
}

pub(super) fn host(group: &GroupId, host: &HostId) -> Wake {
    Wake { host: Some(hash(&host.to_string())), ..all(group) }
}

pub(super) fn all(group: &GroupId) -> Wake {
    Wake { group: hash(&format!("{} {} {}", group.namespace, group.hub, group.group)), host: None }
}

/// The notification channel of a schema.
pub(super) fn channel(schema: &str) -> String {
    format!("{schema}_wakes")
}

/// FNV-1a: the same hash on every machine and in every release.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Wake {
    pub(super) fn payload(&self) -> String {
        match self.host {
            Some(host) => format!("{:016x} {host:016x}", self.group),
            None => format!("{:016x}", self.group),
        }
    }

    pub(super) fn read(payload: &str) -> Option<Self> {
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        match payload.split_once(' ') {
            Some((group, host)) => Some(Self { group: number(group)?, host: Some(number(host)?) }),
            None => Some(Self { group: number(payload)?, host: None }),
        }
    }
}

/// The wakers of the hosts of this process. Each keeps one permit, so that a change between two waits
/// is not missed.
#[derive(Default)]
pub(super) struct Wakers {
    wakers: Mutex<BTreeMap<(u64, u64), Arc<Notify>>>,
}

impl Wakers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(u64, u64), Arc<Notify>>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the waker of a host, and returns it.
    pub(super) fn register(&self, group: &GroupId, id: &HostId) -> Arc<Notify> {
        let wake = host(group, id);
        self.lock().entry((wake.group, wake.host.unwrap_or(0))).or_default().clone()
    }

    pub(super) fn unregister(&self, group: &GroupId, id: &HostId) {
        let wake = host(group, id);
        if let Some(waker) = self.lock().remove(&(wake.group, wake.host.unwrap_or(0))) {
            // End the calls that wait for it.
            waker.notify_waiters();
            // For a call that has found the waker, and does not wait yet.
            waker.notify_one();
        }
    }

    pub(super) fn notify(&self, wake: Wake) {
        for ((group, host), waker) in &*self.lock() {
            if *group == wake.group && wake.host.is_none_or(|only| only == *host) {
                waker.notify_one();
            }
        }
    }

    pub(super) fn notify_all(&self) {
        self.lock().values().for_each(|waker| waker.notify_one());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ephor_core::ids::Incarnation;

    #[test]
    fn a_payload_reads_back_and_stays_what_it_is() {
        let group = GroupId {
            namespace: "ns".parse().unwrap(),
            hub: "homes".parse().unwrap(),
            group: "$Default".parse().unwrap(),
        };
        let ada = HostId { name: "ada".parse().unwrap(), incarnation: Incarnation(1) };
        for wake in [all(&group), host(&group, &ada)] {
            assert_eq!(Wake::read(&wake.payload()), Some(wake));
        }
        // Hosts of another release compute the same.
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        for payload in ["", "x", "1 x", "1 "] {
            assert_eq!(Wake::read(payload), None, "{payload}");
        }
    }
}
