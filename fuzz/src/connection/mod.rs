//! Fuzzes whole conversations with the AMQP engine: arbitrary input bytes to a server and to a client.
//!
//! The first byte selects the configuration of the engine and the behaviour of its owner ([`Setup`]), the
//! rest is the peer's input. It is run three times: at once, in pieces, and in pieces with a peer that reads.

mod event_handler;
mod judge;

use ephor_amqp::connection::Event;

pub use event_handler::{Owner, Setup, Side};

/// Runs one input as the server.
pub fn server(data: &[u8]) {
    run(Side::Server, data);
}

/// Runs one input as the client.
pub fn client(data: &[u8]) {
    run(Side::Client, data);
}

fn run(side: Side, data: &[u8]) {
    let Some((&setup, said)) = data.split_first() else { return };
    let setup = Setup { side, bits: setup };
    let mut at_once = Owner::new(setup);
    at_once.hear(said);
    let mut in_pieces = Owner::new(setup);
    for piece in pieces(said) {
        in_pieces.hear(piece);
    }
    assert_eq!(
        comparable(&at_once.told),
        comparable(&in_pieces.told),
        "input in pieces gives the same events"
    );
    assert_eq!(
        at_once.connection.output(),
        in_pieces.connection.output(),
        "input in pieces gives the same output"
    );
    judge::told(&at_once.told, said.len());
    let unread = at_once.connection.output().to_vec();
    judge::answers(&at_once.told, &unread);
    lose(at_once);

    let mut to_a_reader = Owner::new(setup);
    let mut answers = Vec::new();
    for piece in pieces(said) {
        to_a_reader.hear(piece);
        to_a_reader.write(&mut answers);
    }
    judge::told(&to_a_reader.told, said.len());
    judge::answers(&to_a_reader.told, &answers);
    wait(to_a_reader);
}

/// Splits the input at positions that depend on nothing but its bytes.
fn pieces(mut said: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut random = fastrand::Rng::with_seed(
        said.iter().fold(7, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add((*byte).into())),
    );
    let largest = random.usize(1..600);
    std::iter::from_fn(move || {
        let (now, later) = said.split_at(random.usize(1..=largest).min(said.len()));
        said = later;
        (!now.is_empty()).then_some(now)
    })
}

/// Removes the part of an error that depends on how many bytes of a wrong header had arrived.
fn comparable(told: &[Event]) -> Vec<Event> {
    use ephor_amqp::connection::Closed;
    let mut told = told.to_vec();
    if let Some(Event::Closed(closed @ (Closed::Lost(_) | Closed::SpokeTls(_)))) = told.last_mut() {
        *closed = Closed::Lost(String::new());
    }
    told
}

/// The transport is lost: the connection must end.
fn lose(mut owner: Owner) {
    owner.connection.on_lost("the end");
    owner.hear(&[]);
    assert!(owner.connection.is_finished());
    judge::told(&owner.told, usize::MAX);
    assert!(matches!(owner.told.last(), Some(Event::Closed(_))), "the end is reported");
}

/// The time after which a connection without input must have ended.
const MAX_SILENCE: std::time::Duration = std::time::Duration::from_secs(8 * 3_600);

/// The maximum number of timer events: a peer may ask for many heartbeats.
const MAX_STEPS: u32 = 1_000_000;

/// No more input comes: the connection must time out, whatever came before.
fn wait(mut owner: Owner) {
    let mut answers = Vec::new();
    // Call it at its own deadlines: a call that comes hours late would give the peer more time.
    let mut now = std::time::Duration::ZERO;
    for _ in 0..MAX_STEPS {
        let Some(due) = owner.connection.next_deadline() else { break };
        now = now.max(due);
        assert!(now < MAX_SILENCE, "after {now:?} of silence: {:?}", owner.connection);
        owner.connection.on_time(now);
        owner.hear(&[]);
        owner.write(&mut answers);
    }
    assert!(owner.connection.is_finished(), "after {now:?} of silence: {:?}", owner.connection);
    assert_eq!(owner.connection.next_deadline(), None);
    assert!(matches!(owner.told.last(), Some(Event::Closed(_))), "the end is reported");
}
