//! Recovers a segment after a crash: finds the end of its log, and distinguishes a torn tail from damage.
//!
//! A commit begins only when the one before is on disk. So an unreadable part was
//!
//! - *damaged* after it had been acknowledged, if a frame of a later commit follows it, or if it is before the
//!   [durable mark](super::durable_mark): it is reported and skipped, and what follows is kept;
//! - *torn* otherwise: the last commit was not finished, and never acknowledged. The log ends there.

use std::io;
use std::ops::Range;

use super::damage::Damage;
use super::frame_iterator::{Step, Walk};
use super::index::Index;
use super::layout::{FrameHeader, Kind, MIN_RECORD};

/// The result of the recovery of a segment.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The index of the intact frames.
    pub(crate) index: Index,
    /// The end of the log.
    pub(crate) end: u64,
    /// The position at which the commit of the last intact frame began.
    pub(crate) last_commit: u64,
    /// The bytes that were read.
    pub(crate) bytes_read: u64,
    /// The torn tail after the end.
    pub(crate) torn: Option<Range<u64>>,
    /// The damaged parts, which are skipped.
    pub(crate) damage: Vec<Damage>,
    /// The number of frames with events.
    pub(crate) frames: u64,
    /// The number of events in them.
    pub(crate) events: u64,
    /// The most events of any partition that may have been in the damaged parts without leaving a trace.
    pub(crate) untraced: u64,
}

/// An unreadable part with its header, if that is intact.
struct UnreadablePart {
    range: Range<u64>,
    header: Option<FrameHeader>,
}

/// Walks to the end. `index` covers what comes before; everything before `proven` was on disk once.
pub(crate) fn recover(
    mut walk: Walk<'_>,
    index: Index,
    from: u64,
    proven: u64,
    file: &str,
) -> io::Result<Recovered> {
    let mut found = Recovered {
        index,
        end: from,
        last_commit: from,
        bytes_read: 0,
        torn: None,
        damage: Vec::new(),
        frames: 0,
        events: 0,
        untraced: 0,
    };
    // Steps after an unreadable part wait here until it is known whether that part is damaged or torn.
    let mut undecided: Vec<Step> = Vec::new();
    let mut stopped_at = from;
    while let Some(step) = walk.step()? {
        match &step {
            Step::Frame { position, header, .. } => {
                stopped_at = position + header.frame_length();
                let proven = proven.max(header.commit);
                undecided.push(step);
                found.settle(&mut undecided, proven, file);
            }
            Step::Unreadable { range, header } => {
                stopped_at = range.end;
                let proven = proven.max(header.map_or(0, |header| header.commit));
                undecided.push(step);
                found.settle(&mut undecided, proven, file);
            }
        }
    }
    found.settle(&mut undecided, proven, file);
    found.bytes_read = walk.bytes_read();
    if let Some(Step::Unreadable { range, .. }) = undecided.first() {
        found.torn = Some(range.start..stopped_at);
    }
    Ok(found)
}

impl Recovered {
    /// Adds the decided steps: everything up to the first unreadable part that is not proven to be damage.
    fn settle(&mut self, undecided: &mut Vec<Step>, proven: u64, file: &str) {
        let open = |step: &Step| matches!(step, Step::Unreadable { range, .. } if range.start >= proven);
        let decided = undecided.iter().position(open).unwrap_or(undecided.len());
        for step in undecided.drain(..decided) {
            match step {
                Step::Frame { position, header, reserved } => self.frame(position, &header, &reserved, file),
                Step::Unreadable { range, header } => self.damaged(UnreadablePart { range, header }, file),
            }
        }
    }

    fn frame(&mut self, position: u64, header: &FrameHeader, reserved: &[(u32, u64)], file: &str) {
        self.end = position + header.frame_length();
        self.last_commit = header.commit;
        match header.kind {
            Kind::Reservation => {
                reserved.iter().for_each(|(partition, until)| self.index.reserve(*partition, *until));
            }
            Kind::Events => {
                let expected = self.index.state(header.partition).next;
                if header.first < expected {
                    // The number is used already. Only a bug could write this, so it is not served.
                    let range = position..self.end;
                    self.damage
                        .push(Damage::new(file, range).of(header.partition, header.first..header.end()));
                    return;
                }
                if header.first > expected {
                    let missing = expected..header.first;
                    match self.damage.last_mut() {
                        Some(damage) => damage.add(header.partition, missing),
                        None => self
                            .damage
                            .push(Damage::new(file, position..position).of(header.partition, missing)),
                    }
                }
                self.frames += 1;
                self.events += u64::from(header.count);
                self.index.add(header, position);
            }
        }
    }

    fn damaged(&mut self, part: UnreadablePart, file: &str) {
        let UnreadablePart { range, header } = part;
        self.end = range.end;
        let mut damage = Damage::new(file, range.clone());
        match header {
            Some(header) if header.kind == Kind::Events => {
                damage.add(header.partition, header.first..header.end());
                self.index.skip(header.partition, header.end());
            }
            Some(_) => {}
            // At most this many records fit.
            None => self.untraced += (range.end - range.start) / MIN_RECORD,
        }
        self.damage.push(damage);
    }
}

#[cfg(test)]
mod tests;
