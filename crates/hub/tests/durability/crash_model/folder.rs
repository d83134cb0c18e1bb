//! A small data folder for damage tests: its content, and the checks after it was damaged and opened.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ephor_core::event::Event;
use ephor_core::ids::PartitionId;
use ephor_hub::{Damage, Hub, HubConfig, LocalNamespace, NamespaceConfig, NewEvent, Target};
use tokio::runtime::Runtime;

use super::Checked;
use super::committer_clock::{CommitterClock, START};
use super::event::EventId;
use super::reading::all_of;
use crate::common::faulty_files::{Fate, FaultyFiles};

const PARTITIONS: u32 = 3;
const BATCHES: u32 = 4;

/// The bytes of one copy of a segment's header.
const HEADER_COPY: usize = 64 + 32 * PARTITIONS as usize;

/// The number of a partition.
pub type Number = (u32, u64);

/// Where a batch lies.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The path of its segment.
    pub path: String,
    pub range: Range<usize>,
    pub partition: u32,
    pub numbers: Range<u64>,
}

/// A folder with a hub of several segments.
#[derive(Debug)]
pub struct Folder {
    pub files: FaultyFiles,
    /// Every event that was acknowledged.
    pub events: BTreeMap<Number, EventId>,
    pub frames: Vec<Frame>,
}

/// How the folder was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Closed,
    /// The power failed while nobody was sending, and the mark was on disk.
    Marked,
    /// The power failed, and what was not synced is lost: also how far the log was known to be on disk.
    Unmarked,
}

fn open(files: &FaultyFiles) -> Checked<LocalNamespace> {
    let opened =
        LocalNamespace::on(Arc::new(files.clone()), NamespaceConfig::default(), CommitterClock::new(START));
    opened.map_err(|error| format!("the namespace does not open: {error}"))
}

fn send(hub: &Hub, runtime: &Runtime, id: EventId, lengths: &[usize]) -> Checked<u64> {
    let event =
        |(index, length): (usize, &usize)| NewEvent::new(EventId { index: index as u32, ..id }.body(*length));
    let events: Vec<NewEvent> = lengths.iter().enumerate().map(event).collect();
    let target = Target::Partition(PartitionId(id.partition));
    let sent = runtime.block_on(hub.producer().send_batch(target, events));
    sent.map(|receipt| receipt.first.0).map_err(|error| format!("sending fails: {error}"))
}

impl Folder {
    pub fn make(left: Left, segments: u32, runtime: &Runtime) -> Checked<Folder> {
        let files = FaultyFiles::new(u64::MAX);
        let committer_clock = CommitterClock::new(START);
        // Without room ahead: every byte of a small file can be damaged.
        let config = NamespaceConfig { segment_bytes: 1 << 20, ..NamespaceConfig::default() };
        let namespace = LocalNamespace::on(Arc::new(files.clone()), config, committer_clock.clone());
        let namespace = namespace.map_err(|error| error.to_string())?;
        let config = HubConfig::new("homes", PARTITIONS).map_err(|error| error.to_string())?;
        let hub = namespace.create_hub(config).map_err(|error| error.to_string())?;
        hub.create_group("alarms").map_err(|error| error.to_string())?;
        let mut events = BTreeMap::new();
        for batch in 0..segments * BATCHES {
            if batch > 0 && batch % BATCHES == 0 {
                hub.seal_segment().map_err(|error| error.to_string())?;
            }
            let id = EventId { hub: 1, partition: batch * 7 % 5 % PARTITIONS, batch, index: 0 };
            let lengths = vec![20 + (batch as usize * 13) % 90; 1 + batch as usize % 3];
            let first = send(&hub, runtime, id, &lengths)?;
            for index in 0..lengths.len() as u32 {
                events.insert((id.partition, first + u64::from(index)), EventId { index, ..id });
            }
        }
        if !committer_clock.wait_for_rest(1) {
            return Err("the committer does not become idle".to_owned());
        }
        if left == Left::Closed {
            namespace.close().map_err(|error| error.to_string())?;
        }
        files.power_off();
        let files = files.after_crash(if left == Left::Unmarked { Fate::AllLost } else { Fate::AllKept });
        let frames = frames(&files);
        let framed: u64 = frames.iter().map(|frame| frame.numbers.end - frame.numbers.start).sum();
        if framed != events.len() as u64 {
            return Err(format!("{} events are in frames, and {} were sent", framed, events.len()));
        }
        Ok(Folder { files, events, frames })
    }

    /// A copy that can be damaged.
    pub fn copy(&self) -> FaultyFiles {
        self.files.after_crash(Fate::AllKept)
    }

    /// The log files, oldest first.
    pub fn logs(&self) -> Vec<(String, usize)> {
        self.files.files().into_iter().filter(|(path, _)| path.ends_with(".log")).collect()
    }

    /// The frames that these bytes of a file are part of.
    pub fn frames_in<'a>(
        &'a self,
        path: &'a str,
        bytes: &'a Range<usize>,
    ) -> impl Iterator<Item = &'a Frame> {
        let overlaps = |frame: &&Frame| frame.range.start < bytes.end && bytes.start < frame.range.end;
        self.frames.iter().filter(move |frame| frame.path == path).filter(overlaps)
    }

    /// Opens what has been damaged in these bytes of this file. What can be missing is missing, and named;
    /// all else is served; and sending goes on with numbers that nobody has.
    pub fn check(&self, files: &FaultyFiles, runtime: &Runtime, path: &str, bytes: &Range<usize>) -> Checked {
        // Nothing can be known of a hub without its record, or without any header of its newest segment.
        let is_newest = self.logs().last().is_some_and(|(newest, _)| newest == path);
        let may_be_refused = path.ends_with("hub.json") || (is_newest && bytes.start < HEADER_COPY);
        let length = files.files().iter().find(|(other, _)| other == path).map(|(_, length)| *length);
        let namespace = open(files)?;
        let hub = match namespace.hub("homes") {
            Ok(hub) => hub,
            Err(_) => {
                let broken = namespace.broken();
                let named = broken.iter().any(|(_, reason)| reason.contains(path));
                let why = format!("the hub is not served: {broken:?}");
                return if named && may_be_refused { Ok(()) } else { Err(why) };
            }
        };
        let missing = self.check_events(&hub)?;
        let damage = hub.damage();
        self.check_missing(&missing, &damage, path, bytes)?;
        let length_now = files.files().iter().find(|(other, _)| other == path).map(|(_, length)| *length);
        if path.ends_with(".log") && length_now != length {
            return Err(format!(
                "{path} had {length:?} bytes, and has {length_now:?} now that it was opened"
            ));
        }
        self.check_sending(&hub, runtime)?;
        namespace.close().map_err(|error| format!("closing fails: {error}"))?;
        if !bytes.start.is_multiple_of(8) {
            return Ok(());
        }
        let namespace = open(files)?;
        let hub = namespace.hub("homes").map_err(|error| format!("opened again: {error}"))?;
        let still_missing = self.check_events(&hub).map_err(|error| format!("opened again: {error}"))?;
        if still_missing != missing {
            return Err(format!("{missing:?} were missing, and {still_missing:?} once it was opened again"));
        }
        Ok(())
    }

    /// Checks that every event served was sent, and returns those that are missing.
    fn check_events(&self, hub: &Hub) -> Checked<Vec<Number>> {
        let mut missing = self.events.clone();
        for partition in 0..PARTITIONS {
            let mut last = None;
            for event in all_of(hub, partition)? {
                let number = event.sequence.0;
                if last.is_some_and(|last| last >= number) {
                    return Err(format!("number {number} follows {last:?} in partition {partition}"));
                }
                last = Some(number);
                self.check_event(partition, &event)?;
                missing.remove(&(partition, number));
            }
        }
        Ok(missing.into_keys().collect())
    }

    fn check_event(&self, partition: u32, event: &Event) -> Checked {
        let number = event.sequence.0;
        let id = EventId::of(event)?;
        let expected = self.events.get(&(partition, number));
        let is_new = id.hub == 2 && id.partition == partition && expected.is_none();
        if expected == Some(&id) || is_new {
            return Ok(());
        }
        Err(format!("number {number} of partition {partition} is {id:?}, and was {expected:?}"))
    }

    /// Only events in the damaged bytes are missing, and whoever asks is told where, and which.
    fn check_missing(
        &self,
        missing: &[Number],
        damage: &[Damage],
        path: &str,
        bytes: &Range<usize>,
    ) -> Checked {
        for (partition, number) in missing {
            let mut hit = self.frames_in(path, bytes);
            let hit = hit.find(|frame| frame.partition == *partition && frame.numbers.contains(number));
            let Some(frame) = hit else {
                return Err(format!("number {number} of partition {partition} is not served; {damage:?}"));
            };
            let placed = damage.iter().filter(|damage| damage.file.contains(path)).any(|damage| {
                let (start, end) = (damage.position as usize, (damage.position + damage.length) as usize);
                // From the beginning: nothing in the file can be served.
                (start < frame.range.end && frame.range.start < end) || start == 0
            });
            let mut events = damage.iter().flat_map(|damage| &damage.events);
            let named = events.any(|(id, events)| id.0 == *partition && events.contains(number));
            // Nothing tells which events were in the oldest segment once its header is gone.
            let is_oldest = self.logs().first().is_some_and(|(oldest, _)| oldest == path);
            let named = named || (is_oldest && bytes.start == 0 && bytes.len() > HEADER_COPY);
            if !placed || !named {
                return Err(format!(
                    "number {number} of partition {partition} is missing, known is {damage:?}"
                ));
            }
        }
        Ok(())
    }

    fn check_sending(&self, hub: &Hub, runtime: &Runtime) -> Checked {
        for partition in 0..PARTITIONS {
            let id = EventId { hub: 2, partition, batch: 0, index: 0 };
            let number = send(hub, runtime, id, &[30])?;
            if self.events.contains_key(&(partition, number)) {
                return Err(format!("number {number} of partition {partition} is used twice"));
            }
        }
        Ok(())
    }
}

/// All frames in all logs, as `journal/layout.rs` draws them.
fn frames(files: &FaultyFiles) -> Vec<Frame> {
    let mut frames = Vec::new();
    for (path, length) in files.files().into_iter().filter(|(path, _)| path.ends_with(".log")) {
        let content = files.read(&path).unwrap_or_default();
        let number = |at: usize| content[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let mut at = 0;
        while at + 56 <= length {
            if !content[at..].starts_with(b"EPHF") {
                at += 8;
                continue;
            }
            let payload = (number(at + 8) & 0xffff_ffff) as usize;
            let (partition, count) = (number(at + 16) & 0xffff_ffff, number(at + 16) >> 32);
            let first = number(at + 24);
            let range = at..at + 56 + payload;
            at = range.end;
            let numbers = first..first + count;
            frames.push(Frame { path: path.clone(), range, partition: partition as u32, numbers });
        }
    }
    frames
}
