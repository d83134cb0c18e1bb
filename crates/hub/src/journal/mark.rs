//! How far the log is known to be on disk: what tells a torn tail from a damaged one.
//!
//! Whoever finds unreadable bytes behind the last frame cannot tell by them
//! whether a commit was cut short, which nobody was told about, or whether a
//! commit that was acknowledged has been damaged since. Under load the next
//! commit proves the one before. For the last one there is this mark: written,
//! not synced, when there is nothing else to do, and synced when the hub closes.
//!
//! ```text
//! 0  "EPHORMRK"   8  identity of the log   16  segment   24  position   32  checksum (u32) of 0..32
//! ```

use std::io;
use std::sync::Arc;

use super::layout::{MAX_SEGMENT, u32_from, u64_from};
use crate::files::{File, Files};

const NAME: &str = "mark";
const MAGIC: &[u8; 8] = b"EPHORMRK";
const LENGTH: usize = 36;

/// Everything before this position of this segment was on disk once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) segment: u64,
    pub(crate) position: u64,
}

/// The file that holds the mark.
#[derive(Debug)]
pub(crate) struct MarkFile {
    file: Arc<dyn File>,
    identity: u64,
}

impl MarkFile {
    /// Opens the file, or makes it; and reads the mark, if there is an intact one.
    pub(crate) fn open(files: &dyn Files, folder: &str, identity: u64) -> io::Result<(Self, Option<Mark>)> {
        let path = format!("{folder}/{NAME}");
        let file = match files.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => files.create(&path)?,
            opened => opened?,
        };
        let mut bytes = [0; LENGTH];
        let mark = match file.read_at(0, &mut bytes)? {
            LENGTH => decode(&bytes, identity),
            _ => None,
        };
        Ok((Self { file, identity }, mark))
    }

    /// Reads the mark of a folder that somebody else may be writing.
    pub(crate) fn peek(files: &dyn Files, folder: &str, identity: u64) -> Option<Mark> {
        let file = files.open(&format!("{folder}/{NAME}")).ok()?;
        let mut bytes = [0; LENGTH];
        let read = file.read_at(0, &mut bytes).ok()?;
        (read == LENGTH).then(|| decode(&bytes, identity)).flatten()
    }

    /// Writes the mark, without waiting for the disk.
    pub(crate) fn write(&self, mark: Mark) -> io::Result<()> {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.identity.to_le_bytes());
        bytes[16..24].copy_from_slice(&mark.segment.to_le_bytes());
        bytes[24..32].copy_from_slice(&mark.position.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..32]);
        bytes[32..].copy_from_slice(&checksum.to_le_bytes());
        self.file.write_at(0, &[&bytes])
    }

    /// Waits for the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

fn decode(bytes: &[u8; LENGTH], identity: u64) -> Option<Mark> {
    let intact = bytes.starts_with(MAGIC)
        && u32_from(&bytes[32..]) == crc32c::crc32c(&bytes[..32])
        && u64_from(&bytes[8..16]) == identity;
    let mark = Mark { segment: u64_from(&bytes[16..24]), position: u64_from(&bytes[24..32]) };
    (intact && mark.position <= MAX_SEGMENT).then_some(mark)
}
