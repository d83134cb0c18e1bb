//! Verifies a whole log: reads every segment and checks the checksums of its header and its frames. Files of
//! the index, the mark and the time are not verified.

use std::io;

use super::damage::Damage;
use super::durable_mark::DurableMarkFile;
use super::frame_iterator::Walk;
use super::index::Index;
use super::layout::{Unreadable, segment_name, segment_number};
use super::recovery::recover;
use super::segment::read_header;
use crate::files::Files;

/// The result of verifying a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogVerification {
    /// The number of segment files.
    pub segments: u64,
    /// The number of batches.
    pub batches: u64,
    /// The number of intact events.
    pub events: u64,
    /// The bytes that were read.
    pub bytes: u64,
    /// Bytes of an unfinished commit, which was never acknowledged; unless it was damaged later.
    pub torn_bytes: u64,
    /// The damaged parts.
    pub damage: Vec<Damage>,
}

/// Verifies the log in this folder. Changes nothing.
pub(crate) fn verify(files: &dyn Files, folder: &str, identity: u64) -> io::Result<LogVerification> {
    let mut numbers: Vec<u64> = files.list(folder)?.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort_unstable();
    let mark = DurableMarkFile::peek(files, folder, identity);
    let mut report = LogVerification { segments: numbers.len() as u64, ..LogVerification::default() };
    // An unfinished creation is no damage, and the next start removes it; unless the durable mark shows that the segment
    // was finished.
    while let Some(number) =
        numbers.last().copied().filter(|last| mark.is_none_or(|mark| mark.segment < *last))
    {
        let file = files.open(&format!("{folder}/{}", segment_name(number)))?;
        if !super::open::is_unfinished(&*file, identity, number)? {
            break;
        }
        report.torn_bytes += file.len()?;
        numbers.pop();
    }
    // The header of the next segment: it says where this one ends, and which events it must have.
    let mut behind: Option<super::layout::SegmentHeader> = None;
    for number in numbers.iter().rev().copied() {
        let path = format!("{folder}/{}", segment_name(number));
        let file = files.open(&path)?;
        let name = files.shown(&path);
        let length = file.len()?;
        report.bytes += length;
        let header = match read_header(&*file)? {
            Ok((header, one_damaged)) => {
                if one_damaged {
                    report.damage.push(Damage::new(&name, 0..header.first_frame()));
                }
                header
            }
            Err(Unreadable::Damaged) => {
                report.damage.push(Damage::new(&name, 0..length));
                behind = None;
                continue;
            }
            Err(unreadable) => return Err(super::invalid(unreadable.describe(&name))),
        };
        let follows = behind.take().filter(|behind| behind.number == number + 1);
        let newest = Some(&number) == numbers.last();
        let (end, proven) = match &follows {
            Some(behind) => (behind.previous_length.min(length), behind.previous_length),
            None if newest => {
                (length, mark.filter(|mark| mark.segment == number).map_or(0, |mark| mark.position))
            }
            None => {
                report.damage.push(Damage::new(&format!("{} (missing)", segment_name(number + 1)), 0..0));
                (length, length)
            }
        };
        let start = header.first_frame();
        let walk = Walk::new(&*file, identity, number, start..end);
        let found = recover(walk, Index::new(&header.partitions), start, proven, &name)?;
        report.batches += found.frames;
        report.events += found.events;
        report.torn_bytes += found.torn.as_ref().map_or(0, |torn| torn.end - torn.start);
        let mut damage = found.damage;
        if found.end < proven.min(length) || length < proven {
            damage.push(Damage::new(&name, found.end..proven));
        }
        // Events that must be here by the header of the next segment, and are not.
        for id in 0..super::layout::MAX_PARTITIONS as u32 {
            let next = found.index.state(id).next;
            let Some((last, _)) = follows.as_ref().and_then(|behind| behind.partition(id).last) else {
                continue;
            };
            if last >= next.max(header.partition(id).next) {
                let events = next..last + 1;
                match damage.last_mut() {
                    Some(damage) => damage.add(id, events),
                    None => damage.push(Damage::new(&name, found.end..found.end).of(id, events)),
                }
            }
        }
        report.damage.extend(damage);
        behind = Some(header);
    }
    report.damage.sort_by(|a, b| (&a.file, a.position).cmp(&(&b.file, b.position)));
    Ok(report)
}
