//! What the tests of the hub share.
#![allow(dead_code, reason = "each test uses its own part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ephor_core::time::{Clock, Monotonic, Timestamp};

/// A clock that moves on by a step whenever it is asked for the wall time, or stands where it is put.
#[derive(Debug)]
pub(crate) struct Ticking {
    wall: AtomicI64,
    step: i64,
}

impl Ticking {
    pub(crate) fn new(start: i64, step: i64) -> Arc<Self> {
        Arc::new(Self { wall: AtomicI64::new(start), step })
    }

    pub(crate) fn set(&self, wall: i64) {
        self.wall.store(wall, Ordering::SeqCst);
    }
}

impl Clock for Ticking {
    fn now(&self) -> Monotonic {
        let wall = self.wall.load(Ordering::SeqCst);
        Monotonic(u64::try_from(wall).unwrap_or(0).saturating_mul(1_000_000))
    }

    fn wall(&self) -> Timestamp {
        Timestamp(self.wall.fetch_add(self.step, Ordering::SeqCst))
    }
}
