//! Plays a conversation between one end and a peer that writes its frames by hand.
//!
//! The peer may write frames that are unusual, and in wild conversations frames that violate the protocol; the
//! model says which error follows, and what is left.

use std::collections::VecDeque;
use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, Config, ServerSasl};

use crate::conversation::Totals;
use crate::decoded_frames::{Frame, read_all};
use crate::endpoint::Endpoint;
use crate::hand_written_frames::opening;
use crate::model::Phase;
use crate::raw_peer::RawPeer;
use crate::raw_steps::{PeerFrame, RawStep};
use crate::settings::EndSettings;

/// More rounds than the longest queue needs.
const MAX_ROUNDS: usize = 2_000;

/// A window and a credit for everything that waits.
const ENOUGH: u32 = 10_000;

pub(crate) struct RawConversation {
    end: Endpoint,
    peer: RawPeer,
    /// Frames of the end that the peer has not read, and the number of the byte after each.
    unread: VecDeque<(u64, Frame)>,
    written: u64,
    taken: u64,
    messages: u64,
}

/// Plays a whole conversation. A violation of the model is a panic.
pub(crate) fn play(settings: &EndSettings, is_client: bool, steps: &[RawStep]) -> Totals {
    let mut conversation = RawConversation::open(settings, is_client);
    for step in steps {
        conversation.step(step);
        conversation.end.check_limits();
    }
    conversation.finish();
    let model = conversation.end.model;
    Totals { coverage: model.coverage, delivered: model.delivered, settled: model.settled }
}

impl RawConversation {
    fn open(settings: &EndSettings, is_client: bool) -> Self {
        let config = settings.fresh_config();
        let (frame, channel_max) = (1_024, 7);
        let (first_transfer, first_delivery) = (config.first_transfer, config.first_delivery);
        let mut connection = match is_client {
            true => Connection::client(config, ClientSasl::Skip, Duration::ZERO),
            false => Connection::server(config, ServerSasl::default(), Duration::ZERO),
        };
        connection.input().extend_from_slice(&opening(frame, channel_max));
        while connection.next_event().is_some() {}
        assert!(connection.is_open(), "the connection is open");
        let count = connection.output().len();
        connection.wrote(count);
        let mut peer = Config::new("raw");
        (peer.limits.frame, peer.limits.channel_max) = (frame, channel_max);
        Self {
            end: Endpoint::new(connection, &peer, settings.habits.clone()),
            peer: RawPeer::new(first_transfer, first_delivery),
            unread: VecDeque::new(),
            written: 0,
            taken: 0,
            messages: 0,
        }
    }

    fn step(&mut self, step: &RawStep) {
        match step {
            RawStep::Owner(command) => self.end.command(0, command, &mut self.messages),
            RawStep::Peer { wild, channel, handle, what } => {
                let bytes = self.peer.write(*wild, *channel, *handle, what);
                self.say(&bytes);
            }
            RawStep::Write { bytes } => {
                self.write(*bytes as usize);
            }
            RawStep::Read { bytes, events } => {
                self.end.read(*bytes as usize);
                self.poll((*events).into());
            }
            RawStep::RunUntilIdle => self.run_until_idle(),
        }
    }

    /// The peer writes these bytes.
    fn say(&mut self, bytes: &[u8]) {
        for frame in read_all(bytes) {
            self.end.announce(frame);
        }
        self.end.flight.extend(bytes);
    }

    /// The peer takes bytes of output, and answers the frames that are whole.
    fn write(&mut self, bytes: usize) -> bool {
        self.end.look_at_output();
        for frame in std::mem::take(&mut self.end.written) {
            self.written += frame.size as u64;
            self.unread.push_back((self.written, frame));
        }
        let count = self.end.write(bytes).len();
        self.taken += count as u64;
        while self.unread.front().is_some_and(|(end, _)| *end <= self.taken) {
            let (_, frame) = self.unread.pop_front().expect("a frame");
            let answer = self.peer.read(&frame);
            self.say(&answer);
        }
        count > 0
    }

    fn poll(&mut self, most: usize) -> bool {
        for number in 0..most {
            if self.end.must_look_before_poll() {
                self.end.look_at_output();
            }
            if !self.end.poll() {
                return number > 0;
            }
        }
        true
    }

    fn run_until_idle(&mut self) {
        for round in 0.. {
            assert!(round < MAX_ROUNDS, "the conversation does not become idle");
            let mut moved = self.write(usize::MAX);
            moved |= self.end.read(usize::MAX) > 0;
            moved |= self.poll(usize::MAX);
            if !moved {
                break;
            }
        }
        let reads = self.end.paused || self.end.flight.is_empty() || self.end.model.phase == Phase::Over;
        assert!(reads, "it reads although nothing waits to be written");
    }

    /// All windows and credits are given: everything that waits is sent. Then the peer closes.
    fn finish(&mut self) {
        self.end.pause(false);
        self.run_until_idle();
        for round in 0.. {
            let waits = self.end.queues.iter().any(|(link, queue)| {
                !queue.is_empty() && self.end.model.is_attached(*link, ephor_amqp::performative::Role::Sender)
            });
            if !waits || self.end.model.phase != Phase::Open {
                break;
            }
            assert!(round < MAX_ROUNDS, "messages wait: {:?}", self.end.refused);
            self.give_all();
            self.end.send_woken();
            self.run_until_idle();
        }
        let close = self.peer.write(false, 0, 0, &PeerFrame::Close { error: false });
        self.say(&close);
        self.run_until_idle();
        assert!(self.end.told_closed, "the end of the connection is not reported");
        let mut now = Duration::from_secs(31);
        for _ in 0..10 {
            self.end.connection.on_time(now);
            let count = self.end.connection.output().len();
            self.end.connection.wrote(count);
            now += Duration::from_secs(1);
        }
        assert!(self.end.connection.is_finished(), "{:?}", self.end.connection);
        self.end.check_limits();
        let buffered = self.end.connection.buffered();
        assert_eq!((buffered.unended, buffered.oldest), (0, None), "memory of deliveries that are gone");
    }

    /// The peer settles everything, and gives windows and credit for all links.
    fn give_all(&mut self) {
        // Sessions and links by their place among those that there are.
        for channel in 0..self.peer.sessions.len() as u16 {
            for handle in 0..9 {
                let (window, credit) = (ENOUGH, ENOUGH);
                let flow = PeerFrame::LinkFlow { window, credit, drain: false, echo: false, bare: false };
                let bytes = self.peer.write(false, channel, handle, &flow);
                self.say(&bytes);
            }
            let all =
                PeerFrame::Disposition { back: 200, count: 201, settled: true, outcome: 5, sender: false };
            let bytes = self.peer.write(false, channel, 0, &all);
            self.say(&bytes);
        }
    }
}
