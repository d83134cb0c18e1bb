//! The configuration of one hub: name, partitions, retention, maximum event size, consumer groups.

use std::time::Duration;

use ephor_core::ids::{ConsumerGroup, DEFAULT_CONSUMER_GROUP, HubName, InvalidName};
use ephor_wire::address::same_name;

use super::invalid::{InvalidConfig, Place, within};
use super::quantity::{format_duration, format_size};

/// [`HubConfig::partitions`].
pub const DEFAULT_PARTITIONS: u32 = 4;
/// The maximum number of partitions.
pub const MAX_PARTITIONS: u32 = 1024;
/// [`Retention::age`].
pub const DEFAULT_RETENTION_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The smallest [`Retention::age`]. A reader that restarts would miss events that are kept for less than a minute.
pub const MIN_RETENTION_AGE: Duration = Duration::from_secs(60);
/// The largest [`Retention::age`]: a hundred years. To keep events for ever, leave the age out.
pub const MAX_RETENTION_AGE: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);
/// [`HubConfig::max_event_bytes`].
pub const DEFAULT_MAX_EVENT_BYTES: u64 = 1 << 20;
/// The largest [`HubConfig::max_event_bytes`]: every reader holds a whole event in memory.
pub const MAX_MAX_EVENT_BYTES: u64 = 16 << 20;
/// The maximum number of consumer groups, without `$Default`.
pub const MAX_GROUPS: usize = 1000;

/// The words that end the hub's name in an address (`hub/ConsumerGroups/group/Partitions/0`, `hub/Publishers/name`).
const ADDRESS_WORDS: [&str; 3] = ["ConsumerGroups", "Partitions", "Publishers"];

/// How long a hub keeps its events. Whole segments are deleted, so a little more is kept than configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Events older than this are deleted; [`DEFAULT_RETENTION_AGE`]. `None`: no limit by age. Time in which the hub runs
    /// counts at once. Time in which it was off, or by which the wall clock was set ahead, counts after a day without a
    /// jump of the clock.
    pub age: Option<Duration>,
    /// When the hub's log is larger than this, the oldest events are deleted. `None` (the default): no limit by size,
    /// except in memory: see
    /// [`NamespaceConfig::effective_retention`](super::NamespaceConfig::effective_retention).
    pub bytes: Option<u64>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { age: Some(DEFAULT_RETENTION_AGE), bytes: None }
    }
}

/// The configuration of one hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubConfig {
    /// Its name. Names are compared without case, so no two hubs may differ in case alone.
    pub name: HubName,
    /// 1 to [`MAX_PARTITIONS`]; [`DEFAULT_PARTITIONS`]. May grow later, never shrink.
    pub partitions: u32,
    /// How long events are kept.
    pub retention: Retention,
    /// Larger events are refused; [`DEFAULT_MAX_EVENT_BYTES`], at most [`MAX_MAX_EVENT_BYTES`].
    pub max_event_bytes: u64,
    /// The consumer groups beside `$Default`, which always exists and is never listed.
    pub groups: Vec<ConsumerGroup>,
}

impl HubConfig {
    /// Creates the configuration of a hub with this name and number of partitions, and defaults for the rest.
    pub fn new(name: &str, partitions: u32) -> Result<Self, InvalidConfig> {
        let place = Place::top().field("name");
        let name = name.parse().map_err(|error: InvalidName| InvalidConfig::new(place, error.to_string()))?;
        let config = Self {
            name,
            partitions,
            retention: Retention::default(),
            max_event_bytes: DEFAULT_MAX_EVENT_BYTES,
            groups: Vec::new(),
        };
        config.validate()?;
        Ok(config)
    }

    /// Checks the configuration by itself.
    ///
    /// Checks the values. Those that depend on the namespace are checked by
    /// [`NamespaceConfig::validate_hub`](super::NamespaceConfig::validate_hub).
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        self.validate_at(&Place::top())
    }

    pub(super) fn validate_at(&self, place: &Place) -> Result<(), InvalidConfig> {
        check_name(&place.field("name"), &self.name)?;
        check_partitions(place.field("partitions"), u64::from(self.partitions))?;
        if let Some(age) = self.retention.age {
            let limits = (MIN_RETENTION_AGE, MAX_RETENTION_AGE);
            within(place.field("retention").field("age"), age, limits, "a duration", format_duration)?;
        }
        let limits = (1, MAX_MAX_EVENT_BYTES);
        within(place.field("max_event_bytes"), self.max_event_bytes, limits, "a size", format_size)?;
        self.check_groups(&place.field("groups"))
    }

    fn check_groups(&self, place: &Place) -> Result<(), InvalidConfig> {
        if self.groups.len() > MAX_GROUPS {
            let problem =
                format!("{} groups are more than {MAX_GROUPS}; list at most {MAX_GROUPS}", self.groups.len());
            return Err(InvalidConfig::new(place.clone(), problem));
        }
        for (index, group) in self.groups.iter().enumerate() {
            let refuse = |problem| Err(InvalidConfig::new(place.index(index), problem));
            if same_name(group.as_str(), DEFAULT_CONSUMER_GROUP) {
                return refuse(format!("{DEFAULT_CONSUMER_GROUP} always exists; leave it out"));
            }
            if group.as_str().starts_with('$') {
                return refuse(format!(
                    "{group:?} begins with \"$\", which is reserved for the service; rename it"
                ));
            }
            let earlier =
                self.groups.iter().take(index).find(|other| same_name(other.as_str(), group.as_str()));
            match earlier {
                Some(other) if other == group => {
                    return refuse(format!("the group {group:?} is listed twice"));
                }
                Some(other) => {
                    return refuse(format!(
                        "the groups {other:?} and {group:?} differ only in case, which the service does not \
                         see; rename one"
                    ));
                }
                None => {}
            }
        }
        Ok(())
    }
}

/// Checks a number of partitions, which in a file may be too large for its field.
pub(super) fn check_partitions(place: Place, partitions: u64) -> Result<(), InvalidConfig> {
    within(place, partitions, (1, u64::from(MAX_PARTITIONS)), "a number", |number| number.to_string())
}

/// Refuses names that cannot be part of an address. (`$` is not allowed in hub names anyway.)
fn check_name(place: &Place, name: &HubName) -> Result<(), InvalidConfig> {
    let refuse = |problem| Err(InvalidConfig::new(place.clone(), format!("hub name {name:?} {problem}")));
    let text = name.as_str();
    if text.starts_with('/') || text.ends_with('/') {
        return refuse("begins or ends with a slash, which addresses drop; leave it out".to_owned());
    }
    for part in text.split('/') {
        if part.is_empty() {
            return refuse("has two slashes in a row; leave one out".to_owned());
        }
        if part == "." || part == ".." {
            return refuse(format!("has the part {part:?}, which addresses resolve away; rename it"));
        }
        if let Some(word) = ADDRESS_WORDS.iter().find(|word| same_name(word, part)) {
            return refuse(format!(
                "has the part {part:?}: in an address, {word:?} ends the hub's name; rename it"
            ));
        }
    }
    Ok(())
}
