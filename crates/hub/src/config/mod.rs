//! What a namespace of hubs is told from outside: plain structs, their defaults, and what is wrong with a
//! wrong value.
//!
//! | file | owns |
//! |---|---|
//! | `hub.rs` | one hub: partitions, retention, groups |
//! | `durability.rs` | what an acknowledgement promises |
//! | `quantity.rs` | `64MiB` and `7d`, read and written |
//! | `file.rs` | our JSON file |
//! | `emulator.rs` | the `Config.json` of the Event Hubs emulator |
//! | `json.rs` | JSON that remembers where its values stand |
//! | `invalid.rs` | what is wrong, and where |

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
/// On a smaller disk one part in so many is kept free.
pub const DEFAULT_DISK_RESERVE_PARTS: u64 = 20;
/// A receiver between two calls is silent, too.
pub const MIN_VANISH_AFTER: Duration = Duration::from_secs(1);
/// A day: the place of a receiver that vanished is wanted again before.
pub const MAX_VANISH_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// A size to keep is at least this many segments. The one being written always stays and one goes at a time,
/// so with fewer the size kept would have little to do with the size asked for.
pub const MIN_RETENTION_SEGMENTS: u64 = 4;
/// What a hub in memory keeps at most if no size is given: memory is no disk to fill for a week.
pub const DEFAULT_MEMORY_RETENTION_BYTES: u64 = 256 << 20;

/// A namespace and its hubs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// What clients call it; [`DEFAULT_NAMESPACE`].
    pub name: Namespace,
    /// What an acknowledged send promises; [`Durability::Disk`].
    pub durability: Durability,
    /// The hubs that are there from the start. Others may be created later.
    pub hubs: Vec<HubConfig>,
    /// How large a file of a log grows before the next is begun; [`DEFAULT_SEGMENT_BYTES`]. A batch is never
    /// cut in two, so one that is larger has a file of its own.
    pub segment_bytes: u64,
    /// Memory for recently sent events, per hub and shared by all its readers; [`DEFAULT_RECENT_BYTES`].
    /// With 0 every reader reads the files.
    pub recent_bytes: u64,
    /// Bytes of sends that may wait for the disk, per hub, before further ones have to wait;
    /// [`DEFAULT_QUEUE_BYTES`].
    pub queue_bytes: u64,
    /// A receiver that was silent for this long no longer counts; [`DEFAULT_VANISH_AFTER`].
    pub vanish_after: Duration,
    /// Senders are refused while less than this is free on the disk of the data folder, so that readers, groups and
    /// whatever else lives on that disk go on. `None` (the default): [`DEFAULT_DISK_RESERVE_BYTES`], or 5 % of the
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
    /// Says what is wrong with it, where, and what to write instead.
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

    /// Says what is wrong with a hub that is to live in this namespace; whether its name is taken is not
    /// asked.
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

    /// What a hub of this namespace keeps if it is asked to keep this.
    ///
    /// The same, except that hubs in memory have a size limit even if none is given:
    /// [`DEFAULT_MEMORY_RETENTION_BYTES`].
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
