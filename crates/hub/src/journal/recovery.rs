//! What is left of the newest segment, and which of its unreadable parts is a torn tail.
//!
//! A commit begins only when the one before is on disk. So what is unreadable
//! was
//!
//! - *damaged* after it had been acknowledged, if a frame of a later commit
//!   follows it, or if it lies before the [mark](super::mark): it is reported and
//!   passed over, and what follows is kept;
//! - *torn* otherwise: the last commit was cut short before anyone was told that
//!   it was stored. The log ends there.

use std::io;
use std::ops::Range;

use super::damage::Damage;
use super::index::Index;
use super::layout::{FrameHeader, Kind, SHORTEST_RECORD};
use super::walk::{Step, Walk};

/// What a walk through a segment found.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// What there is, by partition.
    pub(crate) index: Index,
    /// Where the log ends.
    pub(crate) end: u64,
    /// Where the commit began that wrote the last intact frame.
    pub(crate) last_commit: u64,
    /// How many bytes were read for it.
    pub(crate) bytes_read: u64,
    /// What is cut off behind it.
    pub(crate) torn: Option<Range<u64>>,
    /// What cannot be read and is passed over.
    pub(crate) damage: Vec<Damage>,
    /// How many frames of events there are.
    pub(crate) frames: u64,
    /// How many events are in them.
    pub(crate) events: u64,
    /// At most so many events of any partition may have been in the damaged parts without leaving a trace.
    pub(crate) untraced: u64,
}

/// Something unreadable that has not been judged yet.
struct Suspect {
    range: Range<u64>,
    header: Option<FrameHeader>,
}

/// Walks to the end. `index` holds what lies before; everything before `proven` was on disk once.
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
    // What comes behind a suspect counts only once the suspect has been judged.
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
    /// Takes in what is decided: everything up to the first suspect that is not proven to be damage.
    fn settle(&mut self, undecided: &mut Vec<Step>, proven: u64, file: &str) {
        let open = |step: &Step| matches!(step, Step::Unreadable { range, .. } if range.start >= proven);
        let decided = undecided.iter().position(open).unwrap_or(undecided.len());
        for step in undecided.drain(..decided) {
            match step {
                Step::Frame { position, header, reserved } => self.frame(position, &header, &reserved, file),
                Step::Unreadable { range, header } => self.damaged(Suspect { range, header }, file),
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
                    // A number that is taken already: only a fault of ours could write it. It is not served.
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

    fn damaged(&mut self, suspect: Suspect, file: &str) {
        let Suspect { range, header } = suspect;
        self.end = range.end;
        let mut damage = Damage::new(file, range.clone());
        match header {
            Some(header) if header.kind == Kind::Events => {
                damage.add(header.partition, header.first..header.end());
                self.index.skip(header.partition, header.end());
            }
            Some(_) => {}
            // No record is shorter.
            None => self.untraced += (range.end - range.start) / SHORTEST_RECORD,
        }
        self.damage.push(damage);
    }
}

#[cfg(test)]
mod tests;
