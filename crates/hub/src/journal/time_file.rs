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
//!
//! Behind it, for versions that know it: marks of the wall clock, and starts under a clock that caught up. Whatever is
//! wrong with it, it counts as empty.
//!
//! ```text
//! 44  the checksum at 40 (u32)   48  how long the hub ran (u64, ms)   56  marks (u32)   60  starts (u32)
//! 64  each mark: had run (u64, ms), wall clock (i64, ms)
//!     each start: stamps from (i64) and up to (i64) ... so many ms later (u64)   checksum (u32) of all from 44 on
//! ```

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ephor_core::time::Timestamp;

use super::layout::{u32_from, u64_from};
use crate::files::{File, Files};
use crate::time::{CaughtUp, MAX_CAUGHT_UP, MAX_MARKS, Mark, Marks, Redating, StampJump};

const NAME: &str = "time";
const MAGIC: &[u8; 8] = b"EPHORTIM";
const LENGTH: usize = 44;
const MARKS: usize = 64;
const MARK: usize = 16;
const START: usize = 24;
const MAX_LENGTH: usize = MARKS + MARK * MAX_MARKS + START * MAX_CAUGHT_UP + 4;

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
    marks: Marks,
    /// The redating is not what the file says.
    changed: bool,
}

/// What the file says.
struct Content {
    proven: Timestamp,
    redating: Redating,
    marks: Marks,
}

impl TimeFile {
    /// Reads the file, if there is one that can be read.
    pub(crate) fn open(files: &dyn Files, folder: &str, identity: u64) -> Self {
        let path = format!("{folder}/{NAME}");
        let mut bytes = vec![0; MAX_LENGTH];
        let opened = files.open(&path).and_then(|file| Ok((file.read_at(0, &mut bytes)?, file)));
        let (file, content) = match opened {
            Ok((length, file)) => (Some(file), decode(&bytes[..length], identity)),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(%error, "the time of a log cannot be read; its newest event tells it");
                }
                (None, None)
            }
        };
        let written = content.as_ref().map(|content| content.proven);
        let (redating, marks) = content.map(|content| (content.redating, content.marks)).unwrap_or_default();
        Self { file, path, identity, written, redating, marks, changed: false }
    }

    /// The time that was proven when the log was written last.
    pub(crate) fn proven(&self) -> Option<Timestamp> {
        self.written
    }

    /// What the wall clock said when the log was written last, and before.
    pub(crate) fn marks(&self) -> Marks {
        self.marks.clone()
    }

    /// How stamps are to be read.
    pub(crate) fn redating(&self) -> &Redating {
        &self.redating
    }

    /// The stamps jumped from one time to another, while the hub ran.
    pub(crate) fn redate(&mut self, jump: StampJump) {
        self.redating.jumped(jump);
        self.changed = true;
    }

    /// Writes the time if it is worth it. Waits for the disk only after a jump: a power failure must not make events
    /// older either.
    pub(crate) fn note(&mut self, files: &dyn Files, proven: Timestamp, marks: &Marks) -> io::Result<()> {
        if self.changed {
            return self.store(files, proven, marks);
        }
        if self.written.is_some_and(|written| proven.since(written) < WORTH_WRITING) {
            return Ok(());
        }
        self.write(files, proven, marks)
    }

    /// Writes the time, and waits for the disk.
    pub(crate) fn store(&mut self, files: &dyn Files, proven: Timestamp, marks: &Marks) -> io::Result<()> {
        self.write(files, proven, marks)?;
        let synced = self.file.as_ref().map_or(Ok(()), |file| file.sync());
        synced.inspect_err(|_| self.changed = true)
    }

    fn write(&mut self, files: &dyn Files, proven: Timestamp, marks: &Marks) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            // Also one that could not be read is there.
            None => self.file.insert(files.open(&self.path).or_else(|_| files.create(&self.path))?),
        };
        let bytes = encode(self.identity, proven, &self.redating, marks);
        file.write_at(0, &[&bytes])?;
        (self.written, self.changed) = (Some(proven), false);
        Ok(())
    }
}

fn encode(identity: u64, proven: Timestamp, redating: &Redating, marks: &Marks) -> Vec<u8> {
    let Redating { before, by, caught_up } = redating;
    let mut bytes = MAGIC.to_vec();
    [identity, proven.0.cast_unsigned(), before.0.cast_unsigned(), millis(*by)]
        .iter()
        .for_each(|field| bytes.extend(field.to_le_bytes()));
    let checksum = crc32c::crc32c(&bytes).to_le_bytes();
    bytes.extend(checksum);
    bytes.extend(checksum);
    bytes.extend(millis(marks.ran).to_le_bytes());
    let counts = [marks.marks.len().min(MAX_MARKS), caught_up.len().min(MAX_CAUGHT_UP)];
    counts.iter().for_each(|count| bytes.extend((*count as u32).to_le_bytes()));
    for Mark { ran, wall } in marks.marks.iter().take(MAX_MARKS) {
        bytes.extend(millis(*ran).to_le_bytes());
        bytes.extend(wall.0.to_le_bytes());
    }
    for CaughtUp { from, before, by } in caught_up.iter().take(MAX_CAUGHT_UP) {
        bytes.extend(from.0.to_le_bytes());
        bytes.extend(before.0.to_le_bytes());
        bytes.extend(millis(*by).to_le_bytes());
    }
    let checksum = crc32c::crc32c(&bytes[LENGTH..]);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8], identity: u64) -> Option<Content> {
    let time = |at: usize| Timestamp(u64_from(&bytes[at..]).cast_signed());
    let intact = bytes.len() >= LENGTH
        && bytes.starts_with(MAGIC)
        && u32_from(&bytes[40..]) == crc32c::crc32c(&bytes[..40])
        && u64_from(&bytes[8..16]) == identity;
    if !intact {
        return None;
    }
    let (marks, caught_up) = decode_marks(bytes).unwrap_or_default();
    let by = Duration::from_millis(u64_from(&bytes[32..]));
    Some(Content { proven: time(16), redating: Redating { before: time(24), by, caught_up }, marks })
}

/// What is behind the part that every version writes.
fn decode_marks(bytes: &[u8]) -> Option<(Marks, VecDeque<CaughtUp>)> {
    let time = |bytes: &[u8]| Timestamp(u64_from(bytes).cast_signed());
    let duration = |bytes: &[u8]| Duration::from_millis(u64_from(bytes));
    let head = bytes.get(LENGTH..MARKS)?;
    let (marks, starts) = (u32_from(&head[12..]) as usize, u32_from(&head[16..]) as usize);
    // An older version may have written the first part since.
    if head[..4] != bytes[40..LENGTH] || marks > MAX_MARKS || starts > MAX_CAUGHT_UP {
        return None;
    }
    let (first_start, end) = (MARKS + marks * MARK, MARKS + marks * MARK + starts * START);
    let checksum = bytes.get(end..end + 4)?;
    if u32_from(checksum) != crc32c::crc32c(&bytes[LENGTH..end]) {
        return None;
    }
    let marks = bytes[MARKS..first_start].chunks_exact(MARK);
    let marks = marks.map(|mark| Mark { ran: duration(mark), wall: time(&mark[8..]) });
    let starts = bytes[first_start..end].chunks_exact(START);
    let starts = starts.map(|start| CaughtUp {
        from: time(start),
        before: time(&start[8..]),
        by: duration(&start[16..]),
    });
    Some((Marks { ran: duration(&head[4..]), marks: marks.collect() }, starts.collect()))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As version 0.1.0 wrote it before there were marks.
    const OLD: [u8; LENGTH] = *b"EPHORTIM\x07\0\0\0\0\0\0\0\x15\xcd\x5b\x07\0\0\0\0\x64\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x57\xa1\xca\xc7";

    fn redating(caught_up: &[CaughtUp]) -> Redating {
        let caught_up = caught_up.iter().copied().collect();
        Redating { before: Timestamp(100), by: Duration::from_millis(5), caught_up }
    }

    #[test]
    fn a_file_without_marks_is_read_and_is_the_beginning_of_one_with_marks() {
        let content = decode(&OLD, 7).unwrap();
        assert_eq!((content.proven, content.redating), (Timestamp(123_456_789), redating(&[])));
        assert_eq!(content.marks, Marks::default());
        let new = encode(7, Timestamp(123_456_789), &redating(&[]), &Marks::default());
        assert_eq!(new[..LENGTH], OLD);
        assert!(decode(&OLD, 8).is_none());
    }

    #[test]
    fn what_is_written_is_read_and_what_is_damaged_counts_as_no_marks() {
        let marks = (0..MAX_MARKS as i64).map(|number| Mark {
            ran: Duration::from_millis(number.cast_unsigned()),
            wall: Timestamp(-number),
        });
        let marks = Marks { ran: Duration::from_millis(99), marks: marks.collect() };
        let start = CaughtUp { from: Timestamp(1), before: Timestamp(2), by: Duration::from_millis(3) };
        let redating = redating(&[start; MAX_CAUGHT_UP]);
        let bytes = encode(7, Timestamp(5), &redating, &marks);
        assert_eq!(bytes.len(), MAX_LENGTH);
        let content = decode(&bytes, 7).unwrap();
        assert_eq!((content.redating, content.marks), (redating, marks));
        for at in LENGTH..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x40;
            for damaged in [&flipped[..], &bytes[..at]] {
                let content = decode(damaged, 7).unwrap();
                assert_eq!((content.proven, content.marks), (Timestamp(5), Marks::default()), "{at}");
            }
        }
    }
}
