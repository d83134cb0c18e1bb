//! Generates the scenario of a seed: the fleet, its options, its user code, and all faults.

use std::time::Duration;

use ephor::{
    Backoff, CheckpointPolicy, EventProcessorOptions, FailurePolicy, OnInvalidPosition,
    PartitionManagerOptions, StartPosition,
};
use fastrand::Rng;

use crate::fault_catalog;
pub use crate::fault_catalog::Fault;

/// The time for which faults are injected: ten simulated minutes.
pub const INJECTION_TIME: Duration = Duration::from_secs(600);
/// The time that the fleet has to come to rest afterwards.
pub const SETTLE_TIME: Duration = Duration::from_secs(300);
/// The time after that in which nothing may move.
pub const STILL_TIME: Duration = Duration::from_secs(120);

/// The most injections of faults that are drawn apart.
const MAX_INJECTIONS_APART: usize = 4;

/// A fault with its time and duration. The host or partition that it hits is drawn as a number, modulo those
/// that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    /// The time, from the start.
    pub at: Duration,
    /// The fault.
    pub fault: Fault,
    /// A drawn number that selects the host or partition, and the severity.
    pub target: usize,
    /// The duration.
    pub lasting: Duration,
}

/// The state of the fleet that stays when all other faults are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// No fault is left.
    Healthy,
    /// An operator has drained one host for good.
    OneDrained,
    /// One host's processor does not open any more.
    OneBroken,
}

/// The options of a host, and the behaviour of its user code.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The most events in one call.
    pub max_batch_size: usize,
    /// The checkpoint policy of the host.
    pub checkpoint: CheckpointPolicy,
    /// The failure policy of the host.
    pub failure: FailurePolicy,
    /// A limit on calls, in some runs.
    pub process_timeout: Option<Duration>,
    /// The duration of a lease.
    pub lease: Duration,
    /// The most partitions that one host may own, in some runs.
    pub max_partitions: Option<u32>,
}

/// Everything a run depends on besides the interleaving.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed it was drawn from.
    pub seed: u64,
    /// Hosts at the start, 2 to 8.
    pub hosts: usize,
    /// Partitions, 2 to 32.
    pub partitions: u32,
    /// Events sent while faults are injected, at least 2,000.
    pub events: u32,
    /// The faults, in order of time; at least 20.
    pub injections: Vec<Injection>,
    /// The options of the hosts.
    pub config: HostConfig,
    /// Their options after an upgrade.
    pub upgraded: HostConfig,
    /// The longest call without faults.
    pub call: Duration,
    /// The probability that a call checkpoints manually.
    pub by_hand: f64,
    /// True if the store can notify hosts.
    pub wakes: bool,
    /// The longest way to the store: one way takes up to this long.
    pub distance: Duration,
    /// The position at which a group without checkpoints begins.
    pub initial: StartPosition,
    /// The reaction to a position that does not exist.
    pub on_invalid: OnInvalidPosition,
    /// The state of the fleet after the faults.
    pub ending: Ending,
    /// True if the group is shared with processors that know no epochs: hosts read with epoch 0, and have the
    /// store confirm their lease first.
    pub shared_with_other_sdks: bool,
    /// True if receivers attach again by themselves when their links break.
    pub reattaches: bool,
    /// True if the hub fences readers by their epochs. Otherwise all read side by side, and hosts have the
    /// store confirm their lease first.
    pub hub_fences: bool,
}

impl Scenario {
    /// Draws the scenario of this seed.
    pub fn draw(seed: u64) -> Self {
        // A random stream of its own: the executor draws from another.
        let mut random = Rng::with_seed(seed ^ 0x5ce7_a110);
        let config = HostConfig::draw(&mut random);
        let upgraded = HostConfig { max_partitions: config.max_partitions, ..HostConfig::draw(&mut random) };
        Self {
            seed,
            hosts: random.usize(2..=8),
            partitions: random.u32(2..=32),
            events: random.u32(2_000..=4_000),
            injections: draw_injections(seed, &mut random),
            config,
            upgraded,
            call: Duration::from_millis(random.u64(1..=400)),
            by_hand: if random.bool() { 0.0 } else { 0.3 },
            wakes: random.u32(0..4) != 0,
            distance: Duration::from_millis(if random.bool() { 0 } else { random.u64(1..=400) }),
            initial: if random.u32(0..5) == 0 { StartPosition::Latest } else { StartPosition::Earliest },
            on_invalid: match random.u32(0..10) {
                0..=6 => OnInvalidPosition::Earliest,
                7..=8 => OnInvalidPosition::Latest,
                _ => OnInvalidPosition::Stop,
            },
            ending: match random.u32(0..10) {
                0..=6 => Ending::Healthy,
                7 => Ending::OneDrained,
                _ => Ending::OneBroken,
            },
            shared_with_other_sdks: random.u32(0..8) == 0,
            // A random stream of its own, so that the other choices of a seed stay as they were.
            reattaches: Rng::with_seed(seed ^ 0x7ea7_7ac4).u32(0..4) == 0,
            // The same.
            hub_fences: Rng::with_seed(seed ^ 0x0fe9_ce50).u32(0..8) != 0,
        }
    }
}

impl HostConfig {
    fn draw(random: &mut Rng) -> Self {
        let backoff = Backoff { first: Duration::from_millis(200), max: Duration::from_secs(5) };
        let failure = match random.u32(0..10) {
            0..=5 => FailurePolicy::Retry(backoff),
            6..=8 => FailurePolicy::SkipAfter { attempts: random.u32(1..=3), backoff },
            _ => FailurePolicy::Close { pause: Duration::from_secs(random.u64(1..=10)) },
        };
        let checkpoint = match random.u32(0..5) {
            0 => CheckpointPolicy::default(),
            1 => CheckpointPolicy::manual(),
            2 => CheckpointPolicy::every_events(random.u64(1..=20)),
            3 => CheckpointPolicy::every(Duration::from_secs(random.u64(1..=10))),
            _ => CheckpointPolicy::every(Duration::from_secs(5)).or_events(random.u64(5..=50)),
        };
        Self {
            max_batch_size: random.usize(1..=20),
            checkpoint: checkpoint.spaced(Duration::from_millis([0, 100, 3_000][random.usize(0..3)])),
            failure,
            process_timeout: (random.u32(0..3) == 0).then(|| Duration::from_secs(random.u64(5..=20))),
            lease: Duration::from_secs([20, 30, 30, 30, 60][random.usize(0..5)]),
            max_partitions: (random.u32(0..10) == 0).then(|| random.u32(1..=8)),
        }
    }

    /// The options of the host that concern the events of a partition.
    pub fn options(&self, scenario: &Scenario) -> EventProcessorOptions {
        EventProcessorOptions {
            max_batch_size: self.max_batch_size,
            prefetch_count: self.max_batch_size * 3,
            checkpoint: self.checkpoint.clone(),
            failure: self.failure,
            process_timeout: self.process_timeout,
            initial_position: scenario.initial.clone().into(),
            on_invalid_position: scenario.on_invalid,
            ..EventProcessorOptions::default()
        }
    }

    /// The options of the host that concern ownership.
    pub fn manager_options(&self) -> PartitionManagerOptions {
        PartitionManagerOptions {
            lease_duration: self.lease,
            renew_interval: self.lease / 3,
            fence_margin: self.lease / 10,
            max_partitions: self.max_partitions,
            ..PartitionManagerOptions::default()
        }
    }
}

/// The injections of a seed. Those of faults that are drawn apart leave all others as they are.
fn draw_injections(seed: u64, random: &mut Rng) -> Vec<Injection> {
    let catalog = fault_catalog::choose(random);
    let count = random.usize(20..=40);
    let mut injections = draw_from(&catalog, count, random);
    let mut apart = Rng::with_seed(seed ^ 0x51a9_e0f7);
    let catalog = fault_catalog::choose_apart(&mut apart);
    let count = if catalog.is_empty() { 0 } else { apart.usize(1..=MAX_INJECTIONS_APART) };
    injections.extend(draw_from(&catalog, count, &mut apart));
    injections.sort_by_key(|injection| injection.at);
    injections
}

fn draw_from(catalog: &[Fault], count: usize, random: &mut Rng) -> Vec<Injection> {
    (0..count)
        .map(|_| Injection {
            at: Duration::from_millis(random.u64(5_000..INJECTION_TIME.as_millis() as u64)),
            fault: catalog[random.usize(0..catalog.len())],
            target: random.usize(0..1_000),
            // Sometimes a moment, sometimes longer than any lease.
            lasting: Duration::from_millis(match random.u32(0..3) {
                0 => random.u64(50..3_000),
                1 => random.u64(3_000..30_000),
                _ => random.u64(30_000..90_000),
            }),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_of_eight_has_a_hub_that_does_not_fence_readers() {
        let unfenced = (0..800).filter(|seed| !Scenario::draw(*seed).hub_fences).count();
        assert!((75..=125).contains(&unfenced), "{unfenced} of 800");
    }

    #[test]
    fn every_seed_has_at_least_what_a_run_must_have() {
        for seed in 0..500 {
            let scenario = Scenario::draw(seed);
            assert!((2..=8).contains(&scenario.hosts));
            assert!((2..=32).contains(&scenario.partitions));
            assert!(scenario.events >= 2_000 && scenario.injections.len() >= 20);
            assert!(INJECTION_TIME >= Duration::from_secs(600));
            assert!(scenario.injections.is_sorted_by_key(|injection| injection.at));
            for config in [&scenario.config, &scenario.upgraded] {
                assert_eq!(config.manager_options().validate(), Ok(()));
                assert_eq!(config.options(&scenario).validate(), Ok(()));
            }
        }
    }
}
