//! What a connection is told before it begins.

use std::time::Duration;

use crate::encoded::Encoded;
use crate::limits::Limits;
use crate::performative::{Open, Secret};
use crate::shared_limit::SharedLimit;

/// The mechanisms that Event Hubs offers; all mean that authorisation comes later, on a link.
pub const SERVICE_MECHANISMS: [&str; 4] = ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"];

/// What a server does about SASL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSasl {
    /// What it offers.
    pub mechanisms: Vec<String>,
    /// Whether its owner decides ([`super::Event::Authenticate`]), or everyone is let in.
    pub ask: bool,
    /// Whether a client may leave it out.
    pub optional: bool,
}

impl Default for ServerSasl {
    /// As Event Hubs does it.
    fn default() -> Self {
        let mechanisms = SERVICE_MECHANISMS.map(str::to_owned).into();
        Self { mechanisms, ask: false, optional: true }
    }
}

/// How a client shows who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientSasl {
    /// It begins with AMQP.
    Skip,
    /// It does not.
    Anonymous,
    /// By a name and a password.
    Plain {
        /// The name.
        user: String,
        /// The password.
        password: Secret,
    },
}

/// What both roles are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The name of this end.
    pub container_id: String,
    /// The host that a client wants.
    pub hostname: Option<String>,
    /// What the peer is told to send something within. It is given up after twice that, as the
    /// specification has it. Two minutes by default.
    pub idle_time_out: Option<Duration>,
    /// Symbols for `open`.
    pub desired_capabilities: Option<Encoded>,
    /// A map for `open`.
    pub properties: Option<Encoded>,
    /// What the peer may use up.
    pub limits: Limits,
    /// What this connection and others may have together.
    pub shared: SharedLimits,
}

/// What many connections may have together; no limit by default. A peer that wants more is refused just that, and
/// keeps what it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedLimits {
    /// Sessions, until both ends have ended them.
    pub sessions: SharedLimit,
    /// Links, until both ends have detached them.
    pub links: SharedLimit,
}

impl Config {
    /// With this name and the defaults.
    pub fn new(container_id: impl Into<String>) -> Self {
        Self {
            container_id: container_id.into(),
            hostname: None,
            idle_time_out: Some(Duration::from_secs(120)),
            desired_capabilities: None,
            properties: None,
            limits: Limits::default(),
            shared: SharedLimits::default(),
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
