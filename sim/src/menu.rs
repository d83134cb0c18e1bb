//! The catalogue of faults: everything that can go wrong, and an operator's actions.

use fastrand::Rng;

/// Declares the catalogue: each fault with its description and the percentage of runs that may use it.
macro_rules! menu {
    ($($(#[doc = $what:literal])+ $name:ident: $percent:literal,)+) => {
        /// One fault, or one action of an operator.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault {
            $($(#[doc = $what])+ $name,)+
        }

        impl Fault {
            /// All faults.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its description, one sentence.
            pub fn what(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($what),+).trim_ascii(),)+
                }
            }

            /// The percentage of runs that may use it.
            fn percent(self) -> u32 {
                match self {
                    $(Self::$name => $percent,)+
                }
            }
        }
    };
}

menu! {
    /// The process is gone, and comes back later under the same name.
    Crash: 60,
    /// The process stands still and comes back as a zombie; its clock has counted on.
    Pause: 60,
    /// The process stands still and so does its clock, as when a virtual machine is stopped.
    Freeze: 20,
    /// The machine sleeps for less than a lease, and its clock counts on.
    Suspend: 30,
    /// The process is stopped in good order, and started again later.
    Restart: 60,
    /// The process is stopped in good order, and started again with other options.
    Upgrade: 50,
    /// The process is stopped in good order, and comes back at once with code that does not open for a while.
    BrokenUpgrade: 50,
    /// The process is stopped with up to two minutes to spare, while calls take up to a minute, or closing takes longer.
    LongStop: 25,
    /// The process is stopped, and its store hangs for up to 15 seconds from that moment on.
    StoreHangsAtStop: 25,
    /// A host joins.
    Join: 60,
    /// A host joins under the name of one that runs.
    Namesake: 30,
    /// A host leaves in good order, for good.
    Leave: 60,
    /// A machine's clock runs two percent fast or slow.
    ClockDrift: 40,
    /// A machine's clock jumps ahead.
    ClockJump: 30,
    /// A machine's wall clock is set forward or back by up to an hour.
    WallClockSet: 40,
    /// The way to the store is slow, loses, fails and conflicts for a while.
    StoreTrouble: 60,
    /// The store is out of reach for a while: nothing gets there.
    StoreCutOff: 50,
    /// The store's answers are lost for a while: everything gets there and nothing comes back.
    StoreDeaf: 50,
    /// A host neither sees the others in the store nor is seen by them for a while; it renews and saves all the same.
    StoreBlind: 40,
    /// The store asks all hosts for fewer calls, and refuses most of them.
    StoreThrottles: 40,
    /// The store wakes nobody for a while.
    StoreWakesNobody: 40,
    /// The store is out of reach for all hosts at once.
    StoreOutage: 40,
    /// Another server takes the store over, and its clock is ahead or behind by up to ten minutes.
    StoreFailover: 25,
    /// The store is restored from a copy that is minutes old.
    StoreRestored: 8,
    /// The way to the hub is slow and breaks for a while.
    HubTrouble: 60,
    /// The hub is out of reach for a while.
    HubCutOff: 50,
    /// The hub's answers and events are lost for a while.
    HubDeaf: 40,
    /// The hub restarts: links are gone, epochs forgotten.
    HubRestart: 50,
    /// The links to one partition break.
    LinkCut: 60,
    /// The hub loses its power and did not wait for its disk: the newest events are gone, and numbers jump ahead.
    HubLosesPower: 30,
    /// What the hub says of its partitions lags behind what its receivers get, by up to 20 seconds.
    HubPropertiesLag: 40,
    /// The hub answers as a replica that lags by up to 20 seconds: links break, and nobody opens beyond the end that it shows.
    HubReplicaLags: 25,
    /// The hub is deleted and made anew, with as many partitions or fewer.
    HubRecreated: 8,
    /// The hub is out of reach for all, and comes back made anew, with more events than it had.
    HubRefilled: 8,
    /// The hub gets more partitions.
    HubGrows: 30,
    /// The oldest events of a partition are removed, read or not.
    Retention: 30,
    /// Many events come at once, and retention removes most of them while somebody reads what it fetched before.
    RetentionOvertakes: 20,
    /// Events in the middle of a partition are gone, and what follows them stays.
    HubDamaged: 20,
    /// Somebody else reads a partition in our group, under any name, with a newer epoch; now and then with the highest there are.
    ForeignReader: 40,
    /// Calls take up to 40 seconds.
    SlowProcessor: 50,
    /// The processor fails, panics, and does not open or close for a while.
    FailingProcessor: 50,
    /// A call blocks its thread.
    BlockedProcessor: 40,
    /// Calls do not return until they are given up.
    HangingProcessor: 40,
    /// The processor checkpoints late, twice, and after it was closed.
    OddCheckpoints: 50,
    /// A person moves the position of a partition.
    Seek: 40,
    /// A person drains a host for a while.
    Drain: 40,
    /// A person holds a partition on its host for a while.
    Hold: 40,
}

/// Draws the faults of one run: only some of the catalogue, so that rare combinations have room.
pub fn choose(random: &mut Rng) -> Vec<Fault> {
    let mut chosen: Vec<Fault> =
        Fault::ALL.iter().copied().filter(|fault| random.u32(0..100) < fault.percent()).collect();
    if chosen.is_empty() {
        chosen.push(Fault::Crash);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_chosen_by_some_runs_and_none_by_all() {
        let mut random = Rng::with_seed(1);
        let menus: Vec<Vec<Fault>> = (0..1_000).map(|_| choose(&mut random)).collect();
        for fault in Fault::ALL {
            let runs = menus.iter().filter(|menu| menu.contains(fault)).count();
            assert!((20..900).contains(&runs), "{fault:?}: {runs}");
            assert!(fault.what().ends_with('.') && !fault.what().starts_with(' '), "{fault:?}");
        }
    }
}
