//! Measures the cost of one decision, by this machine's clock: for people, not for tests.

use std::hint::black_box;
use std::time::Duration;

use ephor::environment::SystemClock;
use ephor_core::balance::{self, Fleet};
use ephor_core::ids::PartitionId;
use ephor_core::rules::Rules;
use ephor_core::time::{Clock, Monotonic};

use super::{Play, Size};

/// The number of measurements; the shortest counts, because it was disturbed least.
const TIMES: usize = 9;

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
    let mut fleet = Play::new(size, 1, false);
    let now = Monotonic(0);
    let join = |fleet: &mut Play, count: usize| {
        for _ in 0..count {
            let number = fleet.hosts.len();
            fleet.start(now);
            fleet.hosts[number].heartbeat(&mut fleet.board, now);
        }
    };
    join(&mut fleet, size.hosts);
    for index in 0..size.partitions {
        let request = fleet.hosts[index % size.hosts].first_claim(&fleet.board, fleet.partitions[index]);
        fleet.board.claim(&request, now);
    }
    let rest = read(&fleet.board, &fleet.partitions);
    let read_time = shortest(|| drop(black_box(read(&fleet.board, &fleet.partitions))));
    let plan_at_rest = shortest(|| drop(black_box(balance::plan(black_box(&rest)))));
    join(&mut fleet, size.tenth());
    let joining = read(&fleet.board, &fleet.partitions);
    let plan_joining = shortest(|| drop(black_box(balance::plan(black_box(&joining)))));
    Cost { size, read: read_time, plan_at_rest, plan_joining }
}

fn read(board: &super::Board, partitions: &[PartitionId]) -> Fleet {
    let judgement = board.judge(false);
    Fleet::read(board.view(), &judgement, partitions, Duration::MAX, &Rules::default())
}

fn shortest(mut act: impl FnMut()) -> Duration {
    let clock = SystemClock;
    let mut time = || {
        let start = clock.now();
        act();
        clock.now().since(start)
    };
    (0..TIMES).map(|_| time()).min().unwrap_or_default()
}
