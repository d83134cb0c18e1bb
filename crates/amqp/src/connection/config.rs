//! The configuration of a connection: its SASL, its `open`, and the limits that many connections share. The
//! limits of one connection are in `limits.rs`.

use std::time::Duration;

use crate::encoded::Encoded;
use crate::limits::Limits;
use crate::performative::{Open, Secret};
use crate::shared_limit::SharedLimit;

/// The mechanisms that Event Hubs offers. With all but PLAIN, authorization comes later, on a link.
pub const SERVICE_MECHANISMS: [&str; 4] = ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"];

/// The SASL configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSasl {
    /// The mechanisms that it offers.
    pub mechanisms: Vec<String>,
    /// True if the owner decides ([`super::Event::Authenticate`]); otherwise every client is admitted.
    pub ask: bool,
    /// True if a client may leave out SASL.
    pub optional: bool,
}

impl Default for ServerSasl {
    /// As Event Hubs does.
    fn default() -> Self {
        let mechanisms = SERVICE_MECHANISMS.map(str::to_owned).into();
        Self { mechanisms, ask: false, optional: true }
    }
}

/// The SASL configuration of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientSasl {
    /// No SASL: the client begins with AMQP.
    Skip,
    /// ANONYMOUS: no credentials.
    Anonymous,
    /// PLAIN: a name and a password.
    Plain {
        /// The name.
        user: String,
        /// The password.
        password: Secret,
    },
}

/// The configuration of both roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The container id of this end.
    pub container_id: String,
    /// The host name that a client wants to reach.
    pub hostname: Option<String>,
    /// The idle timeout that the peer is told. The peer is considered dead after twice that without a frame,
    /// as the specification recommends. Two minutes by default.
    pub idle_time_out: Option<Duration>,
    /// An array of symbols for `open`.
    pub desired_capabilities: Option<Encoded>,
    /// A map for `open`.
    pub properties: Option<Encoded>,
    /// The limits of this connection.
    pub limits: Limits,
    /// The limits of this connection and others together.
    pub shared: SharedLimits,
    /// The number of the first transfer of each session, as in Event Hubs: 1. Numbers wrap around at 2^32, and
    /// tests begin shortly before.
    pub first_transfer: u32,
    /// The number of the first delivery of each session, as in Event Hubs: 0.
    pub first_delivery: u32,
}

/// Limits of many connections together; no limits by default. Beyond them only the new session or link is
/// refused, and existing ones stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedLimits {
    /// Sessions, until both ends have ended them.
    pub sessions: SharedLimit,
    /// Links, until both ends have detached them.
    pub links: SharedLimit,
}

impl Config {
    /// A configuration with this container id and the defaults.
    pub fn new(container_id: impl Into<String>) -> Self {
        Self {
            container_id: container_id.into(),
            hostname: None,
            idle_time_out: Some(Duration::from_secs(120)),
            desired_capabilities: None,
            properties: None,
            limits: Limits::default(),
            shared: SharedLimits::default(),
            first_transfer: 1,
            first_delivery: 0,
        }
    }

    pub(super) fn open(&self) -> Open {
        let milliseconds = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        Open {
            container_id: self.container_id.clone(),
            hostname: self.hostname.clone(),
            max_frame_size: Some(self.limits.frame),
            channel_max: Some(self.limits.channel_max),
            idle_time_out: self.idle_time_out.map(milliseconds),
            offered_capabilities: None,
            desired_capabilities: self.desired_capabilities.clone(),
            properties: self.properties.clone(),
        }
    }
}
