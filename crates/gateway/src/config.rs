//! The configuration of a gateway: keys, limits and defaults.

use std::time::Duration;

use ephor_wire::connection_string::{DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME};
use ephor_wire::sas::{Claims, Key, SharedKey};

/// Default of [`GatewayLimits::connections`].
pub const DEFAULT_CONNECTIONS: usize = 4096;
/// Default of [`GatewayLimits::unauthenticated`].
pub const DEFAULT_UNAUTHENTICATED: usize = 256;
/// Default of [`GatewayLimits::time_to_open`].
pub const DEFAULT_TIME_TO_OPEN: Duration = Duration::from_secs(10);
/// Default of [`GatewayLimits::unauthenticated_bytes`]: for each connection 96 KiB, which are the sessions of a
/// client that reads 200 partitions.
pub const DEFAULT_UNAUTHENTICATED_BYTES: usize = DEFAULT_UNAUTHENTICATED * (96 << 10);
/// Default of [`GatewayLimits::time_without_links`]: the service closes such connections after the same time.
pub const DEFAULT_TIME_WITHOUT_LINKS: Duration = Duration::from_secs(60);
/// Default of [`GatewayLimits::links`]: one host may read every partition of the largest hub, and query its properties.
pub const DEFAULT_LINKS: usize = 2048;
/// Default of [`GatewayLimits::bytes_in_flight`].
pub const DEFAULT_BYTES_IN_FLIGHT: usize = 8 << 20;
/// Default of [`GatewayLimits::buffered_bytes`]: 32 connections at their limit of [`GatewayLimits::bytes_in_flight`].
pub const DEFAULT_BUFFERED_BYTES: usize = 32 * DEFAULT_BYTES_IN_FLIGHT;
/// The minimum of [`GatewayLimits::buffered_bytes`]: two messages of the largest size that a hub may take.
pub const MIN_BUFFERED_BYTES: usize = 2 * ephor_hub::config::MAX_MAX_EVENT_BYTES as usize;
/// Default of [`GatewayLimits::time_to_finish`].
pub const DEFAULT_TIME_TO_FINISH: Duration = Duration::from_secs(60);
/// Default of [`GatewayLimits::time_to_read`].
pub const DEFAULT_TIME_TO_READ: Duration = Duration::from_secs(60);
/// Default of [`GatewayLimits::tokens`]: SDKs put one for each link, or one for all.
pub const DEFAULT_TOKENS: usize = DEFAULT_LINKS;
/// Default of [`GatewayLimits::total_links`]: 32 connections at their limit of links, about 200 MB of receivers.
pub const DEFAULT_TOTAL_LINKS: usize = 32 * DEFAULT_LINKS;
/// Default of [`GatewayLimits::total_sessions`]: most SDKs begin one for each link.
pub const DEFAULT_TOTAL_SESSIONS: usize = DEFAULT_TOTAL_LINKS;
/// Default of [`GatewayLimits::total_tokens`]: SDKs put one for each link, or one for all.
pub const DEFAULT_TOTAL_TOKENS: usize = DEFAULT_TOTAL_LINKS;
/// Default of [`GatewayLimits::time_to_stop`].
pub const DEFAULT_TIME_TO_STOP: Duration = Duration::from_secs(5);

/// Links of a connection without a token. Refused links count until the peer has answered the `detach`.
pub(crate) const MAX_LINKS_UNAUTHENTICATED: usize = 32;

/// The configuration of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// The keys, and what each permits. The default is [`development_key`], which everybody knows; with it
    /// only loopback is served. Without any key everything is permitted, on loopback only.
    pub keys: Vec<SharedKey>,
    /// Serves other addresses than loopback without TLS, without keys or with the development key. Off by
    /// default; only for networks that nobody else can reach.
    pub allow_insecure: bool,
    /// The resources that peers may use.
    pub limits: GatewayLimits,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self { keys: vec![development_key()], allow_insecure: false, limits: GatewayLimits::default() }
    }
}

/// The resources that peers may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayLimits {
    /// Authenticated connections, all together; [`DEFAULT_CONNECTIONS`]. Lowered if the process may not have
    /// open twice as many files: the other half is for the hubs.
    pub connections: usize,
    /// Connections that have not put a token yet, or whose last token expired; [`DEFAULT_UNAUTHENTICATED`].
    /// Beyond it one is closed: the oldest of those in the most crowded stage of the handshake. Regular
    /// clients pass all stages within a moment. Unauthenticated connections may use far less than others.
    pub unauthenticated: usize,
    /// Bytes that all unauthenticated connections together use for sessions, links, incomplete requests and
    /// output that is not read; [`DEFAULT_UNAUTHENTICATED_BYTES`]. Beyond it the oldest of those that use more
    /// than an equal share is closed, and so is one that alone uses more than 1 MiB or a 32nd of the limit,
    /// whichever is more. The same holds for their sessions beyond half of [`Self::total_sessions`]. A
    /// connection whose last token expired has [`Self::time_without_links`] to put a new one before it counts
    /// here. Within that, an unauthenticated connection stays for as long as it likes:
    /// SDKs open one session for each partition before they put a token, some send their tokens with each
    /// request to `$management` only, and one ends its process if a connection is closed while it retries
    /// with a wrong key.
    pub unauthenticated_bytes: usize,
    /// Time from connecting to the `open` of AMQP, TLS included; [`DEFAULT_TIME_TO_OPEN`].
    pub time_to_open: Duration,
    /// Time for which an unauthenticated connection may be without a link; [`DEFAULT_TIME_WITHOUT_LINKS`].
    pub time_without_links: Duration,
    /// Links of one connection; [`DEFAULT_LINKS`].
    pub links: usize,
    /// Bytes of events that one connection may have on their way to the disk. At this limit nothing more is
    /// read from it; [`DEFAULT_BYTES_IN_FLIGHT`].
    pub bytes_in_flight: usize,
    /// Bytes that all connections together buffer for their peers: incomplete deliveries, answers that are
    /// not taken, events on their way to the disk, events read from the log, and output that is not read;
    /// [`DEFAULT_BUFFERED_BYTES`]. When that is used up, nothing more is read from connections that buffer
    /// more than their share. If large connections keep most of it as incomplete deliveries, answers, or
    /// output that has not been read for some seconds, the one with the oldest of them is closed, but none
    /// that keeps less than its share.
    ///
    /// The memory of all connections is more than that. A quarter is added for connections that buffer no
    /// more than one message and one read of the log: they do not wait. 80 KiB are added for each connection:
    /// 16 KiB are not counted, and a connection with 64 KiB does not wait for others. With the defaults that
    /// is 640 MiB. A connection learns that it has to wait after it has read, so that what all of them read
    /// at one moment is added, usually 128 KiB each; and so are 64 reads of the log, usually of 1 MiB each.
    pub buffered_bytes: usize,
    /// Time for the next part of an incomplete delivery; then its link is detached;
    /// [`DEFAULT_TIME_TO_FINISH`]. The whole delivery may take ten times as long.
    pub time_to_finish: Duration,
    /// Time for a peer to read a tenth of the output that waits for it, or it is disconnected; and to take
    /// an answer from a link, or that link is detached; [`DEFAULT_TIME_TO_READ`].
    pub time_to_read: Duration,
    /// Tokens for different audiences that a connection may put; [`DEFAULT_TOKENS`].
    pub tokens: usize,
    /// Links of all connections together; [`DEFAULT_TOTAL_LINKS`]. Beyond it a new link is refused
    /// (`amqp:resource-limit-exceeded`), and all existing ones stay. At least twice as many as all
    /// unauthenticated connections may have, which is 32 for each of [`Self::unauthenticated`].
    pub total_links: usize,
    /// Sessions of all connections together; [`DEFAULT_TOTAL_SESSIONS`]. As with links; unauthenticated
    /// connections may have half of them.
    pub total_sessions: usize,
    /// Tokens of all connections together; [`DEFAULT_TOTAL_TOKENS`]. Beyond it a new token is refused; a
    /// token that replaces another one, as renewals do, is taken. Tokens count until a minute after they
    /// expired.
    pub total_tokens: usize,
    /// Time for peers to answer `close` when the gateway stops; [`DEFAULT_TIME_TO_STOP`].
    pub time_to_stop: Duration,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            connections: DEFAULT_CONNECTIONS,
            unauthenticated: DEFAULT_UNAUTHENTICATED,
            time_to_open: DEFAULT_TIME_TO_OPEN,
            unauthenticated_bytes: DEFAULT_UNAUTHENTICATED_BYTES,
            time_without_links: DEFAULT_TIME_WITHOUT_LINKS,
            links: DEFAULT_LINKS,
            bytes_in_flight: DEFAULT_BYTES_IN_FLIGHT,
            buffered_bytes: DEFAULT_BUFFERED_BYTES,
            time_to_finish: DEFAULT_TIME_TO_FINISH,
            time_to_read: DEFAULT_TIME_TO_READ,
            tokens: DEFAULT_TOKENS,
            total_links: DEFAULT_TOTAL_LINKS,
            total_sessions: DEFAULT_TOTAL_SESSIONS,
            total_tokens: DEFAULT_TOTAL_TOKENS,
            time_to_stop: DEFAULT_TIME_TO_STOP,
        }
    }
}

/// The error in a configuration, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidGateway(String);

impl GatewayConfig {
    /// Returns the first error of the configuration.
    pub fn validate(&self) -> Result<(), InvalidGateway> {
        let wrong = |text: String| Err(InvalidGateway(text));
        let limits = &self.limits;
        for (name, value) in [
            ("connections", limits.connections),
            ("unauthenticated", limits.unauthenticated),
            ("unauthenticated_bytes", limits.unauthenticated_bytes),
            ("links", limits.links),
            ("bytes_in_flight", limits.bytes_in_flight),
            ("tokens", limits.tokens),
            ("total_tokens", limits.total_tokens),
        ] {
            if value == 0 {
                return wrong(format!("{name} must be at least 1, or nobody is served"));
            }
        }
        for (name, value) in [
            ("time_to_open", limits.time_to_open),
            ("time_without_links", limits.time_without_links),
            ("time_to_read", limits.time_to_read),
            ("time_to_finish", limits.time_to_finish),
        ] {
            if value.is_zero() {
                return wrong(format!("{name} must be longer than 0, or nobody is served; try 10 s"));
            }
        }
        // A flood of unauthenticated connections takes nothing from the authenticated ones.
        let of_each = MAX_LINKS_UNAUTHENTICATED.min(limits.links);
        let least = limits.unauthenticated.saturating_mul(2 * of_each);
        if limits.total_links < least {
            return wrong(format!(
                "total_links ({}) must be at least {least}, twice what {} unauthenticated connections may have; \
                 raise it, or lower unauthenticated",
                limits.total_links, limits.unauthenticated
            ));
        }
        let least = limits.unauthenticated.saturating_mul(2);
        if limits.total_sessions < least {
            return wrong(format!(
                "total_sessions ({}) must be at least {least}, or {} unauthenticated connections have less than one \
                 session each; raise it, or lower unauthenticated",
                limits.total_sessions, limits.unauthenticated
            ));
        }
        if limits.buffered_bytes < MIN_BUFFERED_BYTES {
            return wrong(format!(
                "buffered_bytes ({}) must be at least {MIN_BUFFERED_BYTES}, or the largest messages cannot be \
                 sent; try {DEFAULT_BUFFERED_BYTES}",
                limits.buffered_bytes
            ));
        }
        for (index, key) in self.keys.iter().enumerate() {
            if key.name.is_empty() || key.key.reveal().is_empty() {
                return wrong(format!("keys[{index}] has no name, or the key itself is empty"));
            }
            if key.claims == Claims::NONE {
                return wrong(format!(
                    "the key {:?} permits nothing; give it Send, Listen or Manage",
                    key.name
                ));
            }
        }
        Ok(())
    }

    /// True if everybody knows a key, or needs none.
    pub(crate) fn has_no_secret_key(&self) -> bool {
        self.keys.is_empty() || self.keys.iter().any(|key| key.key.reveal() == DEVELOPMENT_KEY)
    }
}

/// The key of the development connection string, for the whole namespace:
/// `RootManageSharedAccessKey` / `SAS_KEY_VALUE`, as with Microsoft's emulator.
pub fn development_key() -> SharedKey {
    SharedKey {
        name: DEVELOPMENT_KEY_NAME.to_owned(),
        key: Key::new(DEVELOPMENT_KEY),
        claims: Claims::MANAGE,
        hub: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_configuration_says_what_is_wrong_and_shows_no_key() {
        assert_eq!(GatewayConfig::default().validate(), Ok(()));
        let mut config = GatewayConfig::default();
        config.limits.links = 0;
        assert!(config.validate().unwrap_err().to_string().contains("links must be at least 1"));
        let mut config = GatewayConfig::default();
        config.keys[0].claims = Claims::NONE;
        config.keys[0].key = Key::new("canary");
        assert!(config.validate().unwrap_err().to_string().contains("permits nothing"));
        assert!(!format!("{config:?} {:?}", config.validate()).contains("canary"));
    }

    #[test]
    fn the_development_key_is_no_secret() {
        assert!(GatewayConfig::default().has_no_secret_key());
        let keys = Vec::new();
        assert!(GatewayConfig { keys, ..GatewayConfig::default() }.has_no_secret_key());
        let keys = vec![SharedKey { key: Key::new("other"), ..development_key() }];
        assert!(!GatewayConfig { keys, ..GatewayConfig::default() }.has_no_secret_key());
    }
}
