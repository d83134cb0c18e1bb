//! The operations that a simulated process runs: a list from a seed, in several variants.

use ephor_hub::{Durability, NamespaceConfig};

use super::event::MIN_LENGTH;

/// The hub that every script uses.
pub const HOMES: &str = "homes";
/// The hub that some scripts make, delete and make again.
pub const MILLS: &str = "mills";

/// Headers, and a few commits behind them.
const SMALL_SEGMENT: u64 = 6 << 10;
/// From this size on the log asks for room beforehand.
const LARGE_SEGMENT: u64 = 4 << 20;

/// A batch: for this partition, of bodies of these lengths.
pub type Sent = (u32, Vec<usize>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    CreateHub(&'static str),
    DeleteHub(&'static str),
    Send(&'static str, Sent),
    /// The first alone, all others in one commit behind it.
    SendTogether(Vec<Sent>),
    CreateGroup(u32),
    DeleteGroup(u32),
    Grow(u32),
    SealSegment,
    /// Closes in good order, and opens again.
    Reopen,
    MoveClock(i64),
    FailWrites(u32),
    FailSyncs(u32),
    /// The disk has room for this many more bytes.
    FillDisk(usize),
    FreeDisk,
}

/// The mix from which the operations of a script are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mix {
    Plain,
    /// Writes and syncs fail, or the disk is full.
    Faults,
    /// Hubs come and go, and sometimes a call fails.
    TwoHubs,
    /// Few and small: a log with room ahead takes long to look through.
    Short,
}

#[derive(Debug, Clone)]
pub struct Variant {
    pub name: String,
    pub config: NamespaceConfig,
    pub kept_bytes: Option<u64>,
    pub script: Vec<Operation>,
}

impl Variant {
    fn new(
        name: &str,
        seed: u64,
        durability: Durability,
        mix: Mix,
        recent_bytes: u64,
        kept: bool,
    ) -> Variant {
        let segment_bytes = if mix == Mix::Short { LARGE_SEGMENT } else { SMALL_SEGMENT };
        Variant {
            name: format!("{name}-{seed}"),
            config: NamespaceConfig { durability, segment_bytes, recent_bytes, ..NamespaceConfig::default() },
            kept_bytes: kept.then_some(4 * SMALL_SEGMENT),
            script: script(mix, &mut fastrand::Rng::with_seed(seed)),
        }
    }

    /// Whether what is acknowledged is on disk.
    pub fn is_strict(&self) -> bool {
        self.config.durability == Durability::Disk
    }
}

/// All variants.
pub fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for seed in 0..3 {
        for (durability, word) in [(Durability::Disk, "disk"), (Durability::PageCache, "page-cache")] {
            let mut add = |name: &str, mix, recent_bytes, kept| {
                let name = format!("{word}-{name}");
                variants.push(Variant::new(&name, seed, durability, mix, recent_bytes, kept));
            };
            add("plain", Mix::Plain, 1 << 20, false);
            add("from-files", Mix::Plain, 0, true);
            add("faults", Mix::Faults, 1 << 20, false);
            add("faults-and-retention", Mix::Faults, 2_000, true);
            add("two-hubs", Mix::TwoHubs, 1 << 20, false);
            add("room-ahead", Mix::Short, 1 << 20, false);
        }
    }
    variants
}

fn script(mix: Mix, chance: &mut fastrand::Rng) -> Vec<Operation> {
    let mut partitions = 2;
    let mut script = vec![Operation::CreateHub(HOMES)];
    let count = if mix == Mix::Short { 8 } else { 36 };
    for _ in 0..count {
        let next = match chance.u32(0..100) {
            0..50 => Operation::Send(HOMES, batch(partitions, mix, chance)),
            50..65 => {
                let count = chance.usize(2..5);
                Operation::SendTogether((0..count).map(|_| batch(partitions, mix, chance)).collect())
            }
            65..70 => Operation::CreateGroup(chance.u32(0..3)),
            70..72 => Operation::DeleteGroup(chance.u32(0..3)),
            72..75 => {
                partitions += chance.u32(1..3);
                Operation::Grow(partitions)
            }
            75..78 => Operation::SealSegment,
            78..83 => Operation::Reopen,
            83..86 => Operation::MoveClock(clock_step(chance)),
            _ => special(mix, partitions, chance),
        };
        script.push(next);
    }
    script
}

/// Mostly a little, and sometimes by so much that all events would be past their age.
fn clock_step(chance: &mut fastrand::Rng) -> i64 {
    const YEAR: i64 = 365 * 24 * 3_600_000;
    match chance.u32(0..4) {
        0 => chance.i64(-20 * YEAR..20 * YEAR),
        _ => chance.i64(-100..500),
    }
}

fn special(mix: Mix, partitions: u32, chance: &mut fastrand::Rng) -> Operation {
    match (mix, chance.u32(0..5)) {
        (Mix::Faults, 0) => Operation::FailWrites(chance.u32(1..4)),
        (Mix::Faults, 1) => Operation::FailSyncs(chance.u32(1..4)),
        (Mix::Faults, 2) => Operation::FillDisk(chance.usize(0..1_500)),
        (Mix::Faults, 3) => Operation::FreeDisk,
        (Mix::TwoHubs, 0) => Operation::CreateHub(MILLS),
        (Mix::TwoHubs, 1) => Operation::DeleteHub(MILLS),
        (Mix::TwoHubs, 2) => Operation::Send(MILLS, batch(1, mix, chance)),
        (Mix::TwoHubs, 3) if chance.bool() => Operation::FailWrites(1),
        (Mix::TwoHubs, 3) => Operation::FailSyncs(1),
        _ => Operation::Send(HOMES, batch(partitions, mix, chance)),
    }
}

/// Single events, and batches that span sectors and even a segment.
fn batch(partitions: u32, mix: Mix, chance: &mut fastrand::Rng) -> Sent {
    let (count, longest) = match (mix, chance.u32(0..20)) {
        (Mix::Short, _) => (chance.usize(1..4), 100),
        (_, 0..9) => (1, 300),
        (_, 9..14) => (chance.usize(2..7), 200),
        (_, 14..17) => (chance.usize(1..3), 1_200),
        (_, 17..19) => (chance.usize(15..40), 60),
        _ => (chance.usize(1..4), 2_500),
    };
    (chance.u32(0..partitions), (0..count).map(|_| chance.usize(MIN_LENGTH..longest)).collect())
}
