//! The catalogue of faults that the simulation injects, and of operator actions.

use fastrand::Rng;

/// Declares the catalogue: each fault with its description and the percentage of runs that may use it.
macro_rules! fault_catalog {
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

fault_catalog! {
    /// The process is gone, and comes back later under the same name.
    Crash: 60,
    /// The process is paused and comes back as a zombie; its clock has run on.
    PauseProcess: 60,
    /// The process is paused and its clock stops, as when a virtual machine is stopped.
    Freeze: 20,
    /// The machine sleeps for less than a lease, and its clock runs on.
    Suspend: 30,
    /// The process is stopped gracefully, and started again later.
    Restart: 60,
    /// The process is stopped gracefully, and started again with other options.
    Upgrade: 50,
    /// The process is stopped gracefully, and comes back at once with a processor that does not open for a while.
    BrokenUpgrade: 50,
    /// The process is stopped with up to two minutes to spare, while calls take up to a minute, or closing takes longer.
    LongStop: 25,
    /// The process is stopped, and its store hangs for up to 15 seconds from that moment on.
    StoreHangsAtStop: 25,
    /// A host joins.
    Join: 60,
    /// A host joins under the name of one that runs.
    Namesake: 30,
    /// A host leaves gracefully, for good.
    Leave: 60,
    /// A machine's clock runs two percent fast or slow.
    ClockDrift: 40,
    /// A machine's clock jumps ahead.
    ClockJump: 30,
    /// A machine's wall clock is set forward or back by up to an hour.
    WallClockSet: 40,
    /// The connection to the store is slow, loses calls, fails and conflicts for a while.
    StoreTrouble: 60,
    /// The store is unreachable for a while: no request arrives.
    StoreCutOff: 50,
    /// The store's answers are lost for a while: every request arrives, and no answer comes back.
    StoreAnswersLost: 50,
    /// A host neither sees the others in the store nor is seen by them for a while; it still renews and saves.
    HostUnseenInStore: 40,
    /// The store asks all hosts for fewer calls, and refuses most of them.
    StoreThrottles: 40,
    /// The store notifies no host for a while.
    StoreWakesNobody: 40,
    /// The store is unreachable for all hosts at once.
    StoreOutage: 40,
    /// Another server takes the store over, and its clock is ahead or behind by up to ten minutes.
    StoreFailover: 25,
    /// The store is restored from a copy that is minutes old.
    StoreRestored: 8,
    /// The connection to the hub is slow and breaks for a while.
    HubTrouble: 60,
    /// The hub is unreachable for a while.
    HubCutOff: 50,
    /// The hub's answers and events are lost for a while.
    HubAnswersLost: 40,
    /// The hub restarts: links are gone, epochs forgotten.
    HubRestart: 50,
    /// The links to one partition break.
    LinkCut: 60,
    /// The hub loses power and did not wait for its disk: the newest events are gone, and numbers jump ahead.
    HubLosesPower: 30,
    /// The properties of the hub's partitions lag behind the events that its receivers get, by up to 20 seconds.
    HubPropertiesLag: 40,
    /// The hub answers as a replica that lags by up to 20 seconds: links break, and no receiver opens beyond the end that it shows.
    HubReplicaLags: 25,
    /// The hub is deleted and created again, with as many partitions or fewer.
    HubRecreated: 8,
    /// The hub is unreachable for all hosts, and comes back, created again, with more events than it had.
    HubRefilled: 8,
    /// The hub gets more partitions.
    HubGrows: 30,
    /// The oldest events of a partition are removed, read or not.
    Retention: 30,
    /// Many events come at once, and retention removes most of them while a host reads what it fetched before.
    RetentionOvertakes: 20,
    /// Events in the middle of a partition are gone, and the events after them stay.
    HubDamaged: 20,
    /// A foreign reader reads a partition in our group, under any name, with a newer epoch; now and then with the highest there are.
    ForeignReader: 40,
    /// Calls take up to 40 seconds.
    SlowProcessor: 50,
    /// The processor fails, panics, and does not open or close for a while.
    FailingProcessor: 50,
    /// A call blocks its thread.
    BlockedProcessor: 40,
    /// Calls do not return until they are cancelled.
    HangingProcessor: 40,
    /// The processor checkpoints late, twice, and after it was closed.
    OddCheckpoints: 50,
    /// An operator moves the position of a partition.
    Seek: 40,
    /// An operator drains a host for a while.
    Drain: 40,
    /// An operator holds a partition on its host for a while.
    PausePartition: 40,
    /// The process is told to stop within two minutes, and soon after within seconds, while calls take up to a minute.
    StopTwice: 15,
    /// The process is stopped, and the caller of the stop goes away; another one asks for the report later.
    StopCallerLeaves: 15,
    /// The process is gone, and comes back at once; it is told to stop while it starts, and is started again.
    StopDuringStart: 15,
    /// Many events come at once, and every second one of them is gone, as in a log that was compacted.
    HubCompacted: 10,
}

/// The faults that are drawn from a random stream of their own: they came to the catalogue later, and the other
/// faults of a seed stay as they were.
const DRAWN_APART: &[Fault] =
    &[Fault::StopTwice, Fault::StopCallerLeaves, Fault::StopDuringStart, Fault::HubCompacted];

/// Draws the faults of one run: only some of the catalogue, so that rare combinations have room.
pub fn choose(random: &mut Rng) -> Vec<Fault> {
    let first = Fault::ALL.iter().filter(|fault| !DRAWN_APART.contains(fault));
    let mut chosen = draw(random, first);
    if chosen.is_empty() {
        chosen.push(Fault::Crash);
    }
    chosen
}

/// Draws the faults of one run that have a random stream of their own; most runs have none of them.
pub fn choose_apart(random: &mut Rng) -> Vec<Fault> {
    draw(random, DRAWN_APART.iter())
}

fn draw<'a>(random: &mut Rng, faults: impl Iterator<Item = &'a Fault>) -> Vec<Fault> {
    faults.copied().filter(|fault| random.u32(0..100) < fault.percent()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_chosen_by_some_runs_and_none_by_all() {
        let mut random = Rng::with_seed(1);
        let both = |random: &mut Rng| [choose(random), choose_apart(random)].concat();
        let catalogs: Vec<Vec<Fault>> = (0..1_000).map(|_| both(&mut random)).collect();
        for fault in Fault::ALL {
            let runs = catalogs.iter().filter(|catalog| catalog.contains(fault)).count();
            assert!((20..900).contains(&runs), "{fault:?}: {runs}");
            assert!(fault.what().ends_with('.') && !fault.what().starts_with(' '), "{fault:?}");
        }
    }
}
