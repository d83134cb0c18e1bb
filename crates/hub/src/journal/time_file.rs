//! The file that keeps the proven time of a log from one start to the next, and how stamps are to be read.
//!
//! Without it, stamps that a wrong clock left would count as the time at the next start, and all that is older
//! as past its age. It is written without waiting for the disk when there is nothing else to do, and synced when
//! the hub closes: an older one is as good, since it only keeps events longer. Whoever lets a clock that is ahead run for
//! so long that it is believed can take that back by removing the file while the hub is closed.
//!
//! ```text
//!  0  "EPHORTIM"   8  identity of the log   16  proven time (i64, ms)
//! 24  stamps up to this one are ...   32  ... so many ms later (see `Redating`)   40  checksum (u32) of 0..40
//! ```

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ephor_core::time::Timestamp;

use super::layout::{u32_from, u64_from};
use crate::files::{File, Files};
use crate::time::Redating;

const NAME: &str = "time";
const MAGIC: &[u8; 8] = b"EPHORTIM";
const LENGTH: usize = 44;

/// So much may be lost of the proven time: nobody writes it more often.
const WORTH_WRITING: Duration = Duration::from_secs(10 * 60);

/// The file, which is made when there is something to write.
#[derive(Debug)]
pub(crate) struct TimeFile {
    file: Option<Arc<dyn File>>,
    path: String,
    identity: u64,
    /// What it says; none if it says nothing that counts.
    written: Option<Timestamp>,
    redating: Redating,
    /// The redating is not what the file says.
    changed: bool,
}

impl TimeFile {
    /// Reads the file, if there is one that can be read.
    pub(crate) fn open(files: &dyn Files, folder: &str, identity: u64) -> Self {
        let path = format!("{folder}/{NAME}");
        let mut bytes = [0; LENGTH];
        let opened = files.open(&path).and_then(|file| Ok((file.read_at(0, &mut bytes)?, file)));
        let (file, written) = match opened {
            Ok((LENGTH, file)) => (Some(file), decode(&bytes, identity)),
            Ok((_, file)) => (Some(file), None),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(%error, "the time of a log cannot be read; its newest event tells it");
                }
                (None, None)
            }
        };
        let (written, redating) = written.unzip();
        let redating = redating.unwrap_or_default();
        Self { file, path, identity, written, redating, changed: false }
    }

    /// The time that was proven when the log was written last.
    pub(crate) fn proven(&self) -> Option<Timestamp> {
        self.written
    }

    /// How stamps are to be read.
    pub(crate) fn redating(&self) -> Redating {
        self.redating
    }

    /// The stamps jumped from one time to another, while the hub ran.
    pub(crate) fn redate(&mut self, from: Timestamp, to: Timestamp) {
        self.redating.jumped(from, to);
        self.changed = true;
    }

    /// Writes the time if it is worth it. Waits for the disk only after a jump: a power failure must not make events
    /// older either.
    pub(crate) fn note(&mut self, files: &dyn Files, proven: Timestamp) -> io::Result<()> {
        if self.changed {
            return self.store(files, proven);
        }
        if self.written.is_some_and(|written| proven.since(written) < WORTH_WRITING) {
            return Ok(());
        }
        self.write(files, proven)
    }

    /// Writes the time, and waits for the disk.
    pub(crate) fn store(&mut self, files: &dyn Files, proven: Timestamp) -> io::Result<()> {
        self.write(files, proven)?;
        let synced = self.file.as_ref().map_or(Ok(()), |file| file.sync());
        synced.inspect_err(|_| self.changed = true)
    }

    fn write(&mut self, files: &dyn Files, proven: Timestamp) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            // Also one that could not be read is there.
            None => self.file.insert(files.open(&self.path).or_else(|_| files.create(&self.path))?),
        };
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.identity.to_le_bytes());
        bytes[16..24].copy_from_slice(&proven.0.to_le_bytes());
        let Redating { before, by } = self.redating;
        bytes[24..32].copy_from_slice(&before.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&u64::try_from(by.as_millis()).unwrap_or(u64::MAX).to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..40]);
        bytes[40..].copy_from_slice(&checksum.to_le_bytes());
        file.write_at(0, &[&bytes])?;
        (self.written, self.changed) = (Some(proven), false);
        Ok(())
    }
}

fn decode(bytes: &[u8; LENGTH], identity: u64) -> Option<(Timestamp, Redating)> {
    let intact = bytes.starts_with(MAGIC)
        && u32_from(&bytes[40..]) == crc32c::crc32c(&bytes[..40])
        && u64_from(&bytes[8..16]) == identity;
    let time = |at: usize| Timestamp(u64_from(&bytes[at..]).cast_signed());
    let by = Duration::from_millis(u64_from(&bytes[32..]));
    intact.then(|| (time(16), Redating { before: time(24), by }))
}
