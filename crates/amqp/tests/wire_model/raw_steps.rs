//! The steps of a conversation between one end and a peer that writes its frames by hand.
//!
//! Channels and handles are small numbers. A step that would violate the protocol is left out when it is played,
//! unless it is `wild`.

use fastrand::Rng;

use crate::steps::{Command, bytes, command, credit, events, size};

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RawStep {
    Owner(Command),
    Peer {
        wild: bool,
        channel: u16,
        handle: u32,
        what: PeerFrame,
    },
    /// The peer takes bytes of output.
    Write {
        bytes: u32,
    },
    /// Bytes of the peer arrive, and the application takes this many events.
    Read {
        bytes: u32,
        events: u8,
    },
    /// The peer takes everything, everything of the peer arrives, and the tables are compared.
    RunUntilIdle,
}

/// A frame of the peer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PeerFrame {
    Begin {
        window: u32,
        first: u32,
    },
    /// Answers a `begin` of the other end.
    AnswerBegin {
        window: u32,
        first: u32,
    },
    Attach {
        sends: bool,
        name: u8,
        first: u32,
    },
    /// Answers an `attach` of the other end.
    AnswerAttach {
        accept: bool,
        first: u32,
    },
    SessionFlow {
        window: u32,
        echo: bool,
        bare: bool,
    },
    LinkFlow {
        window: u32,
        credit: u32,
        drain: bool,
        echo: bool,
        bare: bool,
    },
    /// The next part of the delivery on this link, or the first of a new one.
    Transfer {
        size: u16,
        more: bool,
        aborted: bool,
        settled: bool,
        repeats: bool,
        form: u8,
    },
    /// For deliveries of the other end, from the number `back` before its last one.
    Disposition {
        back: u8,
        count: u8,
        settled: bool,
        outcome: u8,
        sender: bool,
    },
    Detach {
        closed: bool,
        error: bool,
    },
    End {
        error: bool,
    },
    Close {
        error: bool,
    },
    Heartbeat,
}

fn window(random: &mut Rng) -> u32 {
    match random.u8(0..5) {
        0 => 0,
        1 => 1,
        2 => random.u32(2..6),
        _ => random.u32(6..200),
    }
}

fn first(random: &mut Rng) -> u32 {
    match random.u8(0..3) {
        0 => 0,
        1 => u32::MAX - random.u32(0..8),
        _ => random.u32(..),
    }
}

/// The steps of one conversation; `wild` allows steps that violate the protocol.
pub(crate) fn draw(random: &mut Rng, wild: bool) -> Vec<RawStep> {
    let mut steps = Vec::new();
    for channel in 0..random.u16(1..4) {
        let (window, first) = (window(random).max(1), first(random));
        steps.push(peer(channel, 0, PeerFrame::Begin { window, first }));
        for handle in 0..random.u32(1..4) {
            steps.push(peer(channel, handle, attach(random)));
        }
    }
    steps.push(RawStep::RunUntilIdle);
    for _ in 0..random.usize(20..140) {
        steps.push(step(random, wild));
    }
    steps
}

fn peer(channel: u16, handle: u32, what: PeerFrame) -> RawStep {
    RawStep::Peer { wild: false, channel, handle, what }
}

fn attach(random: &mut Rng) -> PeerFrame {
    PeerFrame::Attach { sends: random.u8(0..3) != 0, name: random.u8(0..5), first: first(random) }
}

fn step(random: &mut Rng, wild: bool) -> RawStep {
    match random.u8(0..100) {
        0..10 => RawStep::Write { bytes: bytes(random) },
        10..26 => RawStep::Read { bytes: bytes(random), events: events(random) },
        26..29 => RawStep::RunUntilIdle,
        29..52 => RawStep::Owner(command(random, true)),
        _ => RawStep::Peer {
            wild: wild && random.u8(0..12) == 0,
            channel: random.u16(0..4),
            handle: random.u32(0..5),
            what: frame(random),
        },
    }
}

fn frame(random: &mut Rng) -> PeerFrame {
    match random.u8(0..100) {
        0..4 => PeerFrame::Begin { window: window(random), first: first(random) },
        4..8 => PeerFrame::AnswerBegin { window: window(random), first: first(random) },
        8..14 => attach(random),
        14..19 => PeerFrame::AnswerAttach { accept: random.u8(0..4) != 0, first: first(random) },
        19..28 => {
            PeerFrame::SessionFlow { window: window(random), echo: random.u8(0..3) == 0, bare: random.bool() }
        }
        28..43 => PeerFrame::LinkFlow {
            window: window(random),
            credit: credit(random),
            drain: random.u8(0..4) == 0,
            echo: random.u8(0..4) == 0,
            bare: random.u8(0..4) == 0,
        },
        43..78 => PeerFrame::Transfer {
            size: size(random) % 450,
            more: random.u8(0..5) < 2,
            aborted: random.u8(0..6) == 0,
            settled: random.u8(0..3) == 0,
            repeats: random.bool(),
            form: random.u8(..),
        },
        78..88 => PeerFrame::Disposition {
            back: random.u8(0..12),
            count: random.u8(1..14),
            settled: random.u8(0..3) != 0,
            outcome: random.u8(0..6),
            sender: random.u8(0..8) == 0,
        },
        88..91 => PeerFrame::Detach { closed: random.bool(), error: random.bool() },
        91 => PeerFrame::End { error: random.bool() },
        92 if random.u8(0..6) == 0 => PeerFrame::Close { error: random.bool() },
        _ => PeerFrame::Heartbeat,
    }
}
