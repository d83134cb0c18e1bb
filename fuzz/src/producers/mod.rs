//! Fuzzes idempotent producers, which number their events, with connections that break and a disk that
//! stalls and fails.
//!
//! Each byte is one action. The gateway and its hub serve many inputs, one after the other; each has a
//! producer of its own. Whatever happens, an acknowledged event is stored, and none is stored twice.

#[allow(clippy::unwrap_used, reason = "shared with tests of the hub")]
#[path = "../../../crates/hub/tests/common/blocking_files.rs"]
mod blocking_files;
mod producer_connection;
mod server;

use std::cell::RefCell;
use std::collections::BTreeSet;

use producer_connection::ProducerConnection;
use server::{ServedHub, Server};

/// The number of inputs after which a new server is started: a hub keeps what it is sent.
const INPUTS: i64 = 500;
/// The maximum number of actions in one input.
const MAX_HAPPENINGS: usize = 64;

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

/// Runs one input.
pub fn run(data: &[u8]) {
    SERVER.with(|place| {
        // A server through which a panic unwound is not used again.
        let used = place.borrow_mut().take().filter(|server| server.producers < INPUTS);
        let mut server = used.unwrap_or_else(Server::start);
        server.play(&data[..data.len().min(MAX_HAPPENINGS)]);
        *place.borrow_mut() = Some(server);
    });
}

/// The action that a byte stands for.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// Sends `count` events, beginning `back` numbers before the next one.
    Send { back: i32, count: i32 },
    /// Sends a batch again; 0 is the last one.
    Repeat { back: usize },
    /// Skips a number.
    LeaveOut,
    /// Loses the connection.
    Lose,
    /// Stalls the disk until [`Self::Answer`].
    Stall,
    /// Ends the stall of the disk.
    Answer,
    /// Lets the next write to the disk fail.
    Fail,
    /// Waits for the outcome of everything that was sent on this connection.
    Hear,
}

impl From<u8> for Happening {
    fn from(byte: u8) -> Self {
        let argument = i32::from(byte >> 3);
        match byte & 7 {
            0 | 1 => Self::Send { back: 0, count: 1 + argument % 3 },
            2 if argument < 16 => Self::Repeat { back: argument as usize % 8 },
            2 => Self::Send { back: argument % 8, count: argument / 8 - 1 },
            3 if argument == 31 => Self::LeaveOut,
            3 => Self::Lose,
            4 => Self::Stall,
            5 => Self::Answer,
            6 => Self::Fail,
            _ => Self::Hear,
        }
    }
}

/// The state of one input's producer.
#[derive(Debug, Default)]
struct Known {
    /// The next sequence number.
    next: i32,
    /// The first numbers and the lengths of all batches.
    sent: Vec<(i32, i32)>,
    acknowledged: BTreeSet<i32>,
}

impl Server {
    fn play(&mut self, happenings: &[u8]) {
        let Self { runtime, served, producers } = self;
        *producers += 1;
        let producer = *producers;
        runtime.block_on(server::within("the end of an input", async {
            let begin = served.stored_events().await;
            let mut session = Session { served, producer, begin, known: Known::default(), connection: None };
            for happening in happenings.iter().copied().map(Happening::from) {
                session.happen(happening).await;
                session.check().await;
            }
            session.happen(Happening::Hear).await;
            served.gates.syncs.fail_no_more();
            served.settle().await;
            session.check().await;
        }));
    }
}

/// The state of one input.
struct Session<'a> {
    served: &'a ServedHub,
    producer: i64,
    /// The number of events in the hub before this input.
    begin: u64,
    known: Known,
    connection: Option<ProducerConnection>,
}

impl Session<'_> {
    async fn happen(&mut self, happening: Happening) {
        let syncs = &self.served.gates.syncs;
        match happening {
            Happening::Send { back, count } => {
                let first = (self.known.next - back).max(0);
                self.known.sent.push((first, count));
                self.send(first, count).await;
            }
            Happening::Repeat { back } => {
                if let Some((first, count)) = self.known.sent.iter().rev().nth(back).copied() {
                    self.send(first, count).await;
                }
            }
            Happening::LeaveOut => self.known.next += 1,
            Happening::Lose => {
                if let Some(connection) = self.connection.take() {
                    connection.lose().await;
                }
            }
            Happening::Stall => syncs.set_shut(true),
            Happening::Answer => syncs.set_shut(false),
            Happening::Fail => syncs.fail_next(),
            Happening::Hear => {
                syncs.set_shut(false);
                if let Some(connection) = &mut self.connection {
                    connection.hear(&mut self.known).await;
                }
            }
        }
    }

    async fn send(&mut self, first: i32, count: i32) {
        if self.connection.is_none() {
            let connection = ProducerConnection::open(self.served, self.producer).await;
            let stored = self.served.numbers_from(self.begin, self.producer).await;
            let told = connection.last_told;
            assert!(
                (0..=told).all(|number| stored.contains(&number)),
                "{told} is the last acknowledged number, but only {stored:?} are stored"
            );
            self.connection = Some(connection);
        }
        self.known.next = self.known.next.max(first + count);
        if let Some(connection) = &mut self.connection {
            connection.send(first, count).await;
            connection.note(&mut self.known);
        }
    }

    /// Acknowledged events are on disk and visible to readers, and none is there twice.
    async fn check(&self) {
        let stored = self.served.numbers_from(self.begin, self.producer).await;
        for number in &self.known.acknowledged {
            assert!(stored.contains(number), "{number} was acknowledged, but only {stored:?} are stored");
        }
        let once: BTreeSet<_> = stored.iter().collect();
        assert_eq!(once.len(), stored.len(), "stored twice: {stored:?}");
    }
}
