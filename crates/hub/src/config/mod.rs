//! The configuration of a namespace and its hubs: plain structs, defaults and validation.
//!
//! | file | owns |
//! |---|---|
//! | `hub.rs` | one hub: partitions, retention, groups |
//! | `durability.rs` | what an acknowledgement guarantees |
//! | `quantity.rs` | sizes and durations such as `64MiB` and `7d` |
//! | `file.rs` | the JSON configuration file |
//! | `emulator.rs` | the `Config.json` of the Event Hubs emulator |
//! | `json.rs` | a JSON reader that keeps the line of each value, for errors |
//! | `invalid.rs` | the error for an invalid value, and its place |

mod durability;
mod emulator;
mod file;
mod hub;
mod invalid;
mod json;
pub mod quantity;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ephor_core::ids::Namespace;
use ephor_wire::address::same_name;

pub use durability::{Durability, UnknownDurability};
pub use file::{ConfigFile, ConfigFileError};
pub use hub::{
    DEFAULT_MAX_EVENT_BYTES, DEFAULT_PARTITIONS, DEFAULT_RETENTION_AGE, HubConfig, MAX_GROUPS,
    MAX_MAX_EVENT_BYTES, MAX_PARTITIONS, MAX_RETENTION_AGE, MIN_RETENTION_AGE, Retention,
};
pub use invalid::{InvalidConfig, Place};

use invalid::within;
use quantity::{format_duration, format_size};

/// [`NamespaceConfig::name`].
pub const DEFAULT_NAMESPACE: &str = "localhost";
/// [`NamespaceConfig::segment_bytes`].
pub const DEFAULT_SEGMENT_BYTES: u64 = 64 << 20;
/// The smallest [`NamespaceConfig::segment_bytes`]: one page of most disks and file systems.
pub const MIN_SEGMENT_BYTES: u64 = 4 << 10;
/// The largest [`NamespaceConfig::segment_bytes`]: retention frees whole segments.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 30;
/// [`NamespaceConfig::recent_bytes`].
pub const DEFAULT_RECENT_BYTES: u64 = 16 << 20;
/// [`NamespaceConfig::queue_bytes`].
pub const DEFAULT_QUEUE_BYTES: u64 = 64 << 20;
/// [`NamespaceConfig::vanish_after`], as the service has it.
pub const DEFAULT_VANISH_AFTER: Duration = ephor_core::receivers::DEFAULT_VANISH_AFTER;
/// [`NamespaceConfig::disk_reserve_bytes`], on a disk that is large enough.
pub const DEFAULT_DISK_RESERVE_BYTES: u64 = 1 << 30;
/// On a smaller disk, one part in this many of it is kept free.
pub const DEFAULT_DISK_RESERVE_PARTS: u64 = 20;
/// The smallest [`NamespaceConfig::vanish_after`]: a receiver is also silent between two calls.
pub const MIN_VANISH_AFTER: Duration = Duration::from_secs(1);
/// The largest [`NamespaceConfig::vanish_after`]: a day.
pub const MAX_VANISH_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// A retention size is at least this many segments. The active segment always stays and whole segments are deleted, so
/// with fewer the log would be far from the configured size.
pub const MIN_RETENTION_SEGMENTS: u64 = 4;
/// The retention size of a hub in memory if none is given.
pub const DEFAULT_MEMORY_RETENTION_BYTES: u64 = 256 << 20;

/// A namespace and its hubs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// The name that clients use; [`DEFAULT_NAMESPACE`].
    pub name: Namespace,
    /// The guarantee of an acknowledged send; [`Durability::Disk`].
    pub durability: Durability,
    /// The hubs that exist from the start. Others may be created later.
    pub hubs: Vec<HubConfig>,
    /// The size of a segment file of a log; [`DEFAULT_SEGMENT_BYTES`]. A batch is never split, so a larger one has a file of
    /// its own.
    pub segment_bytes: u64,
    /// The cache of recent events, per hub and shared by all its readers; [`DEFAULT_RECENT_BYTES`]. With 0 every reader
    /// reads the files.
    pub recent_bytes: u64,
    /// The size of the commit queue, per hub: when it is full, senders wait; [`DEFAULT_QUEUE_BYTES`].
    pub queue_bytes: u64,
    /// A receiver that was silent for this long counts as gone; [`DEFAULT_VANISH_AFTER`].
    pub vanish_after: Duration,
    /// Senders are refused while less than this is free on the disk of the data folder, so that readers, groups and other
    /// programs on that disk continue. `None` (the default): [`DEFAULT_DISK_RESERVE_BYTES`], or 5 % of the
    /// disk if that is less. With 0 senders may fill the disk.
    pub disk_reserve_bytes: Option<u64>,
}

impl Default for NamespaceConfig {
    fn default() -> Self {
        Self {
            name: DEFAULT_NAMESPACE.parse().expect("the default is a name"),
            durability: Durability::default(),
            hubs: Vec::new(),
            segment_bytes: DEFAULT_SEGMENT_BYTES,
            recent_bytes: DEFAULT_RECENT_BYTES,
            queue_bytes: DEFAULT_QUEUE_BYTES,
            vanish_after: DEFAULT_VANISH_AFTER,
            disk_reserve_bytes: None,
        }
    }
}

impl NamespaceConfig {
    /// Checks the configuration. The error says which value is invalid, and what to write instead.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let top = Place::top();
        let limits = (MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES);
        within(top.field("segment_bytes"), self.segment_bytes, limits, "a size", format_size)?;
        let limits = (MIN_VANISH_AFTER, MAX_VANISH_AFTER);
        within(top.field("vanish_after"), self.vanish_after, limits, "a duration", format_duration)?;
        for (index, hub) in self.hubs.iter().enumerate() {
            let place = top.field("hubs").index(index);
            self.validate_hub_at(&place, hub)?;
            let earlier =
                self.hubs.iter().take(index).find(|other| same_name(other.name.as_str(), hub.name.as_str()));
            let problem = match earlier {
                Some(other) if other.name == hub.name => format!("the hub {:?} is listed twice", hub.name),
                Some(other) => format!(
                    "the hubs {:?} and {:?} differ only in case, which the service does not see; rename one",
                    other.name, hub.name
                ),
                None => continue,
            };
            return Err(InvalidConfig::new(place.field("name"), problem));
        }
        Ok(())
    }

    /// Checks the configuration of a hub for this namespace. Does not check whether its name is taken.
    pub fn validate_hub(&self, hub: &HubConfig) -> Result<(), InvalidConfig> {
        self.validate_hub_at(&Place::top(), hub)
    }

    fn validate_hub_at(&self, place: &Place, hub: &HubConfig) -> Result<(), InvalidConfig> {
        hub.validate_at(place)?;
        if hub.max_event_bytes > self.queue_bytes {
            let problem = format!(
                "{} is more than queue_bytes ({}), so the largest event could never be sent; lower it, or \
                 raise queue_bytes to at least {0}",
                format_size(hub.max_event_bytes),
                format_size(self.queue_bytes)
            );
            return Err(InvalidConfig::new(place.field("max_event_bytes"), problem));
        }
        match hub.retention.bytes {
            Some(bytes) => self.check_retention_bytes(place.field("retention").field("bytes"), bytes),
            None => Ok(()),
        }
    }

    fn check_retention_bytes(&self, place: Place, bytes: u64) -> Result<(), InvalidConfig> {
        let least = self.segment_bytes.saturating_mul(MIN_RETENTION_SEGMENTS);
        if bytes >= least {
            return Ok(());
        }
        let smaller = bytes / MIN_RETENTION_SEGMENTS;
        let or_else = match smaller {
            MIN_SEGMENT_BYTES.. => format!(", or lower segment_bytes to {} or less", format_size(smaller)),
            _ => String::new(),
        };
        let problem = format!(
            "{} is less than {MIN_RETENTION_SEGMENTS} segments of {} (segment_bytes); write at least \
             {}{or_else}",
            format_size(bytes),
            format_size(self.segment_bytes),
            format_size(least)
        );
        Err(InvalidConfig::new(place, problem))
    }

    /// Returns the effective retention of a hub of this namespace: the same, except that hubs in memory have a size limit
    /// even if none is given ([`DEFAULT_MEMORY_RETENTION_BYTES`]).
    pub fn effective_retention(&self, asked: Retention) -> Retention {
        let least = self.segment_bytes.saturating_mul(MIN_RETENTION_SEGMENTS);
        match self.durability {
            Durability::Memory => {
                let bytes = asked.bytes.unwrap_or(DEFAULT_MEMORY_RETENTION_BYTES.max(least));
                Retention { bytes: Some(bytes), ..asked }
            }
            Durability::Disk | Durability::PageCache => asked,
        }
    }
}
