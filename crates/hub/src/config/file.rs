//! Reads a configuration file: Ephor's JSON, or that of the Event Hubs emulator (`emulator.rs`).

use std::io;
use std::path::Path;

use super::hub::{DEFAULT_PARTITIONS, HubConfig, Retention, check_partitions};
use super::invalid::{InvalidConfig, Place};
use super::json::{Node, Value, locate};
use super::{NamespaceConfig, emulator};

/// The name in errors of a text that is not from a file.
const NO_FILE: &str = "configuration";

/// A configuration that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// The configuration, validated.
    pub config: NamespaceConfig,
    /// Notes about ignored values, for the log. Only for an emulator's file.
    pub notes: Vec<String>,
}

/// Why a configuration file could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFileError {
    /// It could not be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Which file.
        file: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// It is not JSON, or has a field twice.
    #[error("{file}, line {line}, column {column}: {problem}")]
    Syntax {
        /// Which file.
        file: String,
        /// From 1 on.
        line: usize,
        /// From 1 on; 0 before the first character of a line.
        column: usize,
        /// The problem.
        problem: String,
    },
    /// It has an invalid value.
    #[error("{file}, line {line}, column {column}: {problem}")]
    Invalid {
        /// Which file.
        file: String,
        /// The line where the value ends, or begins if it is an object or a list.
        line: usize,
        /// The column there.
        column: usize,
        /// The value, what is wrong, and what to write instead.
        problem: InvalidConfig,
    },
}

impl NamespaceConfig {
    /// Reads a configuration file: see [`from_json`](Self::from_json).
    pub fn from_file(path: impl AsRef<Path>) -> Result<ConfigFile, ConfigFileError> {
        let path = path.as_ref();
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => read(&text, &file),
            Err(source) => Err(ConfigFileError::Read { file, source }),
        }
    }

    /// Reads a configuration from JSON, and validates it.
    ///
    /// The fields are those of the structs, and what is left out has its default: only a hub's `name` is
    /// needed. A field that is not known is an error. Sizes are texts such as `"64MiB"` or `"500MB"`, or
    /// bytes; durations are texts such as `"7d"`, `"12h"`, `"30m"`, `"45s"`, or seconds. `null` as a limit of
    /// `retention` takes the limit away.
    ///
    /// ```
    /// # use ephor_hub::config::{Durability, NamespaceConfig};
    /// let read = NamespaceConfig::from_json(r#"{
    ///     "name": "localhost",
    ///     "durability": "disk",
    ///     "segment_bytes": "64MiB",
    ///     "recent_bytes": "16MiB",
    ///     "queue_bytes": "64MiB",
    ///     "vanish_after": "10m",
    ///     "disk_reserve_bytes": "2GiB",
    ///     "hubs": [
    ///         { "name": "homes",
    ///           "partitions": 16,
    ///           "retention": { "age": "7d", "bytes": "20GiB" },
    ///           "max_event_bytes": "1MiB",
    ///           "groups": ["alarms", "billing"] },
    ///         { "name": "audit", "retention": { "age": null } }
    ///     ]
    /// }"#)?;
    /// assert_eq!(read.config.durability, Durability::Disk);
    /// assert_eq!(read.config.hubs[0].partitions, 16);
    /// # Ok::<(), ephor_hub::config::ConfigFileError>(())
    /// ```
    ///
    /// The Event Hubs emulator's `Config.json`, known by its `UserConfig`, is read as well: its one namespace
    /// of type `EventHub`, with the names, partitions and groups of the hubs. The rest has our defaults, so
    /// events are kept for a week and not for the emulator's hour; keys that are not known end up in
    /// [`ConfigFile::notes`].
    pub fn from_json(text: &str) -> Result<ConfigFile, ConfigFileError> {
        read(text, NO_FILE)
    }
}

fn read(text: &str, file: &str) -> Result<ConfigFile, ConfigFileError> {
    // Some editors begin a file with a byte order mark, which is not JSON.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let node: Node = serde_json::from_str(text).map_err(|error| syntax(file, &error))?;
    let top = Value::top(&node);
    let read = match emulator::recognises(&top) {
        true => emulator::read(&top),
        false => read_ours(&top),
    };
    read.map_err(|problem| {
        let (line, column) = locate(text, &problem.place).unwrap_or((1, 0));
        ConfigFileError::Invalid { file: file.to_owned(), line, column, problem }
    })
}

fn syntax(file: &str, error: &serde_json::Error) -> ConfigFileError {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let said = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    let problem = match error.is_data() {
        true => said.to_owned(),
        false => format!("not JSON: {said}"),
    };
    ConfigFileError::Syntax { file: file.to_owned(), line, column, problem }
}

fn read_ours(top: &Value<'_>) -> Result<ConfigFile, InvalidConfig> {
    let fields = top.object()?.only(&[
        "name",
        "durability",
        "segment_bytes",
        "recent_bytes",
        "queue_bytes",
        "vanish_after",
        "disk_reserve_bytes",
        "hubs",
    ])?;
    let mut config = NamespaceConfig::default();
    set(&mut config.name, fields.get("name"), Value::parse)?;
    set(&mut config.durability, fields.get("durability"), Value::parse)?;
    set(&mut config.segment_bytes, fields.get("segment_bytes"), Value::size)?;
    set(&mut config.recent_bytes, fields.get("recent_bytes"), Value::size)?;
    set(&mut config.queue_bytes, fields.get("queue_bytes"), Value::size)?;
    set(&mut config.vanish_after, fields.get("vanish_after"), Value::duration)?;
    set(&mut config.disk_reserve_bytes, fields.get("disk_reserve_bytes"), |bytes| {
        bytes.clone().unless_null().map(|bytes| bytes.size()).transpose()
    })?;
    set(&mut config.hubs, fields.get("hubs"), |hubs| hubs.list()?.iter().map(read_hub).collect())?;
    config.validate()?;
    Ok(ConfigFile { config, notes: Vec::new() })
}

fn read_hub(hub: &Value<'_>) -> Result<HubConfig, InvalidConfig> {
    let fields = hub.object()?.only(&["name", "partitions", "retention", "max_event_bytes", "groups"])?;
    let name = fields.get("name").ok_or_else(|| missing_name(&hub.place, "name"))?;
    let mut config = new_hub(&name)?;
    set(&mut config.partitions, fields.get("partitions"), |value| partitions(value, value.count()?))?;
    set(&mut config.retention, fields.get("retention"), read_retention)?;
    set(&mut config.max_event_bytes, fields.get("max_event_bytes"), Value::size)?;
    set(&mut config.groups, fields.get("groups"), |groups| {
        groups.list()?.iter().map(Value::parse).collect()
    })?;
    Ok(config)
}

fn read_retention(retention: &Value<'_>) -> Result<Retention, InvalidConfig> {
    let fields = retention.object()?.only(&["age", "bytes"])?;
    let mut retention = Retention::default();
    set(&mut retention.age, fields.get("age"), |age| {
        age.clone().unless_null().map(|age| age.duration()).transpose()
    })?;
    set(&mut retention.bytes, fields.get("bytes"), |bytes| {
        bytes.clone().unless_null().map(|bytes| bytes.size()).transpose()
    })?;
    Ok(retention)
}

/// Reads a field. A missing one keeps its default.
fn set<'a, T>(
    field: &mut T,
    value: Option<Value<'a>>,
    read: impl FnOnce(&Value<'a>) -> Result<T, InvalidConfig>,
) -> Result<(), InvalidConfig> {
    if let Some(value) = value {
        *field = read(&value)?;
    }
    Ok(())
}

/// Creates the configuration of a hub with defaults. An error has the place of the name.
pub(super) fn new_hub(name: &Value<'_>) -> Result<HubConfig, InvalidConfig> {
    HubConfig::new(name.text()?, DEFAULT_PARTITIONS).map_err(|error| name.refuse(error.problem))
}

pub(super) fn missing_name(hub: &Place, field: &str) -> InvalidConfig {
    InvalidConfig::new(hub.field(field), "this hub has no name; every hub needs one")
}

/// Reads a number of partitions.
pub(super) fn partitions(value: &Value<'_>, number: u64) -> Result<u32, InvalidConfig> {
    check_partitions(value.place.clone(), number)?;
    u32::try_from(number).map_err(|problem| value.refuse(problem.to_string()))
}
