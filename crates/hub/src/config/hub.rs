//! One hub: its name, partitions, retention, event limit and consumer groups.

use std::time::Duration;

use ephor_core::ids::{ConsumerGroup, DEFAULT_CONSUMER_GROUP, HubName, InvalidName};
use ephor_wire::address::same_name;

use super::invalid::{InvalidConfig, Place, within};
use super::quantity::{format_duration, format_size};

/// [`HubConfig::partitions`].
pub const DEFAULT_PARTITIONS: u32 = 4;
/// No hub has more partitions.
pub const MAX_PARTITIONS: u32 = 1024;
/// [`Retention::age`].
pub const DEFAULT_RETENTION_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// A reader that restarts is away for seconds; what is kept for less than a minute would be gone when it is
/// back.
pub const MIN_RETENTION_AGE: Duration = Duration::from_secs(60);
/// A hundred years: beyond it "forever" is meant, and that is said by leaving the age out.
pub const MAX_RETENTION_AGE: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);
/// [`HubConfig::max_event_bytes`].
pub const DEFAULT_MAX_EVENT_BYTES: u64 = 1 << 20;
/// The largest [`HubConfig::max_event_bytes`]: an event is held in memory whole, by every reader of it.
pub const MAX_MAX_EVENT_BYTES: u64 = 16 << 20;
/// No hub has more consumer groups, `$Default` aside.
pub const MAX_GROUPS: usize = 1000;

/// What follows the hub in an address (`hub/ConsumerGroups/group/Partitions/0`, `hub/Publishers/name`).
const WORDS_OF_ADDRESSES: [&str; 3] = ["ConsumerGroups", "Partitions", "Publishers"];

/// How long a hub keeps its events. Whole segments go, so a little more is kept than is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Events older than this go; [`DEFAULT_RETENTION_AGE`]. `None`: age is no reason to go. The time that the hub
    /// runs counts at once; time in which it was off, or by which the wall clock was set ahead, when the clocks have
    /// agreed for a day.
    pub age: Option<Duration>,
    /// When the hub's log is larger than this, the oldest events go. `None` (the default): size is no reason
    /// to go, except in memory: see
    /// [`NamespaceConfig::effective_retention`](super::NamespaceConfig::effective_retention).
    pub bytes: Option<u64>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { age: Some(DEFAULT_RETENTION_AGE), bytes: None }
    }
}

/// One hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubConfig {
    /// What it is called. The service compares names without case, so no two hubs may differ in case alone.
    pub name: HubName,
    /// 1 to [`MAX_PARTITIONS`]; [`DEFAULT_PARTITIONS`]. May grow later, never shrink.
    pub partitions: u32,
    /// How long events are kept.
    pub retention: Retention,
    /// A larger event is refused; [`DEFAULT_MAX_EVENT_BYTES`], at most [`MAX_MAX_EVENT_BYTES`].
    pub max_event_bytes: u64,
    /// The consumer groups beside `$Default`, which is always there and never listed.
    pub groups: Vec<ConsumerGroup>,
}

impl HubConfig {
    /// A hub with this name and number of partitions, and defaults for the rest.
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

    /// Says what is wrong with it, taken by itself.
    ///
    /// What depends on the namespace is checked by
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
                return refuse(format!("{DEFAULT_CONSUMER_GROUP} is always there; leave it out"));
            }
            if group.as_str().starts_with('$') {
                return refuse(format!("{group:?} begins with \"$\", as only names of the service do"));
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

/// A number that may not even fit its field: files have large ones.
pub(super) fn check_partitions(place: Place, partitions: u64) -> Result<(), InvalidConfig> {
    within(place, partitions, (1, u64::from(MAX_PARTITIONS)), "a number", |number| number.to_string())
}

/// Refuses names that an address could not carry; `$` is no character of a hub's name to begin with.
fn check_name(place: &Place, name: &HubName) -> Result<(), InvalidConfig> {
    let refuse = |problem| Err(InvalidConfig::new(place.clone(), format!("hub name {name:?} {problem}")));
    let text = name.as_str();
    if text.starts_with('/') || text.ends_with('/') {
        return refuse("begins or ends with a slash, which addresses lose; leave it out".to_owned());
    }
    for part in text.split('/') {
        if part.is_empty() {
            return refuse("has two slashes in a row; leave one out".to_owned());
        }
        if part == "." || part == ".." {
            return refuse(format!("has the part {part:?}, which addresses resolve away; rename it"));
        }
        if let Some(word) = WORDS_OF_ADDRESSES.iter().find(|word| same_name(word, part)) {
            return refuse(format!(
                "has the part {part:?}: in an address, {word:?} ends the hub's name; rename it"
            ));
        }
    }
    Ok(())
}
