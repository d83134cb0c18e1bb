//! Producers that number their events, on connections that break, with a disk that is slow and fails.
//!
//! Each byte is something that happens. The gateway and its hub serve many inputs, one after the other; each has a
//! producer of its own. Whatever happens, an event that was acknowledged is stored, and none is stored twice.

#[allow(clippy::unwrap_used, reason = "shared with tests of the hub")]
#[path = "../../../crates/hub/tests/common/gated.rs"]
mod gated;
mod line;
mod server;

use std::cell::RefCell;
use std::collections::BTreeSet;

use line::Line;
use server::{Door, Server};

/// A hub keeps what it is sent: after so many inputs there is a new one.
const INPUTS: i64 = 500;
/// More does not happen in one input.
const MAX_HAPPENINGS: usize = 64;

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

/// Plays one input.
pub fn run(data: &[u8]) {
    SERVER.with(|place| {
        // A server that a panic went through is not used again.
        let used = place.borrow_mut().take().filter(|server| server.producers < INPUTS);
        let mut server = used.unwrap_or_else(Server::start);
        server.play(&data[..data.len().min(MAX_HAPPENINGS)]);
        *place.borrow_mut() = Some(server);
    });
}

/// What a byte means.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// So many events are sent, from so many numbers before what would come next.
    Send { back: i32, count: i32 },
    /// Numbers are left out.
    LeaveOut,
    /// The connection is lost.
    Lose,
    /// The disk does not answer until it is told to.
    Stall,
    /// The disk answers.
    Answer,
    /// The next write to the disk fails.
    Fail,
    /// It is waited for everything that was sent on this connection.
    Hear,
}

impl From<u8> for Happening {
    fn from(byte: u8) -> Self {
        let argument = i32::from(byte >> 3);
        match byte & 7 {
            0 | 1 => Self::Send { back: 0, count: 1 + argument % 3 },
            2 => Self::Send { back: argument % 8, count: 1 + argument / 8 },
            3 if argument == 31 => Self::LeaveOut,
            3 => Self::Lose,
            4 => Self::Stall,
            5 => Self::Answer,
            6 => Self::Fail,
            _ => Self::Hear,
        }
    }
}

/// What the producer of one input knows.
#[derive(Debug, Default)]
struct Known {
    /// What comes next.
    next: i32,
    acknowledged: BTreeSet<i32>,
}

impl Server {
    fn play(&mut self, happenings: &[u8]) {
        let Self { runtime, door, producers } = self;
        *producers += 1;
        let producer = *producers;
        runtime.block_on(server::within("the end of an input", async {
            let begin = door.stored_events().await;
            let mut life = Life { door, producer, begin, known: Known::default(), line: None };
            for happening in happenings.iter().copied().map(Happening::from) {
                life.happen(happening).await;
                life.check().await;
            }
            life.happen(Happening::Hear).await;
            door.gates.syncs.fail_no_more();
            door.settle().await;
            life.check().await;
        }));
    }
}

/// One input, and what has happened of it.
struct Life<'a> {
    door: &'a Door,
    producer: i64,
    /// How many events there were before.
    begin: u64,
    known: Known,
    line: Option<Line>,
}

impl Life<'_> {
    async fn happen(&mut self, happening: Happening) {
        let syncs = &self.door.gates.syncs;
        match happening {
            Happening::Send { back, count } => self.send(back, count).await,
            Happening::LeaveOut => self.known.next += 1,
            Happening::Lose => {
                if let Some(line) = self.line.take() {
                    line.lose().await;
                }
            }
            Happening::Stall => syncs.set_shut(true),
            Happening::Answer => syncs.set_shut(false),
            Happening::Fail => syncs.fail_next(),
            Happening::Hear => {
                syncs.set_shut(false);
                if let Some(line) = &mut self.line {
                    line.hear(&mut self.known).await;
                }
            }
        }
    }

    async fn send(&mut self, back: i32, count: i32) {
        if self.line.is_none() {
            let line = Line::open(self.door, self.producer).await;
            let stored = self.door.numbers_from(self.begin, self.producer).await;
            let told = line.last_told;
            assert!((0..=told).all(|number| stored.contains(&number)), "told {told}; stored are {stored:?}");
            self.line = Some(line);
        }
        let first = (self.known.next - back).max(0);
        self.known.next = self.known.next.max(first + count);
        if let Some(line) = &mut self.line {
            line.send(first, count).await;
            line.note(&mut self.known);
        }
    }

    /// What is acknowledged is on disk, where readers see it, and nothing is there twice.
    async fn check(&self) {
        let stored = self.door.numbers_from(self.begin, self.producer).await;
        for number in &self.known.acknowledged {
            assert!(stored.contains(number), "{number} was acknowledged; stored are {stored:?}");
        }
        let once: BTreeSet<_> = stored.iter().collect();
        assert_eq!(once.len(), stored.len(), "stored twice: {stored:?}");
    }
}
