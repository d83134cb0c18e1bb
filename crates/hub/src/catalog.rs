//! The stored description of a hub: the name of its folder, and the file `hub.json` in it.
//!
//! ```text
//! homes.3f9c0a6b1d2e4f50/            folder_name(): name, dot, log id
//!     hub.json                       the record
//!     hub.json.new                   a record being written; ignored, the next one replaces it
//! homes.1122334455667788.deleted/    being deleted; the next open of the namespace removes it
//! ```
//!
//! `hub.json` is the record as JSON and, as the last line, the CRC-32C of every byte before that line:
//!
//! ```text
//! {
//!   "created_at_ms": 1700000000000,
//!   "groups": ["alarms"],
//!   "log_id": "3f9c0a6b1d2e4f50",
//!   "max_event_bytes": 1048576,
//!   "name": "homes",
//!   "partitions": 4,
//!   "retention_age_ms": 604800000,   null: no limit by age
//!   "retention_bytes": null,         null: no limit by size
//!   "version": 1
//! }
//! {"crc32c":"0123abcd"}
//! ```
//!
//! Fields of later versions are kept when the record is written again. `version` grows when a reader that does not know
//! a field would do harm; it refuses such a record. Every version keeps `version` and the last line.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use ephor_core::ids::{ConsumerGroup, HubName, InvalidName, LogId};
use ephor_core::time::Timestamp;
use ephor_wire::address::same_name;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::{HubConfig, MAX_PARTITIONS, Retention};
use crate::files::Files;

/// The version that is written, and the newest one that can be read.
pub(crate) const VERSION: u64 = 1;
/// A record is a few hundred bytes, and some 60 more for each of at most a thousand groups.
const MAX_RECORD_BYTES: u64 = 4 << 20;
/// `{"crc32c":"0123abcd"}` and a line feed.
const CHECKSUM_LINE_BYTES: usize = 22;
/// Longer names are cut in the folder's name. With the log id and the suffix they fit 143 bytes, the smallest limit of a
/// file system in use.
const MAX_NAME_BYTES: usize = 100;
const DELETED: &str = ".deleted";

/// The stored record of a hub (`hub.json`).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HubRecord {
    /// Its name.
    pub(crate) name: HubName,
    /// Distinguishes it from earlier hubs with the same name.
    pub(crate) log_id: LogId,
    /// When it was created.
    pub(crate) created_at: Timestamp,
    /// The number of partitions.
    pub(crate) partitions: u32,
    /// How long events are kept, to the millisecond.
    pub(crate) retention: Retention,
    /// Larger events are refused.
    pub(crate) max_event_bytes: u64,
    /// The consumer groups beside `$Default`.
    pub(crate) groups: Vec<ConsumerGroup>,
    /// Fields of later versions: kept, never read.
    pub(crate) other: Map<String, Value>,
}

/// Why a record could not be read or stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// The folder has no record: its creation was not finished, or it is not the folder of a hub.
    #[error("{file} does not exist")]
    Missing {
        /// Which file.
        file: String,
    },
    /// The file is damaged.
    #[error("{file} is damaged: {problem}; restore it from a backup; nothing was changed")]
    Damaged {
        /// Which file.
        file: String,
        /// The problem.
        problem: String,
    },
    /// A newer version wrote it.
    #[error(
        "{file} has version {found}, and this program reads versions up to {VERSION}; use the newer program that \
         wrote it; nothing was changed"
    )]
    Newer {
        /// Which file.
        file: String,
        /// Its version.
        found: u64,
    },
    /// The file system failed. After a failed write, the old or the new record may be there.
    #[error("cannot {action} {file}: {source}")]
    Io {
        /// The failed action.
        action: &'static str,
        /// Which file or folder.
        file: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The JSON of the file, before it is validated.
#[derive(Serialize, Deserialize)]
struct Stored {
    created_at_ms: i64,
    groups: Vec<String>,
    log_id: String,
    max_event_bytes: u64,
    name: String,
    partitions: u32,
    retention_age_ms: Option<u64>,
    retention_bytes: Option<u64>,
    version: u64,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// The part of a record that every version can read.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

impl HubRecord {
    /// Creates the record of a new hub.
    pub(crate) fn new(config: &HubConfig, log_id: LogId, created_at: Timestamp) -> Self {
        let HubConfig { name, partitions, retention, max_event_bytes, groups } = config.clone();
        Self { name, log_id, created_at, partitions, retention, max_event_bytes, groups, other: Map::new() }
    }

    /// Reads the record of a folder. Changes nothing.
    pub(crate) fn load(files: &dyn Files, folder: &str) -> Result<Self, CatalogError> {
        let path = record_path(folder);
        let bytes = match read(files, &path) {
            Ok(bytes) => bytes,
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                return Err(CatalogError::Missing { file: files.shown(&path) });
            }
            Err(source) => return Err(CatalogError::Io { action: "read", file: files.shown(&path), source }),
        };
        let damaged = |problem: String| CatalogError::Damaged { file: files.shown(&path), problem };
        let content = checked(&bytes).map_err(damaged)?;
        let Versioned { version } =
            serde_json::from_slice(content).map_err(|error| damaged(error.to_string()))?;
        if version > VERSION {
            return Err(CatalogError::Newer { file: files.shown(&path), found: version });
        }
        let stored: Stored = serde_json::from_slice(content).map_err(|error| damaged(error.to_string()))?;
        Self::from_stored(stored).map_err(damaged)
    }

    /// Writes the record into an existing folder. A crash leaves the old or the new record, never a part of one; once this
    /// has returned, the new one.
    pub(crate) fn store(&self, files: &dyn Files, folder: &str) -> Result<(), CatalogError> {
        let (path, new) = (record_path(folder), format!("{}.new", record_path(folder)));
        let failed = |action, path: &str| {
            let file = files.shown(path);
            move |source| CatalogError::Io { action, file, source }
        };
        match files.remove(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &new)(error));
            }
            _ => {}
        }
        let content = self.content().map_err(|error| failed("write", &new)(error.into()))?;
        let file = files.create(&new).map_err(failed("create", &new))?;
        file.write_at(0, &[&content, checksum_line(&content).as_bytes()]).map_err(failed("write", &new))?;
        file.sync().map_err(failed("sync", &new))?;
        files.rename(&new, &path).map_err(failed("replace", &path))?;
        files.sync_folder(folder).map_err(failed("sync", folder))
    }

    fn content(&self) -> serde_json::Result<Vec<u8>> {
        let millis = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let mut content = serde_json::to_vec_pretty(&Stored {
            created_at_ms: self.created_at.0,
            groups: self.groups.iter().map(ToString::to_string).collect(),
            log_id: self.log_id.to_string(),
            max_event_bytes: self.max_event_bytes,
            name: self.name.to_string(),
            partitions: self.partitions,
            retention_age_ms: self.retention.age.map(millis),
            retention_bytes: self.retention.bytes,
            version: VERSION,
            other: self.other.clone(),
        })?;
        content.push(b'\n');
        Ok(content)
    }

    fn from_stored(stored: Stored) -> Result<Self, String> {
        if !(1..=MAX_PARTITIONS).contains(&stored.partitions) {
            return Err(format!(
                "it has {} partitions, and a hub has 1 to {MAX_PARTITIONS}",
                stored.partitions
            ));
        }
        let groups = stored
            .groups
            .iter()
            .map(|group| group.parse())
            .collect::<Result<Vec<ConsumerGroup>, InvalidName>>();
        Ok(Self {
            name: stored.name.parse().map_err(|error: InvalidName| error.to_string())?,
            log_id: LogId::new(&stored.log_id),
            created_at: Timestamp(stored.created_at_ms),
            partitions: stored.partitions,
            retention: Retention {
                age: stored.retention_age_ms.map(Duration::from_millis),
                bytes: stored.retention_bytes,
            },
            max_event_bytes: stored.max_event_bytes,
            groups: groups.map_err(|error| error.to_string())?,
            other: stored.other,
        })
    }
}

fn record_path(folder: &str) -> String {
    match folder {
        "" => "hub.json".to_owned(),
        folder => format!("{folder}/hub.json"),
    }
}

fn read(files: &dyn Files, path: &str) -> io::Result<Vec<u8>> {
    let file = files.open(path)?;
    // One byte more than the maximum: the checksum refuses a file that is too long.
    let length = usize::try_from(file.len()?.min(MAX_RECORD_BYTES + 1)).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let count = file.read_at(0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn checksum_line(content: &[u8]) -> String {
    format!("{{\"crc32c\":\"{:08x}\"}}\n", crc32c::crc32c(content))
}

/// Returns the content before the checksum line, if the checksum matches. Compared as text, so that a flipped bit of the
/// line itself is detected, too.
fn checked(bytes: &[u8]) -> Result<&[u8], String> {
    let Some((content, line)) = bytes.len().checked_sub(CHECKSUM_LINE_BYTES).map(|at| bytes.split_at(at))
    else {
        return Err(format!("it has only {} bytes and no checksum", bytes.len()));
    };
    let expected = checksum_line(content);
    if line == expected.as_bytes() {
        return Ok(content);
    }
    let found = String::from_utf8_lossy(line);
    Err(format!("its checksum is {}, and its last line says {:?}", &expected[11..19], found.trim_end()))
}

/// Returns the name of a hub's folder: readable, and unique for every hub.
///
/// Letters, digits, `_`, `-` and `.` of the name stay; every other byte is encoded like `%2F`. Of the log id only
/// hexadecimal digits stay, so that it has no dot and never looks like the suffix of a deleted folder. A long name is cut
/// and gets a `~`; the log id makes it unique.
pub(crate) fn folder_name(name: &HubName, log_id: &LogId) -> String {
    let mut folder = encode(name.as_str(), |byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if folder.len() > MAX_NAME_BYTES {
        folder.truncate(MAX_NAME_BYTES);
        folder.push('~');
    }
    folder.push('.');
    folder.push_str(&encode(log_id.as_str(), |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
    folder
}

/// Whether this is a folder of the hub of this name, compared without case.
pub(crate) fn is_folder_of(folder: &str, name: &str) -> bool {
    let Ok(name) = name.parse::<HubName>() else { return false };
    let any = folder_name(&name, &LogId::new(""));
    folder.rsplit_once('.').is_some_and(|(stem, _)| same_name(&any, &format!("{stem}.")))
}

/// Returns the name of a folder while it is being deleted.
pub(crate) fn deleted_folder_name(folder: &str) -> String {
    format!("{folder}{DELETED}")
}

/// Whether a folder is being deleted.
pub(crate) fn is_deleted(folder: &str) -> bool {
    folder.ends_with(DELETED)
}

fn encode(text: &str, stands_for_itself: impl Fn(u8) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match stands_for_itself(byte) {
            true => encoded.push(char::from(byte)),
            false => {
                // Writing to a string cannot fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests;
