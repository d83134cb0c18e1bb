//! Fuzzes the data folder of a hub: arbitrary files are opened, read, written to and opened again.
//!
//! An input is a list of writes into the files of one hub: the file, the position, and the bytes. The highest
//! bit of the first byte repairs the checksums of that file, so that mutations reach the code after the
//! checks. Only an attacker makes files with wrong contents and right checksums; they may hide events, but can
//! neither crash nor stall the hub.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ephor_core::ids::PartitionId;
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::EventSource;
use ephor_core::time::{Clock, Monotonic, Timestamp};
use ephor_hub::files::{Files, MemoryFiles};
use ephor_hub::{
    Durability, Hub, HubReceiver, LocalNamespace, NamespaceConfig, NewEvent, Target, verify_files,
};

/// The hub's identity, which is part of the checksum of every frame header.
pub const IDENTITY: u64 = 0x3f9c_0a6b_1d2e_4f50;
/// The folder of the hub.
pub const FOLDER: &str = "hubs/homes.3f9c0a6b1d2e4f50";
/// The files that an input can write.
pub const FILES: [&str; 8] = [
    "hub.json",
    "mark",
    "time",
    "00000000000000000001.log",
    "00000000000000000001.index",
    "00000000000000000002.log",
    "00000000000000000002.index",
    "hub.json.new",
];

/// The header of a write: the file, the position in units of 8, and the length.
const WRITE: usize = 5;
const REPAIR: u8 = 0x80;
/// The maximum number of reads that any input leads to.
const MAX_READS: usize = 100_000;
/// The maximum number of partitions that are checked: further ones are alike.
const MAX_PARTITIONS: u32 = 8;

/// A stopped clock.
#[derive(Debug)]
pub struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Monotonic {
        Monotonic(1)
    }

    fn wall(&self) -> Timestamp {
        Timestamp(1_700_000_000_000)
    }
}

/// The configuration of the hubs: everything runs on this thread.
pub fn config() -> NamespaceConfig {
    NamespaceConfig {
        durability: Durability::Memory,
        segment_bytes: 4 << 10,
        recent_bytes: 0,
        ..NamespaceConfig::default()
    }
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let files = Arc::new(MemoryFiles::default());
    let forged = fill(&files, data);
    verify_files(&*files).expect("files in memory can be listed");
    for _ in 0..2 {
        let opened = LocalNamespace::on(files.clone(), config(), Arc::new(Stopped));
        let namespace = opened.expect("a damaged hub does not stop the namespace");
        let hubs = namespace.hubs_open();
        assert!(hubs.len() + namespace.broken().len() <= 1, "one folder is one hub");
        hubs.iter().for_each(|hub| play(hub, forged));
    }
}

/// Reads everything, sends one event and reads it.
fn play(hub: &Hub, forged: bool) {
    let partitions = hub.partition_count().min(MAX_PARTITIONS);
    for id in (0..partitions).map(PartitionId) {
        for start in [StartPosition::Earliest, StartPosition::EnqueuedTime(Stopped.wall()), middle(hub, id)] {
            // The position may not exist.
            if let Some(Ok(mut reader)) = at_once(hub.reader(id, start)) {
                read_all(&mut reader);
            }
        }
        let sent = at_once(hub.producer().send_batch(Target::Partition(id), [NewEvent::new("door")]));
        let Some(Ok(receipt)) = sent else { continue };
        let start = StartPosition::at(receipt.first);
        let mut reader =
            at_once(hub.reader(id, start)).expect("it does not wait").expect("the event was stored");
        let read = read_all(&mut reader);
        assert!(forged || read == Some(receipt.first), "{receipt:?} was stored, but {read:?} was read");
    }
    let _ = (hub.describe(), hub.damage(), hub.health());
}

fn middle(hub: &Hub, id: PartitionId) -> StartPosition {
    let properties = at_once(hub.partition_properties(id)).and_then(Result::ok);
    let last = properties.and_then(|properties| properties.last).map_or(0, |last| last.sequence.0);
    StartPosition::at(SequenceNumber(last / 2))
}

/// Reads to the end, and checks that sequence numbers grow; returns the first event.
fn read_all(reader: &mut HubReceiver) -> Option<SequenceNumber> {
    let (mut first, mut last) = (None, None);
    for _ in 0..MAX_READS {
        let Some(Ok(batch)) = at_once(reader.next(1_000, 1 << 20)) else { return first };
        for event in batch.events() {
            assert!(last < Some(event.sequence), "{:?} comes after {last:?}", event.sequence);
            last = Some(event.sequence);
            first = first.or(last);
        }
    }
    panic!("reading does not end");
}

/// Polls a future once: nothing here has to wait.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Creates the files, and returns true if checksums were forged.
fn fill(files: &MemoryFiles, mut data: &[u8]) -> bool {
    let folders = files.create_folder("hubs").and_then(|()| files.create_folder(FOLDER));
    folders.expect("folders in memory");
    let mut repair = [false; FILES.len()];
    while let Some((head, rest)) = data.split_at_checked(WRITE) {
        let index = usize::from(head[0] & !REPAIR) % FILES.len();
        let position = u64::from(u16::from_le_bytes([head[1], head[2]])) * 8;
        let length = usize::from(u16::from_le_bytes([head[3], head[4]])).min(rest.len());
        let (bytes, rest) = rest.split_at(length);
        let path = format!("{FOLDER}/{}", FILES[index]);
        let file = files.open(&path).or_else(|_| files.create(&path)).expect("a file in memory");
        file.write_at(position, &[bytes]).expect("a write into memory");
        repair[index] |= head[0] & REPAIR != 0;
        data = rest;
    }
    for (index, name) in FILES.iter().enumerate().filter(|(index, _)| repair[*index]) {
        let path = format!("{FOLDER}/{name}");
        let Ok(file) = files.open(&path) else { continue };
        let mut bytes = vec![0; file.len().unwrap_or(0) as usize];
        let read = file.read_at(0, &mut bytes);
        bytes.truncate(read.unwrap_or(0));
        checksums::repair(index, &mut bytes);
        file.write_at(0, &[&bytes]).expect("a write into memory");
    }
    repair.contains(&true)
}

/// Encodes these files as an input, without their runs of zeros.
pub fn encode(files: &MemoryFiles) -> Vec<u8> {
    const PART: usize = 64;
    let mut data = Vec::new();
    for (index, name) in FILES.iter().enumerate() {
        let Ok(file) = files.open(&format!("{FOLDER}/{name}")) else { continue };
        let mut bytes = vec![0; file.len().unwrap_or(0) as usize];
        let read = file.read_at(0, &mut bytes);
        bytes.truncate(read.unwrap_or(0));
        for (part, bytes) in bytes.chunks(PART).enumerate() {
            if bytes.iter().any(|byte| *byte != 0) {
                let (position, length) = ((part * PART / 8) as u16, bytes.len() as u16);
                data.push(index as u8);
                data.extend(position.to_le_bytes());
                data.extend(length.to_le_bytes());
                data.extend(bytes);
            }
        }
    }
    data
}

/// Repairs the checksums of a file.
mod checksums {
    use super::IDENTITY;

    const FRAME_HEADER: usize = 56;
    const BLOCK: usize = 4_096;

    pub(super) fn repair(file: usize, bytes: &mut Vec<u8>) {
        match file {
            0 => record(bytes),
            1 => put(bytes, 32, 0..32),
            2 => put(bytes, 40, 0..40),
            3 => segment(bytes, 1),
            5 => segment(bytes, 2),
            4 | 6 => {
                let end = bytes.len();
                put(bytes, 12, 16..end);
            }
            _ => {}
        }
    }

    fn put(bytes: &mut [u8], at: usize, over: std::ops::Range<usize>) {
        let Some(checksum) = bytes.get(over).map(crc32c::crc32c) else { return };
        if let Some(place) = bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
    }

    fn record(bytes: &mut Vec<u8>) {
        const LINE: usize = 22;
        let content = bytes.len().saturating_sub(LINE);
        bytes.truncate(content);
        let line = format!("{{\"crc32c\":\"{:08x}\"}}\n", crc32c::crc32c(bytes));
        bytes.extend(line.as_bytes());
    }

    fn number(bytes: &[u8], at: usize) -> u64 {
        bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    }

    /// Both copies of the header, and the frames as far as they are contiguous.
    fn segment(bytes: &mut [u8], segment: u64) {
        let length = usize::try_from(number(bytes, 16)).unwrap_or(usize::MAX);
        if length < 64 || length > bytes.len() {
            return;
        }
        put(bytes, 12, 16..length);
        let second = length.next_multiple_of(BLOCK);
        if second + length <= bytes.len() {
            bytes.copy_within(..length, second);
        }
        let mut position = second + length;
        while bytes
            .get(position..)
            .is_some_and(|rest| rest.starts_with(b"EPHF") && rest.len() >= FRAME_HEADER)
        {
            let payload = (number(bytes, position + 8) & 0xffff_ffff) as usize;
            let end = position + FRAME_HEADER + payload;
            put(bytes, position + 12, position + FRAME_HEADER..end);
            let place = [IDENTITY, segment, position as u64].map(u64::to_le_bytes).concat();
            let header = &bytes[position + 8..position + FRAME_HEADER];
            let checksum = crc32c::crc32c_append(crc32c::crc32c(&place), header);
            bytes[position + 4..position + 8].copy_from_slice(&checksum.to_le_bytes());
            position = end.next_multiple_of(8);
        }
    }
}
