//! The file that keeps the proven time of a log from one start to the next, and how stamps are to be read.
//!
//! Without it, stamps that a wrong clock left would count as the time at the next start, and all that is older
//! as past its age. It is written when there is nothing else to do, and when the hub closes: an older proven time is as
//! good, since it only keeps events longer. A log whose file is lost or damaged keeps everything for one whole age, since
//! nobody knows how its stamps are to be read.
//!
//! ```text
//!  0  "EPHORTIM"   8  identity of the log   16  proven time (i64, ms)
//! 24  stamps up to this one are ...   32  ... so many ms later, all jumps in one   40  checksum (u32) of 0..40
//! ```
//!
//! Behind it, for versions that know it: marks of the wall clock, and starts under a clock that caught up.
//!
//! ```text
//! 44  the checksum at 40 (u32)   48  how long the hub ran (u64, ms)   56  marks (u32)   60  starts (u32)
//! 64  each mark: had run (u64, ms), wall clock (i64, ms)
//!     each start: stamps from (i64) and up to (i64) ... so many ms later (u64)   checksum (u32) of all from 44 on
//! ```
//!
//! Behind that, for versions that know it: what is held, and the jumps (see `Redating`).
//!
//! ```text
//!  0  the checksum before it (u32)   4  jumps (u32)   8  held up to segment (u64; 0: none) and position (u64) ...
//! 24  ... as of then (i64)   32  each jump: up to segment (u64) and position (u64), stamps up to (i64), to (i64),
//!     by (u64, ms)   checksum (u32) of all from 0 on
//! ```

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use ephor_core::time::Timestamp;

use super::layout::{u32_from, u64_from};
use crate::files::{Files, folder_and_name};
use crate::time::{
    CaughtUp, ClockJump, Held, LogEnd, MAX_CAUGHT_UP, MAX_JUMPS, MAX_MARKS, Mark, Marks, Redating,
};

const NAME: &str = "time";
const MAGIC: &[u8; 8] = b"EPHORTIM";
const LENGTH: usize = 44;
const MARKS: usize = 64;
const MARK: usize = 16;
const START: usize = 24;
const JUMPS: usize = 32;
const JUMP: usize = 40;
const MAX_LENGTH: usize = MARKS + MARK * MAX_MARKS + START * MAX_CAUGHT_UP + 4 + JUMPS + JUMP * MAX_JUMPS + 4;

/// So much may be lost of the proven time: nobody writes it more often.
const WORTH_WRITING: Duration = Duration::from_secs(10 * 60);

/// The file, which is replaced when there is something to write.
#[derive(Debug)]
pub(crate) struct TimeFile {
    path: String,
    identity: u64,
    /// What it says; none if it says nothing that counts.
    written: Option<Timestamp>,
    redating: Redating,
    marks: Marks,
    /// The redating is not what the file says.
    changed: bool,
    /// Nothing that it said was lost.
    complete: bool,
}

/// What the file says.
struct Content {
    proven: Timestamp,
    redating: Redating,
    marks: Marks,
    complete: bool,
}

impl TimeFile {
    /// Reads the file, if there is one that can be read.
    pub(crate) fn open(files: &dyn Files, folder: &str, identity: u64) -> Self {
        let path = format!("{folder}/{NAME}");
        let mut bytes = vec![0; MAX_LENGTH];
        let read = files.open(&path).and_then(|file| file.read_at(0, &mut bytes));
        let content = match read {
            Ok(length) => decode(&bytes[..length], identity),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(%error, "the time of a log cannot be read");
                }
                None
            }
        };
        let written = content.as_ref().map(|content| content.proven);
        let complete = content.as_ref().is_some_and(|content| content.complete);
        let (redating, marks) = content.map(|content| (content.redating, content.marks)).unwrap_or_default();
        Self { path, identity, written, redating, marks, changed: false, complete }
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

    /// Whether the file was there and nothing that it says was lost.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Changes how stamps are to be read.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Redating)) {
        change(&mut self.redating);
        self.changed = true;
    }

    /// Forgets what dates nothing any more. It need not be written.
    pub(crate) fn forget_before(&mut self, oldest: LogEnd) {
        self.redating.forget_before(oldest);
    }

    /// The log reached so far when an older version wrote it last.
    pub(crate) fn end_old_jumps(&mut self, end: LogEnd) {
        let old = self.redating.jumps.iter_mut().filter(|jump| jump.until == LogEnd::MAX);
        old.for_each(|jump| jump.until = end);
    }

    /// Writes the time if it is worth it, or if it dates events otherwise than the file does.
    pub(crate) fn note(&mut self, files: &dyn Files, proven: Timestamp, marks: &Marks) -> io::Result<()> {
        let recent = self.written.is_some_and(|written| proven.since(written) < WORTH_WRITING);
        if recent && !self.changed {
            return Ok(());
        }
        self.store(files, proven, marks)
    }

    /// Writes the time, and waits for the disk. After a crash there is the old file or the new one, never a part of one:
    /// a part would keep all events longer.
    pub(crate) fn store(&mut self, files: &dyn Files, proven: Timestamp, marks: &Marks) -> io::Result<()> {
        let bytes = encode(self.identity, proven, &self.redating, marks);
        let new = format!("{}.new", self.path);
        // What an attempt that failed left behind is written over.
        let file = files.create(&new).or_else(|_| files.open(&new))?;
        file.set_len(0)?;
        file.write_at(0, &[&bytes])?;
        file.sync()?;
        files.rename(&new, &self.path)?;
        files.sync_folder(folder_and_name(&self.path)?.0)?;
        (self.written, self.changed) = (Some(proven), false);
        Ok(())
    }
}

fn encode(identity: u64, proven: Timestamp, redating: &Redating, marks: &Marks) -> Vec<u8> {
    let Redating { held, jumps, caught_up } = redating;
    let mut bytes = MAGIC.to_vec();
    let (before, by) = all_jumps_in_one(jumps);
    put(&mut bytes, &[identity, proven.0.cast_unsigned(), before.0.cast_unsigned(), millis(by)]);
    let checksum = crc32c::crc32c(&bytes).to_le_bytes();
    bytes.extend(checksum);
    bytes.extend(checksum);
    put(&mut bytes, &[millis(marks.ran)]);
    let counts = [marks.marks.len().min(MAX_MARKS), caught_up.len().min(MAX_CAUGHT_UP)];
    counts.iter().for_each(|count| bytes.extend((*count as u32).to_le_bytes()));
    for Mark { ran, wall } in marks.marks.iter().take(MAX_MARKS) {
        put(&mut bytes, &[millis(*ran), wall.0.cast_unsigned()]);
    }
    for CaughtUp { from, before, by } in caught_up.iter().take(MAX_CAUGHT_UP) {
        put(&mut bytes, &[from.0.cast_unsigned(), before.0.cast_unsigned(), millis(*by)]);
    }
    let checksum = crc32c::crc32c(&bytes[LENGTH..]).to_le_bytes();
    bytes.extend(checksum);
    let start = bytes.len();
    bytes.extend(checksum);
    bytes.extend((jumps.len().min(MAX_JUMPS) as u32).to_le_bytes());
    let held =
        held.map_or([0; 3], |Held { until, to }| [until.segment, until.position, to.0.cast_unsigned()]);
    put(&mut bytes, &held);
    for ClockJump { until, stamps_to, to, by } in jumps.iter().take(MAX_JUMPS) {
        let times = [stamps_to, to].map(|time| time.0.cast_unsigned());
        put(&mut bytes, &[until.segment, until.position, times[0], times[1], millis(*by)]);
    }
    let checksum = crc32c::crc32c(&bytes[start..]);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

fn put(bytes: &mut Vec<u8>, fields: &[u64]) {
    fields.iter().for_each(|field| bytes.extend(field.to_le_bytes()));
}

/// For older versions: up to which stamp events are later, and by how much at most.
fn all_jumps_in_one(jumps: &VecDeque<ClockJump>) -> (Timestamp, Duration) {
    let Some(last) = jumps.back() else { return Default::default() };
    // Everything since the last carries at least the time to which it went.
    let before = if last.stamps_to == Timestamp(i64::MAX) {
        Timestamp(last.to.0.saturating_sub(1))
    } else {
        last.stamps_to
    };
    (before, jumps.iter().fold(Duration::ZERO, |all, jump| all.saturating_add(jump.by)))
}

fn decode(bytes: &[u8], identity: u64) -> Option<Content> {
    let intact = bytes.len() >= LENGTH
        && bytes.starts_with(MAGIC)
        && u32_from(&bytes[40..]) == crc32c::crc32c(&bytes[..40])
        && u64_from(&bytes[8..16]) == identity;
    if !intact {
        return None;
    }
    let (proven, before, by) = (time(&bytes[16..]), time(&bytes[24..]), duration(&bytes[32..]));
    // It ended there or later.
    let old = ClockJump { until: LogEnd::MAX, stamps_to: before, to: before, by };
    let old = || (!by.is_zero()).then_some(old).into_iter().collect();
    let parts = decode_marks(bytes);
    let end = parts.as_ref().map_or(LENGTH, |(_, _, end)| *end);
    let jumps = match parts {
        // An older version ends there.
        _ if bytes.len() == end => Some((None, old())),
        Some(_) => decode_jumps(&bytes[end - 4..]),
        None => None,
    };
    let (marks, caught_up, _) = parts.unwrap_or_default();
    let complete = jumps.is_some();
    let (held, jumps) = jumps.unwrap_or_else(|| (None, old()));
    Some(Content { proven, redating: Redating { held, jumps, caught_up }, marks, complete })
}

/// What is behind the part that every version writes, and where it ends.
fn decode_marks(bytes: &[u8]) -> Option<(Marks, VecDeque<CaughtUp>, usize)> {
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
    Some((Marks { ran: duration(&head[4..]), marks: marks.collect() }, starts.collect(), end + 4))
}

/// What is behind that, from the checksum before it on.
fn decode_jumps(bytes: &[u8]) -> Option<(Option<Held>, VecDeque<ClockJump>)> {
    let (before, bytes) = bytes.split_at_checked(4)?;
    let head = bytes.get(..JUMPS)?;
    let count = u32_from(&head[4..]) as usize;
    // An older version may have written what is before it since.
    if head[..4] != *before || count > MAX_JUMPS {
        return None;
    }
    let end = JUMPS + count * JUMP;
    if u32_from(bytes.get(end..end + 4)?) != crc32c::crc32c(&bytes[..end]) {
        return None;
    }
    let log_end = |bytes: &[u8]| LogEnd { segment: u64_from(bytes), position: u64_from(&bytes[8..]) };
    let held = Held { until: log_end(&head[8..]), to: time(&head[24..]) };
    let jumps = bytes[JUMPS..end].chunks_exact(JUMP).map(|jump| ClockJump {
        until: log_end(jump),
        stamps_to: time(&jump[16..]),
        to: time(&jump[24..]),
        by: duration(&jump[32..]),
    });
    Some(((held.until.segment > 0).then_some(held), jumps.collect()))
}

fn time(bytes: &[u8]) -> Timestamp {
    Timestamp(u64_from(bytes).cast_signed())
}

fn duration(bytes: &[u8]) -> Duration {
    Duration::from_millis(u64_from(bytes))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As version 0.1.0 wrote it before there were marks.
    const OLD: [u8; LENGTH] = *b"EPHORTIM\x07\0\0\0\0\0\0\0\x15\xcd\x5b\x07\0\0\0\0\x64\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x57\xa1\xca\xc7";

    fn jump(number: i64) -> ClockJump {
        ClockJump {
            until: LogEnd { segment: number.cast_unsigned(), position: 9 },
            stamps_to: Timestamp(i64::MAX),
            to: Timestamp(101 + number),
            by: Duration::from_millis(5),
        }
    }

    /// With as much as there is room for.
    fn full() -> (Redating, Marks) {
        let start = CaughtUp { from: Timestamp(1), before: Timestamp(2), by: Duration::from_millis(3) };
        let redating = Redating {
            held: Some(Held { until: LogEnd { segment: 3, position: 4 }, to: Timestamp(-5) }),
            jumps: (1..=MAX_JUMPS as i64).map(jump).collect(),
            caught_up: [start; MAX_CAUGHT_UP].into(),
        };
        let marks = (0..MAX_MARKS as i64).map(|number| Mark {
            ran: Duration::from_millis(number.cast_unsigned()),
            wall: Timestamp(-number),
        });
        (redating, Marks { ran: Duration::from_millis(99), marks: marks.collect() })
    }

    #[test]
    fn a_file_without_marks_is_read_and_is_the_beginning_of_one_with_marks() {
        let old = ClockJump { until: LogEnd::MAX, stamps_to: Timestamp(100), to: Timestamp(100), ..jump(0) };
        let content = decode(&OLD, 7).unwrap();
        assert_eq!((content.proven, content.complete), (Timestamp(123_456_789), true));
        assert_eq!(content.redating, Redating { jumps: [old].into(), ..Redating::default() });
        assert_eq!(content.marks, Marks::default());
        for jump in [old, jump(0)] {
            let redating = Redating { jumps: [jump].into(), ..Redating::default() };
            let new = encode(7, Timestamp(123_456_789), &redating, &Marks::default());
            assert_eq!(new[..LENGTH], OLD);
        }
        assert!(decode(&OLD, 8).is_none());
    }

    #[test]
    fn a_file_without_jumps_is_read_and_is_the_beginning_of_one_with_jumps() {
        let (redating, marks) = full();
        let bytes = encode(7, Timestamp(5), &redating, &marks);
        let content = decode(&bytes[..MARKS + MARK * MAX_MARKS + START * MAX_CAUGHT_UP + 4], 7).unwrap();
        assert_eq!((content.complete, content.marks, content.redating.held), (true, marks, None));
        let by = Duration::from_millis(5 * MAX_JUMPS as u64);
        let last = Timestamp(100 + MAX_JUMPS as i64);
        let old = ClockJump { until: LogEnd::MAX, stamps_to: last, to: last, by };
        assert_eq!(content.redating, Redating { held: None, jumps: [old].into(), ..redating });
    }

    #[test]
    fn what_is_written_is_read_and_what_is_damaged_is_known_to_be_lost() {
        let (redating, marks) = full();
        let bytes = encode(7, Timestamp(5), &redating, &marks);
        assert_eq!(bytes.len(), MAX_LENGTH);
        let content = decode(&bytes, 7).unwrap();
        assert_eq!((content.redating, content.marks, content.complete), (redating, marks.clone(), true));
        let with_marks = MARKS + MARK * MAX_MARKS + START * MAX_CAUGHT_UP + 4;
        for at in LENGTH..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x40;
            let expected = if at < with_marks { Marks::default() } else { marks.clone() };
            for damaged in [&flipped[..], &bytes[..at]] {
                let content = decode(damaged, 7).unwrap();
                assert_eq!((content.proven, &content.marks), (Timestamp(5), &expected), "{at}");
                // Exactly so far older versions wrote.
                let older = [LENGTH, with_marks].contains(&damaged.len());
                assert_eq!(content.complete, older, "{at}");
            }
        }
    }
}
