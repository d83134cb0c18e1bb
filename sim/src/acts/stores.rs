//! Injects faults of the store that affect all hosts.

use std::time::Duration;

use super::Undo;
use crate::fleet::set;
use crate::run::Run;
use crate::scenario::{Act, Fault};
use crate::store::StoreFaults;

/// The most by which the clock of another server is off, in milliseconds.
const TEN_MINUTES: i64 = 600_000;
/// The least age of a copy that is restored.
const OLD_COPY: Duration = Duration::from_secs(60);

impl Run {
    pub(super) fn happens_to_the_store(&mut self, act: &Act) -> bool {
        let world = self.world.clone();
        let all = world.partitions();
        let common = match act.fault {
            Fault::StoreThrottles => StoreFaults { throttled: 0.7, ..StoreFaults::default() },
            Fault::StoreWakesNobody => StoreFaults { lost_notification: 1.0, ..StoreFaults::default() },
            Fault::StoreOutage => StoreFaults::cut_off(),
            Fault::StoreFailover => {
                let by = (act.target as i64 - 500) * TEN_MINUTES / 500;
                world.history.tell(format_args!("the store fails over, and its clock is {by} ms off"));
                world.cover("StoreFailover", &all);
                world.judge.store_clock_was_set();
                world.handle.change_clock(world.store_clock, |clock, _| clock.shift_wall(by));
                return true;
            }
            _ => return self.restore_a_copy(act),
        };
        world.history.tell(format_args!("{:?} for {:?}", act.fault, act.lasting));
        world.cover(&format!("{:?}", act.fault), &all);
        self.set_common(common);
        self.later(act.lasting, Undo::CommonStore);
        true
    }

    fn set_common(&mut self, faults: StoreFaults) {
        set(&self.world.common, faults);
        self.world.judge.store_is_bad_for_all(faults.is_bad());
    }

    pub(super) fn the_store_is_well(&mut self) {
        self.world.history.tell("the store is well again");
        self.set_common(StoreFaults::default());
    }

    fn restore_a_copy(&mut self, act: &Act) -> bool {
        let world = self.world.clone();
        let now = world.handle.now();
        let old = self.copies.iter().filter(|(at, _, _)| now.since(*at) >= OLD_COPY).collect::<Vec<_>>();
        if old.is_empty() {
            return false;
        }
        let (at, store, judge) = old[act.target % old.len()];
        world.history.tell(format_args!("the store is restored from a copy of {:?} ago", now.since(*at)));
        world.cover("StoreRestored", &world.partitions());
        world.store.restore(store);
        world.judge.store_was_restored(judge);
        true
    }
}
