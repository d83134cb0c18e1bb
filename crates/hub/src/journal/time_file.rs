//! The file `time` of a log: stores the proven time, the clock samples and the corrections of enqueued
//! times across restarts.
//!
//! Without it, stamps of a wrong clock would count as the time at the next start, and expire all older events. It is
//! written when the hub is idle and when it closes: an older proven time is safe, since it only keeps events longer. A log
//! whose file is lost or damaged keeps everything for one whole retention age.
//!
//! ```text
//!  0  "EPHORTIM"   8  identity of the log   16  proven time (i64, ms)
//! 24  stamps up to this one are ...   32  ... this many ms later, all jumps in one   40  checksum (u32) of 0..40
//! ```
//!
//! After it, for versions that know it: samples of the wall clock (marks), and starts under a clock that caught up.
//!
//! ```text
//! 44  the checksum at 40 (u32)   48  how long the hub ran (u64, ms)   56  marks (u32)   60  starts (u32)
//! 64  each mark: had run (u64, ms), wall clock (i64, ms)
//!     each start: stamps from (i64) and up to (i64) ... this many ms later (u64)   checksum (u32) of all from 44 on
//! ```
//!
//! After that, for versions that know it: the retention hold, and the jumps (see `StampCorrection`).
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
    CaughtUp, ClockJump, ClockSample, ClockSamples, LogEnd, MAX_CAUGHT_UP, MAX_CLOCK_SAMPLES, MAX_JUMPS,
    RetentionHold, StampCorrection,
};

const NAME: &str = "time";
const MAGIC: &[u8; 8] = b"EPHORTIM";
const LENGTH: usize = 44;
const SAMPLES: usize = 64;
const SAMPLE: usize = 16;
const START: usize = 24;
const JUMPS: usize = 32;
const JUMP: usize = 40;
const MAX_LENGTH: usize =
    SAMPLES + SAMPLE * MAX_CLOCK_SAMPLES + START * MAX_CAUGHT_UP + 4 + JUMPS + JUMP * MAX_JUMPS + 4;

/// The proven time is written when it has moved by this much. At most this much of it is lost in a crash.
const WORTH_WRITING: Duration = Duration::from_secs(10 * 60);

/// The file, which is replaced as a whole.
#[derive(Debug)]
pub(crate) struct TimeFile {
    path: String,
    identity: u64,
    /// The proven time in the file; none if there is no intact one.
    written: Option<Timestamp>,
    correction: StampCorrection,
    samples: ClockSamples,
    /// The corrections are newer than the file.
    changed: bool,
    /// The file was there, and nothing in it was lost.
    complete: bool,
}

/// The decoded content of the file.
struct Content {
    proven: Timestamp,
    correction: StampCorrection,
    samples: ClockSamples,
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
                    tracing::warn!(%error, "cannot read the file \"time\" of a log");
                }
                None
            }
        };
        let written = content.as_ref().map(|content| content.proven);
        let complete = content.as_ref().is_some_and(|content| content.complete);
        let (correction, samples) =
            content.map(|content| (content.correction, content.samples)).unwrap_or_default();
        Self { path, identity, written, correction, samples, changed: false, complete }
    }

    /// Returns the stored proven time.
    pub(crate) fn proven(&self) -> Option<Timestamp> {
        self.written
    }

    /// Returns the stored samples of the wall clock.
    pub(crate) fn clock_samples(&self) -> ClockSamples {
        self.samples.clone()
    }

    /// Returns the corrections of stamps.
    pub(crate) fn correction(&self) -> &StampCorrection {
        &self.correction
    }

    /// Whether the file was there, and nothing in it was lost.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Changes the corrections of stamps.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut StampCorrection)) {
        change(&mut self.correction);
        self.changed = true;
    }

    /// Drops corrections that apply to no event any more. That alone need not be written.
    pub(crate) fn forget_before(&mut self, oldest: LogEnd) {
        self.correction.forget_before(oldest);
    }

    /// Sets the position of jumps that an older version stored without one.
    pub(crate) fn end_old_jumps(&mut self, end: LogEnd) {
        let old = self.correction.jumps.iter_mut().filter(|jump| jump.until == LogEnd::MAX);
        old.for_each(|jump| jump.until = end);
    }

    /// Writes the file if the proven time has moved far enough, or if the corrections changed.
    pub(crate) fn note(
        &mut self,
        files: &dyn Files,
        proven: Timestamp,
        samples: &ClockSamples,
    ) -> io::Result<()> {
        let recent = self.written.is_some_and(|written| proven.since(written) < WORTH_WRITING);
        if recent && !self.changed {
            return Ok(());
        }
        self.store(files, proven, samples)
    }

    /// Writes the file, and waits for the disk. A crash leaves the old file or the new one, never a part of one.
    pub(crate) fn store(
        &mut self,
        files: &dyn Files,
        proven: Timestamp,
        samples: &ClockSamples,
    ) -> io::Result<()> {
        let bytes = encode(self.identity, proven, &self.correction, samples);
        let new = format!("{}.new", self.path);
        // Overwrites what a failed attempt left.
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

fn encode(identity: u64, proven: Timestamp, correction: &StampCorrection, samples: &ClockSamples) -> Vec<u8> {
    let StampCorrection { held, jumps, caught_up } = correction;
    let mut bytes = MAGIC.to_vec();
    let (before, by) = all_jumps_in_one(jumps);
    put(&mut bytes, &[identity, proven.0.cast_unsigned(), before.0.cast_unsigned(), millis(by)]);
    let checksum = crc32c::crc32c(&bytes).to_le_bytes();
    bytes.extend(checksum);
    bytes.extend(checksum);
    put(&mut bytes, &[millis(samples.ran)]);
    let counts = [samples.samples.len().min(MAX_CLOCK_SAMPLES), caught_up.len().min(MAX_CAUGHT_UP)];
    counts.iter().for_each(|count| bytes.extend((*count as u32).to_le_bytes()));
    for ClockSample { ran, wall } in samples.samples.iter().take(MAX_CLOCK_SAMPLES) {
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
    let held = held
        .map_or([0; 3], |RetentionHold { until, to }| [until.segment, until.position, to.0.cast_unsigned()]);
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

/// For older versions: up to which stamp events are later, and by how much in all.
fn all_jumps_in_one(jumps: &VecDeque<ClockJump>) -> (Timestamp, Duration) {
    let Some(last) = jumps.back() else { return Default::default() };
    // All stamps since the last jump are at least the time to which it went.
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
    // The jump ended there or later.
    let old = ClockJump { until: LogEnd::MAX, stamps_to: before, to: before, by };
    let old = || (!by.is_zero()).then_some(old).into_iter().collect();
    let parts = decode_samples(bytes);
    let end = parts.as_ref().map_or(LENGTH, |(_, _, end)| *end);
    let jumps = match parts {
        // An older version ends there.
        _ if bytes.len() == end => Some((None, old())),
        Some(_) => decode_jumps(&bytes[end - 4..]),
        None => None,
    };
    let (samples, caught_up, _) = parts.unwrap_or_default();
    let complete = jumps.is_some();
    let (held, jumps) = jumps.unwrap_or_else(|| (None, old()));
    Some(Content { proven, correction: StampCorrection { held, jumps, caught_up }, samples, complete })
}

/// Decodes the second part: clock samples and starts. Returns also where it ends.
fn decode_samples(bytes: &[u8]) -> Option<(ClockSamples, VecDeque<CaughtUp>, usize)> {
    let head = bytes.get(LENGTH..SAMPLES)?;
    let (samples, starts) = (u32_from(&head[12..]) as usize, u32_from(&head[16..]) as usize);
    // An older version may have written the first part since.
    if head[..4] != bytes[40..LENGTH] || samples > MAX_CLOCK_SAMPLES || starts > MAX_CAUGHT_UP {
        return None;
    }
    let (first_start, end) = (SAMPLES + samples * SAMPLE, SAMPLES + samples * SAMPLE + starts * START);
    let checksum = bytes.get(end..end + 4)?;
    if u32_from(checksum) != crc32c::crc32c(&bytes[LENGTH..end]) {
        return None;
    }
    let samples = bytes[SAMPLES..first_start].chunks_exact(SAMPLE);
    let samples = samples.map(|sample| ClockSample { ran: duration(sample), wall: time(&sample[8..]) });
    let starts = bytes[first_start..end].chunks_exact(START);
    let starts = starts.map(|start| CaughtUp {
        from: time(start),
        before: time(&start[8..]),
        by: duration(&start[16..]),
    });
    Some((ClockSamples { ran: duration(&head[4..]), samples: samples.collect() }, starts.collect(), end + 4))
}

/// Decodes the third part: the retention hold and the jumps. Begins at the checksum before it.
fn decode_jumps(bytes: &[u8]) -> Option<(Option<RetentionHold>, VecDeque<ClockJump>)> {
    let (before, bytes) = bytes.split_at_checked(4)?;
    let head = bytes.get(..JUMPS)?;
    let count = u32_from(&head[4..]) as usize;
    // Otherwise an older version has written the parts before it later.
    if head[..4] != *before || count > MAX_JUMPS {
        return None;
    }
    let end = JUMPS + count * JUMP;
    if u32_from(bytes.get(end..end + 4)?) != crc32c::crc32c(&bytes[..end]) {
        return None;
    }
    let log_end = |bytes: &[u8]| LogEnd { segment: u64_from(bytes), position: u64_from(&bytes[8..]) };
    let held = RetentionHold { until: log_end(&head[8..]), to: time(&head[24..]) };
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

    /// With as many entries as fit.
    fn full() -> (StampCorrection, ClockSamples) {
        let start = CaughtUp { from: Timestamp(1), before: Timestamp(2), by: Duration::from_millis(3) };
        let correction = StampCorrection {
            held: Some(RetentionHold { until: LogEnd { segment: 3, position: 4 }, to: Timestamp(-5) }),
            jumps: (1..=MAX_JUMPS as i64).map(jump).collect(),
            caught_up: [start; MAX_CAUGHT_UP].into(),
        };
        let samples = (0..MAX_CLOCK_SAMPLES as i64).map(|number| ClockSample {
            ran: Duration::from_millis(number.cast_unsigned()),
            wall: Timestamp(-number),
        });
        (correction, ClockSamples { ran: Duration::from_millis(99), samples: samples.collect() })
    }

    #[test]
    fn a_file_without_marks_is_read_and_is_the_beginning_of_one_with_marks() {
        let old = ClockJump { until: LogEnd::MAX, stamps_to: Timestamp(100), to: Timestamp(100), ..jump(0) };
        let content = decode(&OLD, 7).unwrap();
        assert_eq!((content.proven, content.complete), (Timestamp(123_456_789), true));
        assert_eq!(content.correction, StampCorrection { jumps: [old].into(), ..StampCorrection::default() });
        assert_eq!(content.samples, ClockSamples::default());
        for jump in [old, jump(0)] {
            let correction = StampCorrection { jumps: [jump].into(), ..StampCorrection::default() };
            let new = encode(7, Timestamp(123_456_789), &correction, &ClockSamples::default());
            assert_eq!(new[..LENGTH], OLD);
        }
        assert!(decode(&OLD, 8).is_none());
    }

    #[test]
    fn a_file_without_jumps_is_read_and_is_the_beginning_of_one_with_jumps() {
        let (correction, samples) = full();
        let bytes = encode(7, Timestamp(5), &correction, &samples);
        let content =
            decode(&bytes[..SAMPLES + SAMPLE * MAX_CLOCK_SAMPLES + START * MAX_CAUGHT_UP + 4], 7).unwrap();
        assert_eq!((content.complete, content.samples, content.correction.held), (true, samples, None));
        let by = Duration::from_millis(5 * MAX_JUMPS as u64);
        let last = Timestamp(100 + MAX_JUMPS as i64);
        let old = ClockJump { until: LogEnd::MAX, stamps_to: last, to: last, by };
        assert_eq!(content.correction, StampCorrection { held: None, jumps: [old].into(), ..correction });
    }

    #[test]
    fn what_is_written_is_read_and_what_is_damaged_is_known_to_be_lost() {
        let (correction, samples) = full();
        let bytes = encode(7, Timestamp(5), &correction, &samples);
        assert_eq!(bytes.len(), MAX_LENGTH);
        let content = decode(&bytes, 7).unwrap();
        assert_eq!(
            (content.correction, content.samples, content.complete),
            (correction, samples.clone(), true)
        );
        let with_marks = SAMPLES + SAMPLE * MAX_CLOCK_SAMPLES + START * MAX_CAUGHT_UP + 4;
        for at in LENGTH..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x40;
            let expected = if at < with_marks { ClockSamples::default() } else { samples.clone() };
            for damaged in [&flipped[..], &bytes[..at]] {
                let content = decode(damaged, 7).unwrap();
                assert_eq!((content.proven, &content.samples), (Timestamp(5), &expected), "{at}");
                // Exactly so far older versions wrote.
                let older = [LENGTH, with_marks].contains(&damaged.len());
                assert_eq!(content.complete, older, "{at}");
            }
        }
    }
}
