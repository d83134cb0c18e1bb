//! Injects faults of the store that affect all hosts.

use std::time::Duration;

use super::Undo;
use crate::fleet::set;
use crate::run::Run;
use crate::scenario::{Fault, Injection};
use crate::store::StoreFaults;

/// The most by which the clock of another server is off, in milliseconds.
const MAX_STORE_CLOCK_SHIFT_MS: i64 = 600_000;
/// The least age of a copy that is restored.
const MIN_COPY_AGE: Duration = Duration::from_secs(60);

impl Run {
    pub(super) fn inject_into_store(&mut self, injection: &Injection) -> bool {
        let world = self.world.clone();
        let all = world.partitions();
        let common = match injection.fault {
            Fault::StoreThrottles => StoreFaults { throttled: 0.7, ..StoreFaults::default() },
            Fault::StoreWakesNobody => StoreFaults { lost_notification: 1.0, ..StoreFaults::default() },
            Fault::StoreOutage => StoreFaults::cut_off(),
            Fault::StoreFailover => {
                let by = (injection.target as i64 - 500) * MAX_STORE_CLOCK_SHIFT_MS / 500;
                world.history.append(format_args!("the store fails over, and its clock is {by} ms off"));
                world.cover("StoreFailover", &all);
                world.judge.note_store_clock_set();
                world.handle.change_clock(world.store_clock, |clock, _| clock.shift_wall(by));
                return true;
            }
            Fault::StoreRestored => return self.restore_copy(injection),
            other => unreachable!("{other:?} is no fault of the store"),
        };
        world.history.append(format_args!("{:?} for {:?}", injection.fault, injection.lasting));
        world.cover(&format!("{:?}", injection.fault), &all);
        self.set_common(common);
        self.later(injection.lasting, Undo::CommonStore);
        true
    }

    fn set_common(&mut self, faults: StoreFaults) {
        set(&self.world.common, faults);
        self.world.judge.note_store_bad_for_all(faults.is_bad());
    }

    pub(super) fn end_store_faults(&mut self) {
        self.world.history.append("the store works again");
        self.set_common(StoreFaults::default());
    }

    fn restore_copy(&mut self, injection: &Injection) -> bool {
        let world = self.world.clone();
        let now = world.handle.now();
        let old = self.copies.iter().filter(|(at, _, _)| now.since(*at) >= MIN_COPY_AGE).collect::<Vec<_>>();
        if old.is_empty() {
            return false;
        }
        let (at, store, judge) = old[injection.target % old.len()];
        world.history.append(format_args!("the store is restored from a copy of {:?} ago", now.since(*at)));
        world.cover("StoreRestored", &world.partitions());
        world.store.restore(store);
        world.judge.note_store_restored(judge);
        true
    }
}
