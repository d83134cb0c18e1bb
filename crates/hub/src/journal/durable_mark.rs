//! The durable mark: the position up to which the log is known to be on disk. Distinguishes a torn tail from
//! damage.
//!
//! Unreadable bytes after the last frame may be an unfinished commit, which was never acknowledged, or an acknowledged
//! commit that was damaged later. Under load, each commit proves that the one before is on disk. The mark does so for the
//! last commit: it is written without a sync when the hub is idle, and synced when the hub closes.
//!
//! It is stored in the file `mark` of a log.
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

/// Everything before this position of this segment was on disk when the mark was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DurableMark {
    pub(crate) segment: u64,
    pub(crate) position: u64,
}

/// The file `mark`, which contains the durable mark.
#[derive(Debug)]
pub(crate) struct DurableMarkFile {
    file: Arc<dyn File>,
    identity: u64,
}

impl DurableMarkFile {
    /// Opens the file, or creates it, and reads the mark, if it is intact.
    pub(crate) fn open(
        files: &dyn Files,
        folder: &str,
        identity: u64,
    ) -> io::Result<(Self, Option<DurableMark>)> {
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

    /// Reads the mark of a folder without changing anything.
    pub(crate) fn peek(files: &dyn Files, folder: &str, identity: u64) -> Option<DurableMark> {
        let file = files.open(&format!("{folder}/{NAME}")).ok()?;
        let mut bytes = [0; LENGTH];
        let read = file.read_at(0, &mut bytes).ok()?;
        (read == LENGTH).then(|| decode(&bytes, identity)).flatten()
    }

    /// Writes the mark without waiting for the disk.
    pub(crate) fn write(&self, mark: DurableMark) -> io::Result<()> {
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

fn decode(bytes: &[u8; LENGTH], identity: u64) -> Option<DurableMark> {
    let intact = bytes.starts_with(MAGIC)
        && u32_from(&bytes[32..]) == crc32c::crc32c(&bytes[..32])
        && u64_from(&bytes[8..16]) == identity;
    let mark = DurableMark { segment: u64_from(&bytes[16..24]), position: u64_from(&bytes[24..32]) };
    (intact && mark.position <= MAX_SEGMENT).then_some(mark)
}
