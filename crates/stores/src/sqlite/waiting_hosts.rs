//! Registers the hosts that wait for a wake-up through one store of this process, with the last wake-up that
//! each has seen.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_core::ids::{GroupId, HostId};
use ephor_core::time::Timestamp;
use tokio::sync::Notify;

use super::records::Wake;

type Key = (GroupId, HostId);

#[derive(Default)]
pub(super) struct Wakers {
    wakers: Mutex<BTreeMap<Key, Waker>>,
    /// Whether a waker was registered since the file was last read.
    newly_registered: AtomicBool,
}

struct Waker {
    /// It keeps one permit, so that a change between two waits is not missed.
    notify: Arc<Notify>,
    /// The number of the last wake that it was notified of, or that preceded its registration.
    last_wake: i64,
    /// The store's time when its host last wrote its record; none if the host only waits.
    last_heartbeat: Option<Timestamp>,
}

impl Wakers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Waker>> {
        // Nothing under this lock can panic half-way.
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The notification of a host, if its waker is registered.
    pub(super) fn find(&self, group: &GroupId, host: &HostId) -> Option<Arc<Notify>> {
        self.lock().get(&(group.clone(), host.clone())).map(|waker| waker.notify.clone())
    }

    /// Registers a waker for a host whose last wake was `last_wake`, unless there is one.
    pub(super) fn register(&self, group: &GroupId, host: &HostId, last_wake: i64) -> Arc<Notify> {
        let mut wakers = self.lock();
        self.entry(&mut wakers, group, host, last_wake).notify.clone()
    }

    /// Registers a waker for a host that writes its record. Removes the wakers whose host has no
    /// record newer than `oldest` and for which no call waits.
    pub(super) fn heartbeat(
        &self,
        group: &GroupId,
        host: &HostId,
        last_wake: i64,
        now: Timestamp,
        oldest: Timestamp,
    ) {
        let mut wakers = self.lock();
        self.entry(&mut wakers, group, host, last_wake).last_heartbeat = Some(now);
        wakers.retain(|_, waker| {
            waker.last_heartbeat.is_some_and(|last_heartbeat| last_heartbeat > oldest)
                || Arc::strong_count(&waker.notify) > 1
        });
    }

    fn entry<'a>(
        &self,
        wakers: &'a mut BTreeMap<Key, Waker>,
        group: &GroupId,
        host: &HostId,
        last_wake: i64,
    ) -> &'a mut Waker {
        wakers.entry((group.clone(), host.clone())).or_insert_with(|| {
            self.newly_registered.store(true, Ordering::SeqCst);
            Waker { notify: Arc::default(), last_wake, last_heartbeat: None }
        })
    }

    /// Whether a waker was registered since the last call: a wake may have preceded its registration.
    pub(super) fn take_newly_registered(&self) -> bool {
        self.newly_registered.swap(false, Ordering::SeqCst)
    }

    /// Notifies the hosts whose wakes this process has just committed.
    pub(super) fn notify(&self, group: &GroupId, woken: Vec<Wake>) {
        for Wake { host, number } in woken {
            self.notify_if_new(&(group.clone(), host), number);
        }
    }

    /// Notifies a host unless it has seen this wake already.
    pub(super) fn notify_if_new(&self, key: &Key, number: i64) {
        if let Some(waker) = self.lock().get_mut(key)
            && number > waker.last_wake
        {
            waker.last_wake = number;
            waker.notify.notify_one();
        }
    }

    /// Removes the waker of a retired host, and ends the calls that wait for it.
    pub(super) fn unregister(&self, group: &GroupId, host: &HostId) {
        if let Some(waker) = self.lock().remove(&(group.clone(), host.clone())) {
            waker.notify.notify_waiters();
            // For a call that has found the waker, and does not wait yet.
            waker.notify.notify_one();
        }
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.lock().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        let group = GroupId {
            namespace: "ns".parse().unwrap(),
            hub: "homes".parse().unwrap(),
            group: "alarms".parse().unwrap(),
        };
        (group, format!("{name}#0000000000000001").parse().unwrap())
    }

    fn notified(notify: &Notify) -> bool {
        let mut waiting = std::pin::pin!(notify.notified());
        waiting.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[test]
    fn each_wake_notifies_once_however_it_is_learnt() {
        let (wakers, (group, host)) = (Wakers::default(), key("a"));
        assert!(wakers.find(&group, &host).is_none());
        let waker = wakers.register(&group, &host, 7);
        assert!(wakers.take_newly_registered() && !wakers.take_newly_registered());
        wakers.register(&group, &host, 0);
        assert!(wakers.find(&group, &host).is_some() && !wakers.take_newly_registered());
        wakers.notify_if_new(&key("a"), 7);
        assert!(!notified(&waker));
        wakers.notify(&group, vec![Wake { host, number: 8 }]);
        wakers.notify_if_new(&key("a"), 8);
        assert!(notified(&waker) && !notified(&waker));
        wakers.notify_if_new(&key("a"), 9);
        wakers.notify_if_new(&key("b"), 99);
        assert!(notified(&waker) && !notified(&waker));
    }

    #[test]
    fn wakers_that_are_not_needed_are_removed() {
        let (wakers, (group, host)) = (Wakers::default(), key("a"));
        wakers.heartbeat(&group, &host, 0, Timestamp(100), Timestamp(0));
        let waiting = wakers.register(&group, &key("other").1, 0);
        wakers.heartbeat(&group, &key("b").1, 0, Timestamp(200), Timestamp(100));
        assert_eq!(wakers.keys(), [key("b"), key("other")]);
        drop(waiting);
        wakers.heartbeat(&group, &key("b").1, 0, Timestamp(201), Timestamp(100));
        assert_eq!(wakers.keys(), [key("b")]);
        wakers.unregister(&group, &key("b").1);
        assert_eq!(wakers.keys(), []);
    }
}
