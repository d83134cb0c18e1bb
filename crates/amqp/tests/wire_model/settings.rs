//! The random settings of a conversation: the limits of both ends, and the habits of their applications.

use std::fmt;
use std::time::Duration;

use ephor_amqp::connection::{Config, SharedLimits};
use ephor_amqp::limits::Limits;
use ephor_amqp::shared_limit::SharedLimit;
use fastrand::Rng;

/// The habits of an application.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    /// It answers an `attach` in a later step.
    pub(crate) answers_late: bool,
    /// It sends in a later step after it was told that it may.
    pub(crate) sends_late: bool,
    pub(crate) settles_late: bool,
    /// It returns the credit of a drain in a later step.
    pub(crate) drains_late: bool,
    /// It grants credit again once there is none.
    pub(crate) renews: bool,
    /// The credit that it grants at first.
    pub(crate) credit: u32,
    /// The delivery-count that its links begin with.
    pub(crate) first_count: u32,
    /// The message size that it announces.
    pub(crate) largest_message: Option<u64>,
}

/// One end.
#[derive(Clone, Debug)]
pub(crate) struct EndSettings {
    pub(crate) config: Config,
    pub(crate) habits: Habits,
}

impl EndSettings {
    /// The configuration, with shared limits that no other play has.
    pub(crate) fn fresh_config(&self) -> Config {
        let SharedLimits { sessions, links } = &self.config.shared;
        let (sessions, links) = (SharedLimit::new(sessions.max()), SharedLimit::new(links.max()));
        Config { shared: SharedLimits { sessions, links }, ..self.config.clone() }
    }
}

impl fmt::Display for EndSettings {
    /// In one line, without what is as by default.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { limits, shared, first_transfer, first_delivery, .. } = &self.config;
        write!(
            formatter,
            "frame {}, out {}, channels {}, sessions {}, handles {}, links {}, window {}, message {}, unsettled \
             {}, incomplete {}, output {}, to pause {}, shared {} and {}, first transfer {first_transfer}, first \
             delivery {first_delivery}\n{:?}",
            limits.frame,
            limits.frame_out,
            limits.channel_max,
            limits.sessions,
            limits.handle_max,
            limits.links,
            limits.window,
            limits.message,
            limits.unsettled,
            limits.incomplete,
            limits.output,
            limits.output_to_pause_reading,
            shared.sessions.max(),
            shared.links.max(),
            self.habits
        )
    }
}

/// Numbers that wrap around soon, or not.
fn first_number(random: &mut Rng) -> u32 {
    match random.u8(0..4) {
        0 => 0,
        1 => 1,
        2 => u32::MAX - random.u32(0..12),
        _ => random.u32(..),
    }
}

fn one_of(random: &mut Rng, values: &[usize]) -> usize {
    values[random.usize(..values.len())]
}

fn limits(random: &mut Rng) -> Limits {
    let output = one_of(random, &[600, 1_500, 4_000, 20_000]);
    Limits {
        frame: one_of(random, &[512, 600, 1_000, 4_096]) as u32,
        frame_out: one_of(random, &[512, 700, 2_000]) as u32,
        channel_max: random.u16(3..12),
        sessions: 16,
        handle_max: random.u32(2..8),
        links: 24,
        window: one_of(random, &[2, 3, 4, 8, 40]) as u32,
        message: one_of(random, &[1_500, 4_000, 100_000]) as u64,
        unsettled: one_of(random, &[1, 2, 5, 1_000]),
        incomplete: one_of(random, &[2_500, 6_000, 30_000]),
        incomplete_notice: one_of(random, &[500, usize::MAX]),
        output,
        output_to_pause_reading: output * one_of(random, &[1, 2, 4]),
        ..Limits::default()
    }
}

fn habits(random: &mut Rng) -> Habits {
    Habits {
        answers_late: random.u8(0..4) == 0,
        sends_late: random.u8(0..3) == 0,
        settles_late: random.bool(),
        drains_late: random.u8(0..3) == 0,
        renews: random.u8(0..3) != 0,
        credit: [0, 1, 2, 5, 100][random.usize(..5)],
        first_count: first_number(random),
        largest_message: [None, Some(700), Some(2_000)][random.usize(..3)],
    }
}

fn shared(random: &mut Rng) -> SharedLimits {
    match random.u8(0..6) {
        0 => SharedLimits {
            sessions: SharedLimit::new(random.usize(1..5)),
            links: SharedLimit::new(random.usize(2..8)),
        },
        _ => SharedLimits::default(),
    }
}

/// Both ends of a conversation, of which nothing is shared with another play of it.
pub(crate) fn draw(random: &mut Rng) -> [EndSettings; 2] {
    let mut ends = [(), ()].map(|()| {
        let config = Config {
            limits: limits(random),
            shared: shared(random),
            idle_time_out: Some(Duration::from_secs(20)),
            first_transfer: first_number(random),
            first_delivery: first_number(random),
            ..Config::new("end")
        };
        EndSettings { config, habits: habits(random) }
    });
    // A link may be attached before the peer has said which handles it allows.
    ends[1].config.limits.handle_max = ends[0].config.limits.handle_max;
    // A receiver that keeps fewer than its sender sends ends the session.
    if random.u8(0..8) != 0 {
        let most = ends[0].config.limits.unsettled.min(ends[1].config.limits.unsettled);
        ends.iter_mut().for_each(|end| end.config.limits.unsettled = most);
    }
    match random.u8(0..10) {
        0 => ends[random.usize(..2)].config.limits.links = random.usize(1..4),
        1 => ends[random.usize(..2)].config.limits.sessions = random.usize(1..3),
        _ => {}
    }
    ends
}
