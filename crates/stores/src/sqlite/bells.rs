//! Bells: who in this process waits to be woken, and which wake it has heard last.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_core::ids::{GroupId, HostId};
use ephor_core::time::Timestamp;
use tokio::sync::Notify;

use super::records::Wake;

type Key = (GroupId, HostId);

#[derive(Default)]
pub(super) struct Bells {
    bells: Mutex<BTreeMap<Key, Bell>>,
    /// Whether a bell was hung since the file was last looked at.
    fresh: AtomicBool,
}

struct Bell {
    /// A permit stays with it, so that a change between two waits is not missed.
    notify: Arc<Notify>,
    /// The last wake that it rang for, or that came before it was hung.
    heard: i64,
    /// When its host last wrote its record, by the store's clock; none if it only waits.
    beat: Option<Timestamp>,
}

impl Bells {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Bell>> {
        // Nothing under this lock can panic half-way.
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where this host waits, if its bell hangs.
    pub(super) fn find(&self, group: &GroupId, host: &HostId) -> Option<Arc<Notify>> {
        self.lock().get(&(group.clone(), host.clone())).map(|bell| bell.notify.clone())
    }

    /// Hangs a bell for a host whose last wake was `heard`, unless there is one.
    pub(super) fn hang(&self, group: &GroupId, host: &HostId, heard: i64) -> Arc<Notify> {
        let mut bells = self.lock();
        self.entry(&mut bells, group, host, heard).notify.clone()
    }

    /// The same for a host that writes its record. Takes down those that nobody needs: no host with a record
    /// newer than `oldest`, and nobody waiting.
    pub(super) fn beat(&self, group: &GroupId, host: &HostId, heard: i64, now: Timestamp, oldest: Timestamp) {
        let mut bells = self.lock();
        self.entry(&mut bells, group, host, heard).beat = Some(now);
        bells.retain(|_, bell| {
            bell.beat.is_some_and(|beat| beat > oldest) || Arc::strong_count(&bell.notify) > 1
        });
    }

    fn entry<'a>(
        &self,
        bells: &'a mut BTreeMap<Key, Bell>,
        group: &GroupId,
        host: &HostId,
        heard: i64,
    ) -> &'a mut Bell {
        bells.entry((group.clone(), host.clone())).or_insert_with(|| {
            self.fresh.store(true, Ordering::SeqCst);
            Bell { notify: Arc::default(), heard, beat: None }
        })
    }

    /// Whether a bell was hung since this was last asked: its host may have been woken before it hung.
    pub(super) fn take_fresh(&self) -> bool {
        self.fresh.swap(false, Ordering::SeqCst)
    }

    /// Rings for wakes that were just committed here.
    pub(super) fn ring(&self, group: &GroupId, woken: Vec<Wake>) {
        for Wake { host, number } in woken {
            self.look(&(group.clone(), host), number);
        }
    }

    /// Rings if this wake was not heard yet.
    pub(super) fn look(&self, key: &Key, number: i64) {
        if let Some(bell) = self.lock().get_mut(key)
            && number > bell.heard
        {
            bell.heard = number;
            bell.notify.notify_one();
        }
    }

    /// Takes the bell of a host that has retired down. Whoever waits at it would wait for ever.
    pub(super) fn take_down(&self, group: &GroupId, host: &HostId) {
        if let Some(bell) = self.lock().remove(&(group.clone(), host.clone())) {
            bell.notify.notify_waiters();
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

    fn rung(notify: &Notify) -> bool {
        let mut waiting = std::pin::pin!(notify.notified());
        waiting.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[test]
    fn each_wake_rings_once_however_it_is_learnt() {
        let (bells, (group, host)) = (Bells::default(), key("a"));
        assert!(bells.find(&group, &host).is_none());
        let bell = bells.hang(&group, &host, 7);
        assert!(bells.take_fresh() && !bells.take_fresh());
        bells.hang(&group, &host, 0);
        assert!(bells.find(&group, &host).is_some() && !bells.take_fresh());
        bells.look(&key("a"), 7);
        assert!(!rung(&bell));
        bells.ring(&group, vec![Wake { host, number: 8 }]);
        bells.look(&key("a"), 8);
        assert!(rung(&bell) && !rung(&bell));
        bells.look(&key("a"), 9);
        bells.look(&key("b"), 99);
        assert!(rung(&bell) && !rung(&bell));
    }

    #[test]
    fn bells_that_nobody_needs_are_taken_down() {
        let (bells, (group, host)) = (Bells::default(), key("a"));
        bells.beat(&group, &host, 0, Timestamp(100), Timestamp(0));
        let waiting = bells.hang(&group, &key("stranger").1, 0);
        bells.beat(&group, &key("b").1, 0, Timestamp(200), Timestamp(100));
        assert_eq!(bells.keys(), [key("b"), key("stranger")]);
        drop(waiting);
        bells.beat(&group, &key("b").1, 0, Timestamp(201), Timestamp(100));
        assert_eq!(bells.keys(), [key("b")]);
        bells.take_down(&group, &key("b").1);
        assert_eq!(bells.keys(), []);
    }
}
