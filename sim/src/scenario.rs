//! What a seed stands for: the fleet, its options, its users' code, and everything that will go wrong.

use std::time::Duration;

use ephor::{Backoff, CheckpointPolicy, FailurePolicy};
use fastrand::Rng;

/// How long faults are injected: ten simulated minutes.
pub const TROUBLE: Duration = Duration::from_secs(600);
/// How long the fleet has to come to rest afterwards.
pub const SETTLE: Duration = Duration::from_secs(240);
/// How long nothing may move then.
pub const STILL: Duration = Duration::from_secs(120);

/// One thing that goes wrong, or that an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The process is gone, and comes back later under the same name.
    Crash,
    /// The process stands still and comes back as a zombie.
    Pause,
    /// The process is stopped in good order, and started again later.
    Restart,
    /// A host joins.
    Join,
    /// A host leaves in good order, for good.
    Leave,
    /// The way to the store is slow, loses, fails and conflicts for a while.
    StoreTrouble,
    /// The store is out of reach for a while.
    StoreCutOff,
    /// The way to the hub is slow and breaks for a while.
    HubTrouble,
    /// The hub is out of reach for a while.
    HubCutOff,
    /// The hub restarts: links are gone, epochs forgotten.
    HubRestart,
    /// The links to one partition break.
    LinkCut,
    /// The processor takes its time for a while.
    SlowProcessor,
    /// The processor fails, panics and does not open for a while.
    FailingProcessor,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Crash,
        Self::Pause,
        Self::Restart,
        Self::Join,
        Self::Leave,
        Self::StoreTrouble,
        Self::StoreCutOff,
        Self::HubTrouble,
        Self::HubCutOff,
        Self::HubRestart,
        Self::LinkCut,
        Self::SlowProcessor,
        Self::FailingProcessor,
    ];
}

/// A fault, when and for how long. Which host or partition it hits is drawn
/// by number, and taken modulo what is there.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    /// When, from the start.
    pub at: Duration,
    /// What.
    pub fault: Fault,
    /// Whom or where.
    pub target: usize,
    /// For how long.
    pub lasting: Duration,
}

/// Everything a run depends on besides the interleaving.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed it was drawn from.
    pub seed: u64,
    /// Hosts at the start, 2 to 8.
    pub hosts: usize,
    /// Partitions, 4 to 32.
    pub partitions: u32,
    /// Events sent during the trouble, at least 2,000.
    pub events: u32,
    /// What goes wrong, in order of time; at least 20 acts.
    pub acts: Vec<Act>,
    /// Most events in one call.
    pub max_batch_size: usize,
    /// When the host checkpoints by itself.
    pub checkpoint: CheckpointPolicy,
    /// What happens when the processor fails.
    pub failure: FailurePolicy,
    /// How long a call usually takes at most.
    pub call: Duration,
    /// A limit on calls, in some runs.
    pub process_timeout: Option<Duration>,
    /// How often the processor checkpoints by hand, per call.
    pub by_hand: f64,
    /// Whether the store can wake its users.
    pub wakes: bool,
}

impl Scenario {
    /// What this seed stands for.
    pub fn draw(seed: u64) -> Self {
        // A stream of its own: the executor draws from another.
        let mut random = Rng::with_seed(seed ^ 0x5ce7_a110);
        let hosts = random.usize(2..=8);
        let partitions = random.u32(4..=32);
        let backoff = Backoff { first: Duration::from_millis(200), most: Duration::from_secs(5) };
        let failure = match random.u32(0..10) {
            0..=5 => FailurePolicy::Retry(backoff),
            6..=8 => FailurePolicy::SkipAfter { attempts: random.u32(1..=3), backoff },
            _ => FailurePolicy::Close { pause: Duration::from_secs(random.u64(1..=10)) },
        };
        let checkpoint = match random.u32(0..5) {
            0 => CheckpointPolicy::default(),
            1 => CheckpointPolicy::by_hand(),
            2 => CheckpointPolicy::every_events(random.u64(1..=20)),
            3 => CheckpointPolicy::every(Duration::from_secs(random.u64(1..=10))),
            _ => CheckpointPolicy::every(Duration::from_secs(5)).or_events(random.u64(5..=50)),
        };
        let checkpoint = checkpoint.spaced(Duration::from_millis([0, 100, 3_000][random.usize(0..3)]));
        Self {
            seed,
            hosts,
            partitions,
            events: random.u32(2_000..=4_000),
            acts: acts(&mut random),
            max_batch_size: random.usize(1..=20),
            checkpoint,
            failure,
            call: Duration::from_millis(random.u64(1..=400)),
            process_timeout: (random.u32(0..3) == 0).then(|| Duration::from_secs(random.u64(5..=20))),
            by_hand: if random.bool() { 0.0 } else { 0.3 },
            wakes: random.u32(0..4) != 0,
        }
    }
}

fn acts(random: &mut Rng) -> Vec<Act> {
    let count = random.usize(20..=40);
    let mut acts: Vec<Act> = (0..count)
        .map(|_| Act {
            at: Duration::from_millis(random.u64(5_000..TROUBLE.as_millis() as u64)),
            fault: Fault::ALL[random.usize(0..Fault::ALL.len())],
            target: random.usize(0..1_000),
            // Sometimes a moment, sometimes longer than any lease.
            lasting: Duration::from_millis(match random.u32(0..3) {
                0 => random.u64(50..3_000),
                1 => random.u64(3_000..30_000),
                _ => random.u64(30_000..90_000),
            }),
        })
        .collect();
    acts.sort_by_key(|act| act.at);
    acts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_has_at_least_what_a_run_must_have() {
        for seed in 0..500 {
            let scenario = Scenario::draw(seed);
            assert!((2..=8).contains(&scenario.hosts));
            assert!((4..=32).contains(&scenario.partitions));
            assert!(scenario.events >= 2_000 && scenario.acts.len() >= 20);
            assert!(TROUBLE >= Duration::from_secs(600));
            assert!(scenario.acts.is_sorted_by_key(|act| act.at));
        }
    }
}
