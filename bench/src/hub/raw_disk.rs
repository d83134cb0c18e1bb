//! Measures the disk without the hub: plain loops of append, sync and read. They are the limit that the hub
//! is compared with.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use ephor_hub::config::DEFAULT_SEGMENT_BYTES;
use rustix::fs::FallocateFlags;

use super::hub_under_test::noise;
use crate::machine::{now, since};

/// The preallocation step of loops that preallocate: the same as the hub's.
const ROOM: u64 = 4 << 20;

/// The syncs and preallocations of an append loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appends {
    /// Syncs after each append.
    Synced,
    /// The same, in preallocated space.
    SyncedInRoom,
    /// Never syncs.
    Plain,
    /// Syncs each file when it is full.
    SyncedWhenFull,
}

/// Appends `total` bytes in pieces of one size, to a new file after each 64 MiB.
pub(crate) fn append(folder: &Path, total: u64, piece: u64, how: Appends) -> io::Result<Duration> {
    fs::create_dir_all(folder)?;
    let buffer = noise(piece as usize);
    let began = now();
    let (mut written, mut files) = (0, 0);
    while written < total {
        let file = File::create(folder.join(format!("raw-{files}")))?;
        files += 1;
        let (mut position, mut room) = (0, 0);
        while position < DEFAULT_SEGMENT_BYTES && written < total {
            if how == Appends::SyncedInRoom && position + piece > room {
                room = position + piece + ROOM;
                rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, room)?;
            }
            file.write_all_at(&buffer, position)?;
            if matches!(how, Appends::Synced | Appends::SyncedInRoom) {
                file.sync_data()?;
            }
            position += piece;
            written += piece;
        }
        if how == Appends::SyncedWhenFull {
            file.sync_data()?;
        }
    }
    let took = since(began);
    fs::remove_dir_all(folder)?;
    Ok(took)
}

/// A file to which small appends are written and synced one at a time.
pub(crate) struct SingleAppends {
    file: File,
    buffer: Vec<u8>,
    position: u64,
    /// The preallocated size; none without preallocation.
    room: Option<u64>,
}

impl SingleAppends {
    pub(crate) fn to(path: &Path, piece: usize, in_room: bool) -> io::Result<Self> {
        let (file, buffer) = (File::create(path)?, noise(piece));
        Ok(Self { file, buffer, position: 0, room: in_room.then_some(0) })
    }

    /// The time of one append.
    pub(crate) fn append(&mut self) -> io::Result<Duration> {
        let began = now();
        let end = self.position + self.buffer.len() as u64;
        if let Some(room) = self.room.filter(|room| *room < end) {
            rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, room + ROOM)?;
            self.room = Some(room + ROOM);
        }
        self.file.write_all_at(&self.buffer, self.position)?;
        self.file.sync_data()?;
        self.position = end;
        Ok(since(began))
    }
}

/// Reads all segments below a folder, a megabyte at a time, and returns the number of bytes.
pub(crate) fn read_segments(folder: &Path, buffer: &mut [u8]) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sum += read_segments(&path, buffer)?;
        } else if path.extension().is_some_and(|extension| extension == "log") {
            let file = File::open(&path)?;
            let mut position = 0;
            loop {
                let read = std::hint::black_box(file.read_at(buffer, position)?);
                position += read as u64;
                if read == 0 {
                    break;
                }
            }
            sum += position;
        }
    }
    Ok(sum)
}
