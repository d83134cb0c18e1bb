//! The steps of a conversation between two ends, drawn from a seed.
//!
//! A step names sessions and links by a number that is taken modulo how many there are when it is played, so
//! that every step still means something after others were left out.

use fastrand::Rng;

/// The index of an end: 0 is the client, 1 the server.
pub(crate) type Side = usize;

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Owner {
        side: Side,
        command: Command,
    },
    /// The transport takes bytes of output.
    Write {
        side: Side,
        bytes: u32,
    },
    /// Bytes arrive, and the application takes this many events.
    Read {
        side: Side,
        bytes: u32,
        events: u8,
    },
    /// Others take or return permits of the shared limits.
    Others {
        side: Side,
        sessions: u8,
        links: u8,
    },
    Time {
        milliseconds: u16,
    },
    /// Everything is delivered, and both ends are compared.
    RunUntilIdle,
}

/// A command of an application.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    Begin,
    Attach { session: u8, sends: bool, name: u8 },
    Answer { request: u8, accept: bool },
    Grant { link: u8, credit: u32 },
    Drain { link: u8 },
    Drained { link: u8 },
    Send { link: u8, count: u8, size: u16, settled: bool },
    SendWoken,
    Settle { link: u8, skip: u8, most: u8, outcome: u8 },
    Detach { link: u8, error: bool },
    End { session: u8, error: bool },
    Close { error: bool },
    Pause { paused: bool },
    ReleaseMemory,
}

pub(crate) fn bytes(random: &mut Rng) -> u32 {
    match random.u8(0..4) {
        0 => random.u32(1..40),
        1 => random.u32(1..600),
        2 => random.u32(1..5_000),
        _ => u32::MAX,
    }
}

pub(crate) fn credit(random: &mut Rng) -> u32 {
    match random.u8(0..6) {
        0 => 0,
        1 => 1,
        // The largest distance of two counts.
        2 => i32::MAX as u32,
        _ => random.u32(1..20),
    }
}

pub(crate) fn size(random: &mut Rng) -> u16 {
    match random.u8(0..8) {
        0 => 0,
        1 => random.u16(1_500..4_500),
        2 | 3 => random.u16(400..1_500),
        _ => random.u16(1..60),
    }
}

/// The number of events that an application takes at once.
pub(crate) fn events(random: &mut Rng) -> u8 {
    [1, 2, u8::MAX, u8::MAX][random.usize(..4)]
}

/// The steps of one conversation.
pub(crate) fn draw(random: &mut Rng) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..random.u8(1..4) {
        steps.push(Step::Owner { side: random.usize(..2), command: Command::Begin });
    }
    for _ in 0..random.u8(1..8) {
        steps.push(Step::Owner { side: random.usize(..2), command: attach(random) });
    }
    if random.u8(0..4) != 0 {
        steps.push(Step::RunUntilIdle);
    }
    // One direction may stand still.
    let still = (random.u8(0..3) == 0).then(|| random.usize(..2));
    let ends = random.u8(0..3) != 0;
    for _ in 0..random.usize(20..140) {
        steps.push(step(random, still, ends));
    }
    steps
}

fn attach(random: &mut Rng) -> Command {
    Command::Attach { session: random.u8(..), sends: random.bool(), name: random.u8(0..4) }
}

fn step(random: &mut Rng, still: Option<Side>, ends: bool) -> Step {
    let side = random.usize(..2);
    match random.u8(0..100) {
        0..14 => Step::Write { side: still.unwrap_or(side), bytes: bytes(random) },
        14..30 => Step::Read { side, bytes: bytes(random), events: events(random) },
        30..33 => Step::RunUntilIdle,
        33 => Step::Time { milliseconds: random.u16(0..1_500) },
        34 if random.u8(0..4) == 0 => {
            Step::Others { side, sessions: random.u8(0..4), links: random.u8(0..6) }
        }
        _ => Step::Owner { side, command: command(random, ends) },
    }
}

/// A command; `ends` allows those that end something.
pub(crate) fn command(random: &mut Rng, ends: bool) -> Command {
    let link = random.u8(..);
    match random.u8(0..66) {
        0..14 => Command::Grant { link, credit: credit(random) },
        14..17 => Command::Drain { link },
        17..19 => Command::Drained { link },
        19..27 => {
            let skip = if random.bool() { 0 } else { random.u8(..) };
            Command::Settle { link, skip, most: random.u8(1..5), outcome: random.u8(0..6) }
        }
        27..29 => Command::SendWoken,
        29..32 => Command::Answer { request: link, accept: random.u8(0..4) != 0 },
        32..36 => attach(random),
        36 => Command::Begin,
        37..40 if ends => Command::Detach { link, error: random.bool() },
        40 if ends => Command::End { session: link, error: random.bool() },
        41 if ends && random.u8(0..12) == 0 => Command::Close { error: random.bool() },
        42 => Command::Pause { paused: random.u8(0..3) == 0 },
        43 => Command::ReleaseMemory,
        _ => {
            let (count, settled) = (random.u8(1..6), random.bool());
            Command::Send { link, count, size: size(random), settled }
        }
    }
}
