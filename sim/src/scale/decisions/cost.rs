//! Measures how long one balancing decision takes, in wall-clock time: a figure to look at, on which no test
//! depends.

use std::hint::black_box;
use std::time::Duration;

use ephor::environment::SystemClock;
use ephor_core::balance::{self, Fleet};
use ephor_core::ids::PartitionId;
use ephor_core::rules::Rules;
use ephor_core::time::{Clock, Monotonic};

use super::{DecidingFleet, Size};

/// The number of measurements; the shortest counts, because it was disturbed least.
const MEASUREMENTS: usize = 9;

/// The time that a host of a large fleet computes at each scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The size of the fleet.
    pub size: Size,
    /// The time for reading members and partition slots from a view.
    pub read: Duration,
    /// The time for a plan when nothing is to be done.
    pub plan_at_rest: Duration,
    /// The time for a plan when a tenth has just joined.
    pub plan_joining: Duration,
}

/// Measures the cost.
pub fn cost(size: Size) -> Cost {
    let mut fleet = DecidingFleet::new(size, 1, false);
    let now = Monotonic(0);
    let join = |fleet: &mut DecidingFleet, count: usize| {
        for _ in 0..count {
            let number = fleet.hosts.len();
            fleet.start(now);
            fleet.hosts[number].heartbeat(&mut fleet.shared, now);
        }
    };
    join(&mut fleet, size.hosts);
    for index in 0..size.partitions {
        let request = fleet.hosts[index % size.hosts].first_claim(&fleet.shared, fleet.partitions[index]);
        fleet.shared.claim(&request, now);
    }
    let rest = read(&fleet.shared, &fleet.partitions);
    let read_time = shortest(|| drop(black_box(read(&fleet.shared, &fleet.partitions))));
    let plan_at_rest = shortest(|| drop(black_box(balance::plan(black_box(&rest)))));
    join(&mut fleet, size.tenth());
    let joining = read(&fleet.shared, &fleet.partitions);
    let plan_joining = shortest(|| drop(black_box(balance::plan(black_box(&joining)))));
    Cost { size, read: read_time, plan_at_rest, plan_joining }
}

fn read(shared: &super::SharedState, partitions: &[PartitionId]) -> Fleet {
    let liveness = shared.liveness(false);
    Fleet::read(shared.view(), &liveness, partitions, Duration::MAX, &Rules::default())
}

fn shortest(mut measured: impl FnMut()) -> Duration {
    let clock = SystemClock;
    let mut time = || {
        let start = clock.now();
        measured();
        clock.now().since(start)
    };
    (0..MEASUREMENTS).map(|_| time()).min().unwrap_or_default()
}
