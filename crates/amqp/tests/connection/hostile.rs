//! Whatever a peer says, a connection goes on or ends with a reason; it never panics, and what it keeps
//! stays bounded.
//!
//! A conversation is recorded, changed here and there by a seed, and told to a fresh connection whose
//! owner says yes to everything. `EPHOR_AMQP_CASES` says how many, 1,000 if nothing does.

use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, Config, Event, LinkId, Sent, ServerSasl};
use ephor_amqp::performative::{Attach, Error, Outcome, Role};

use crate::pair::{Pair, config};

/// What one side says in a conversation with everything in it.
pub(crate) fn conversation(seed: u64) -> Vec<u8> {
    record(seed).0
}

/// What client and server say.
fn record(seed: u64) -> (Vec<u8>, Vec<u8>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut small = config("s");
    small.limits.frame = 1_024;
    let mut pair = Pair::new(config("c"), small);
    let (mut said, mut answered) = (Vec::new(), Vec::new());
    let mut owner =
        Owner { connection: pair.server, told: Vec::new(), senders: Vec::new(), is_client: false };
    let (mut senders, mut sessions, mut sent, mut rounds) = (Vec::new(), Vec::new(), 0, 0);
    loop {
        let bytes = pair.client.output().to_vec();
        pair.client.wrote(bytes.len());
        said.extend(&bytes);
        owner.connection.input().extend_from_slice(&bytes);
        owner.serve();
        let bytes = owner.connection.output().to_vec();
        owner.connection.wrote(bytes.len());
        answered.extend(&bytes);
        pair.client.input().extend_from_slice(&bytes);
        while let Some(event) = pair.client.next_event() {
            match event {
                Event::Opened(_) => {
                    for name in ["a", "b"] {
                        let session = pair.client.begin().expect("a session");
                        sessions.push(session);
                        senders.extend(pair.client.attach(session, Attach::sender(name, "there")));
                        pair.client.attach(session, Attach::receiver(name, "back"));
                    }
                }
                Event::Attached { link, attach } if attach.role == Role::Sender => pair.client.grant(link, 5),
                Event::Delivery(delivery) if !delivery.settled => {
                    pair.client.settle(delivery.link, delivery.id, delivery.id, &Outcome::Accepted);
                }
                Event::Closed(_) => return (said, answered),
                _ => {}
            }
        }
        for &link in &senders {
            let message = vec![sent as u8; random.usize(0..3_000)];
            if let Sent::Sent(_) = pair.client.send(link, 0, random.bool(), &[&message]) {
                sent += 1;
            }
        }
        rounds += 1;
        match rounds {
            20 => pair.client.detach(senders[0], Some(Error::new("amqp:x", "enough"))),
            21 => pair.client.end(sessions[1], None),
            22 => pair.client.close(None),
            _ => {}
        }
    }
}

/// Says yes to everything: accepts, grants, settles, and sends back a little.
pub(crate) struct Owner {
    pub(crate) connection: Connection,
    told: Vec<Event>,
    senders: Vec<LinkId>,
    is_client: bool,
}

impl Owner {
    pub(crate) fn server(config: Config) -> Self {
        let connection = Connection::server(config, ServerSasl::default(), Duration::ZERO);
        Self { connection, told: Vec::new(), senders: Vec::new(), is_client: false }
    }

    fn client(config: Config) -> Self {
        let connection = Connection::client(config, ClientSasl::Anonymous, Duration::ZERO);
        Self { connection, told: Vec::new(), senders: Vec::new(), is_client: true }
    }

    /// Hears the bytes in pieces, and returns all events.
    pub(crate) fn hear(mut self, bytes: &[u8], piece: &mut dyn FnMut() -> usize) -> Vec<Event> {
        self.hear_all(bytes, piece);
        self.told
    }

    fn hear_all(&mut self, mut bytes: &[u8], piece: &mut dyn FnMut() -> usize) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(piece().min(bytes.len()));
            self.connection.input().extend_from_slice(now);
            self.serve();
            bytes = later;
        }
    }

    fn serve(&mut self) {
        while let Some(event) = self.connection.next_event() {
            self.answer(&event);
            self.told.push(event);
        }
    }

    fn answer(&mut self, event: &Event) {
        let connection = &mut self.connection;
        match event {
            // As in the recording, so that a server's answers find what they answer.
            Event::Opened(_) if self.is_client => {
                for name in ["a", "b"] {
                    let Some(session) = connection.begin() else { return };
                    self.senders.extend(connection.attach(session, Attach::sender(name, "there")));
                    connection.attach(session, Attach::receiver(name, "back"));
                }
            }
            Event::AttachRequested { link, attach, .. } => {
                connection.accept(*link, attach.answer());
                match attach.role {
                    Role::Sender => connection.grant(*link, 1_000),
                    Role::Receiver => self.senders.push(*link),
                }
            }
            Event::Delivery(delivery) if !delivery.settled => {
                connection.settle(delivery.link, delivery.id, delivery.id, &Outcome::Accepted);
            }
            Event::Credit { link, drain } => {
                for number in 0..3 {
                    let message = [7; 2_000];
                    let settled = number % 2 == 0;
                    if !matches!(connection.send(*link, 0, settled, &[&message]), Sent::Sent(_)) {
                        break;
                    }
                }
                if *drain {
                    connection.drained(*link);
                }
            }
            _ => {}
        }
    }
}

/// Changes a few things.
fn mutate(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(1..6) {
        if bytes.is_empty() {
            return;
        }
        let at = random.usize(0..bytes.len());
        let end = (at + random.usize(1..64)).min(bytes.len());
        match random.u8(0..8) {
            0 => bytes[at] = random.u8(..),
            1 => bytes[at] ^= 1 << random.u8(0..8),
            2 => {
                bytes[at] =
                    *random.choice(&[0x00, 0x40, 0x45, 0x53, 0xa0, 0xc0, 0xd0, 0xf0, 0xff]).expect("one")
            }
            3 => drop(bytes.drain(at..end)),
            4 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            5 => {
                let noise: Vec<u8> = (at..end).map(|_| random.u8(..)).collect();
                bytes.splice(at..end, noise);
            }
            6 => bytes.truncate(at),
            _ => {
                // Frames trade places, which is where the order of things is tested.
                let frames = frames(bytes);
                if frames.len() > 2 {
                    let (one, other) = (random.usize(0..frames.len()), random.usize(0..frames.len()));
                    let mut order: Vec<&[u8]> = frames.iter().map(|frame| &bytes[frame.clone()]).collect();
                    order.swap(one, other);
                    *bytes = order.concat();
                }
            }
        }
    }
}

/// Where the frames of a recorded conversation are, and headers among them.
fn frames(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut frames = Vec::new();
    let mut at = 0;
    while let Some(head) = bytes[at..].first_chunk::<4>() {
        let size = if head == b"AMQP" { 8 } else { u32::from_be_bytes(*head) as usize };
        if size < 8 || size > bytes.len() - at {
            break;
        }
        frames.push(at..at + size);
        at += size;
    }
    frames.push(at..bytes.len());
    frames
}

fn cases() -> u64 {
    std::env::var("EPHOR_AMQP_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(1_000)
}

#[test]
fn a_conversation_has_everything_in_it() {
    let told = Owner::server(config("s")).hear(&conversation(1), &mut || usize::MAX);
    let has = |wanted: &str| {
        assert!(told.iter().any(|event| format!("{event:?}").starts_with(wanted)), "{wanted}: {told:?}");
    };
    for wanted in
        ["Opened", "Begun", "AttachRequested", "Credit", "Delivery", "Detached", "Ended", "Closed(ByPeer"]
    {
        has(wanted);
    }
    let (_, answers) = record(1);
    assert!(answers.len() > 1_000);
}

#[test]
fn no_mutation_of_a_conversation_does_harm() {
    let recorded: Vec<_> = (0..8).map(record).collect();
    let (mut closed, mut survived) = (0, 0);
    for seed in 0..cases() {
        let mut random = fastrand::Rng::with_seed(seed);
        let (said, answered) = &recorded[random.usize(0..recorded.len())];
        let as_server = random.bool();
        let (mut bytes, mut owner) = match as_server {
            true => (said.clone(), Owner::server(config("s"))),
            false => (answered.clone(), Owner::client(config("c"))),
        };
        mutate(&mut bytes, &mut random);
        let largest = random.usize(1..2_000);
        owner.hear_all(&bytes, &mut || random.usize(1..=largest));
        let context = || format!("seed {seed}: {:?}", owner.told);
        assert!(owner.connection.output_length() < 3_000_000, "{}", context());
        let ends = owner.told.iter().filter(|event| matches!(event, Event::Closed(_))).count();
        assert!(ends <= 1, "{}", context());
        if ends == 1 {
            assert!(matches!(owner.told.last(), Some(Event::Closed(_))), "{}", context());
            closed += 1;
        } else {
            survived += 1;
        }
        owner.connection.on_lost("the end");
        assert!(owner.connection.is_finished());
    }
    assert!(closed > 0 && survived > 0, "{closed} closed, {survived} survived");
}
