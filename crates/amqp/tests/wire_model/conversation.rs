//! Plays the steps of a conversation on two ends, and compares them when nothing is on the way.

use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, LinkId, ServerSasl};
use ephor_amqp::shared_limit::Permit;

use crate::coverage::Coverage;
use crate::endpoint::Endpoint;
use crate::model::{LinkState, Phase, SessionState};
use crate::settings::EndSettings;
use crate::steps::{Side, Step};

/// More rounds than any conversation needs to come to rest.
const MAX_ROUNDS: usize = 20_000;

/// The virtual time of a whole conversation: shorter than any timeout.
const MAX_TIME: Duration = Duration::from_secs(30);

pub(crate) struct Conversation {
    pub(crate) ends: [Endpoint; 2],
    now: Duration,
    /// The number of the next message, so that no two are the same.
    messages: u64,
    /// Permits of the shared limits that others hold.
    others: [Vec<Permit>; 2],
}

/// The counts of a conversation that has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) coverage: Coverage,
    pub(crate) delivered: u64,
    pub(crate) settled: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.coverage.add(&other.coverage);
        self.delivered += other.delivered;
        self.settled += other.settled;
    }
}

/// Plays a whole conversation. A violation is a panic.
pub(crate) fn play(settings: &[EndSettings; 2], steps: &[Step]) -> Totals {
    let mut conversation = Conversation::open(settings);
    for step in steps {
        conversation.step(step);
        for side in 0..2 {
            conversation.check_limits(side);
        }
    }
    conversation.finish();
    let mut totals = Totals::default();
    for end in conversation.ends {
        let (delivered, settled) = (end.model.delivered, end.model.settled);
        totals.add(&Totals { coverage: end.model.coverage, delivered, settled });
    }
    totals
}

impl Conversation {
    fn open(settings: &[EndSettings; 2]) -> Self {
        let [client, server] = settings;
        let mut connections = [
            Connection::client(client.fresh_config(), ClientSasl::Skip, Duration::ZERO),
            Connection::server(server.fresh_config(), ServerSasl::default(), Duration::ZERO),
        ];
        while connections.iter().any(|connection| connection.has_output()) {
            for side in 0..2 {
                let bytes = connections[side].output().to_vec();
                connections[side].wrote(bytes.len());
                connections[1 - side].input().extend_from_slice(&bytes);
                while connections[1 - side].next_event().is_some() {}
            }
        }
        let [one, two] = connections;
        assert!(one.is_open() && two.is_open(), "both ends are open");
        let ends = [
            Endpoint::new(one, &server.config, client.habits.clone()),
            Endpoint::new(two, &client.config, server.habits.clone()),
        ];
        Self { ends, now: Duration::ZERO, messages: 0, others: [Vec::new(), Vec::new()] }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write { side, bytes } => {
                self.write(side, bytes as usize);
            }
            Step::Read { side, bytes, events } => {
                self.ends[side].read(bytes as usize);
                self.poll(side, events.into());
            }
            Step::Others { side, sessions, links } => self.others_hold(side, sessions.into(), links.into()),
            Step::Time { milliseconds } => {
                self.now = (self.now + Duration::from_millis(milliseconds.into())).min(MAX_TIME);
                for end in &mut self.ends {
                    end.connection.on_time(self.now);
                }
            }
            Step::RunUntilIdle => self.run_until_idle(),
            Step::Owner { side, ref command } => self.ends[side].command(side, command, &mut self.messages),
        }
    }

    pub(crate) fn others_hold(&mut self, side: Side, sessions: usize, links: usize) {
        self.others[side].clear();
        let shared = self.ends[side].model.shared.clone();
        let sessions: Vec<Permit> = (0..sessions).filter_map(|_| shared.sessions.take()).collect();
        let links: Vec<Permit> = (0..links).filter_map(|_| shared.links.take()).collect();
        self.ends[side].model.held_elsewhere = (sessions.len(), links.len());
        self.others[side] = sessions.into_iter().chain(links).collect();
    }

    /// Shows the model new output, and announces its frames to the other end.
    fn look(&mut self, side: Side) {
        self.ends[side].look_at_output();
        for frame in std::mem::take(&mut self.ends[side].written) {
            self.ends[1 - side].announce(frame);
        }
    }

    /// The transport takes up to so many bytes. True if there were some.
    fn write(&mut self, side: Side, bytes: usize) -> bool {
        self.look(side);
        let bytes = self.ends[side].write(bytes);
        self.ends[1 - side].flight.extend(&bytes);
        !bytes.is_empty()
    }

    /// Takes up to `most` events. True if there was one.
    fn poll(&mut self, side: Side, most: usize) -> bool {
        for number in 0..most {
            if self.ends[side].must_look_before_poll() {
                self.look(side);
            }
            if !self.ends[side].poll() {
                return number > 0;
            }
        }
        true
    }

    /// Delivers everything until nothing happens at either end, and compares them.
    pub(crate) fn run_until_idle(&mut self) {
        for round in 0.. {
            assert!(round < MAX_ROUNDS, "the conversation does not become idle");
            let mut moved = false;
            for side in 0..2 {
                moved |= self.write(side, usize::MAX);
                moved |= self.ends[1 - side].read(usize::MAX) > 0;
                moved |= self.poll(1 - side, usize::MAX);
                moved |= self.poll(side, usize::MAX);
                moved |= self.ends[side].connection.has_output();
            }
            if !moved {
                break;
            }
        }
        for side in 0..2 {
            let end = &self.ends[side];
            if !end.paused {
                assert_eq!(end.flight.len(), 0, "side {side} reads although nothing waits to be written");
            }
        }
        if self.ends.iter().all(|end| end.flight.is_empty() && !end.paused && end.model.phase == Phase::Open)
        {
            self.compare();
        }
    }

    /// Nothing is on the way: both ends agree.
    fn compare(&self) {
        let [one, two] = &self.ends;
        for (end, peer) in [(one, two), (two, one)] {
            for (id, session) in &end.model.sessions {
                assert_eq!(session.state, SessionState::Open, "{id:?} has begun or ended at rest");
                let theirs =
                    peer.model.sessions.values().find(|theirs| theirs.channel == session.peer_channel);
                let theirs = theirs.expect("the session of the peer");
                assert_eq!(
                    session.next_outgoing_id, theirs.next_incoming_id,
                    "the number of the next transfer"
                );
                let window = peer.model.limits.window;
                assert!(session.window > window / 2, "{} of a window of {window} at rest", session.window);
                assert!(session.outgoing.is_empty(), "a delivery is unfinished at rest");
            }
            for (id, link) in &end.model.links {
                assert_eq!(end.connection.credit(*id), link.credit, "the credit that a connection reports");
                if link.state == LinkState::AttachSent || link.state == LinkState::Requested {
                    continue;
                }
                assert_eq!(link.state, LinkState::Attached, "{id:?} is attached or gone at rest");
                let theirs = self.counterpart(end, peer, *id);
                assert_eq!(link.delivery_count, theirs.delivery_count, "delivery-count on both sides");
                assert_eq!(link.credit, theirs.credit, "link-credit on both sides");
                assert!(link.incoming.is_none(), "a delivery is incomplete at rest");
            }
        }
    }

    fn counterpart<'a>(&self, end: &Endpoint, peer: &'a Endpoint, id: LinkId) -> &'a crate::model::Link {
        let link = end.model.link(id);
        let channel = end.model.session(link.session).peer_channel;
        let theirs = peer.model.sessions.values().find(|session| session.channel == channel);
        let handle = link.peer_handle.expect("a handle of the peer");
        let theirs =
            theirs.and_then(|session| session.handles_out.get(&handle)).expect("the link of the peer");
        peer.model.link(*theirs)
    }

    pub(crate) fn check_limits(&mut self, side: Side) {
        self.ends[side].check_limits();
    }
}
