//! Walks SQLite's write-ahead log up to its last valid frame, and passes the bytes to the caller. `open.rs`
//! uses it to count the frames, and to write the log again with its own bytes, so that blocks of an earlier
//! failed sync reach the disk.
//!
//! After a failed `fdatasync` the kernel marks the pages that it could not store as clean: they can
//! still be read, no later sync writes them, and processes that open the file afterwards get no error.
//! A later commit would be acknowledged and be lost in a power failure, because SQLite's recovery stops
//! at the first missing frame. Therefore every process that opens the log writes the same bytes over it
//! once, which makes all pages dirty, and syncs it before it acknowledges anything. Then it compares
//! the log with the disk (`disk_comparison.rs`).
//!
//! ```text
//!   byte 0                32
//!   │ header (salt, sum)  │ frame 1: header (24), page │ frame 2 … │ frame N │ frames of an earlier round
//!   └──────────────────────── written again ───────────────────────────────┘
//! ```
//!
//! The bytes do not change. A power failure in between leaves each page in the old or the same new
//! state, other processes may read the log meanwhile, and the write lock suffices.

use std::fs::File;
use std::io;

use ephor_runtime::os::read_full_at;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// The log's first four bytes. The last bit is set if its checksums are of big-endian words.
const MAGIC: u32 = 0x377F_0682;
const PAGE_BYTES: std::ops::RangeInclusive<usize> = 512..=65_536;
/// The number of bytes that are read at a time, or one frame if that is larger.
const CHUNK_BYTES: usize = 256 << 10;

/// Reads the log up to its last valid frame, passes everything to `visit`, which may write it again, and
/// returns the number of frames. The caller holds the write lock, and syncs the log afterwards through
/// the same handle.
pub(super) fn walk(log: &File, visit: &dyn Fn(&[u8], u64) -> io::Result<()>) -> io::Result<u64> {
    let mut header = [0; HEADER_BYTES];
    if read_full_at(log, &mut header, 0)? < HEADER_BYTES {
        return Ok(0);
    }
    let Some(mut chain) = Chain::begin(&header) else { return Ok(0) };
    visit(&header, 0)?;
    let frame_bytes = FRAME_HEADER_BYTES + chain.page_bytes;
    let mut chunk = vec![0; (CHUNK_BYTES / frame_bytes).max(1) * frame_bytes];
    let (mut frames, mut offset) = (0, HEADER_BYTES as u64);
    loop {
        let read = read_full_at(log, &mut chunk, offset)?;
        let valid = chunk[..read].chunks_exact(frame_bytes).take_while(|frame| chain.accepts(frame)).count();
        let bytes = &chunk[..valid * frame_bytes];
        if !bytes.is_empty() {
            visit(bytes, offset)?;
        }
        frames += valid as u64;
        offset += bytes.len() as u64;
        if bytes.len() < chunk.len() {
            return Ok(frames);
        }
    }
}

/// The checksum over all frames so far. Each frame carries it, which reveals the first frame that is
/// of an earlier round or incomplete.
struct Chain {
    big_endian: bool,
    page_bytes: usize,
    salt: [u8; 8],
    sum: [u32; 2],
}

impl Chain {
    /// Starts with the log's header; none if it is not valid.
    fn begin(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        let magic = word(header, 0);
        let page_bytes = usize::try_from(word(header, 8)).ok()?;
        if magic & !1 != MAGIC || !PAGE_BYTES.contains(&page_bytes) || !page_bytes.is_power_of_two() {
            return None;
        }
        let salt = header[16..24].try_into().ok()?;
        let mut chain = Self { big_endian: magic & 1 == 1, page_bytes, salt, sum: [0; 2] };
        chain.add(&header[..24]);
        (chain.sum == [word(header, 24), word(header, 28)]).then_some(chain)
    }

    fn accepts(&mut self, frame: &[u8]) -> bool {
        if frame[8..16] != self.salt {
            return false;
        }
        self.add(&frame[..8]);
        self.add(&frame[FRAME_HEADER_BYTES..]);
        self.sum == [word(frame, 16), word(frame, 20)]
    }

    fn add(&mut self, bytes: &[u8]) {
        let [mut first, mut second] = self.sum;
        for pair in bytes.chunks_exact(8) {
            first = first.wrapping_add(self.summand(pair, 0)).wrapping_add(second);
            second = second.wrapping_add(self.summand(pair, 4)).wrapping_add(first);
        }
        self.sum = [first, second];
    }

    fn summand(&self, bytes: &[u8], at: usize) -> u32 {
        if self.big_endian { word(bytes, at) } else { word(bytes, at).swap_bytes() }
    }
}

/// A big-endian word.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::super::machine::{Machine, ThisMachine};
    use super::*;

    fn write_again(log: &File, machine: &dyn Machine) -> io::Result<u64> {
        walk(log, &|bytes, offset| machine.write_again(log, bytes, offset))
    }

    /// A log of two rounds: the second one is shorter and lies over the first.
    fn database(folder: &std::path::Path) -> (rusqlite::Connection, File) {
        let path = folder.join("a.db");
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE t (x); BEGIN;").unwrap();
        for _ in 0..500 {
            connection.execute("INSERT INTO t VALUES (randomblob(900))", []).unwrap();
        }
        let next = "COMMIT; PRAGMA wal_checkpoint; INSERT INTO t VALUES (1); INSERT INTO t VALUES (2);";
        connection.execute_batch(next).unwrap();
        let log = File::options().read(true).write(true).open(folder.join("a.db-wal")).unwrap();
        (connection, log)
    }

    fn counted(connection: &rusqlite::Connection) -> u64 {
        connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get::<_, i64>(1)).unwrap() as u64
    }

    #[test]
    fn the_frames_that_sqlite_counts_are_found_and_no_byte_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (connection, log) = database(folder.path());
        let before = std::fs::read(folder.path().join("a.db-wal")).unwrap();
        let frames = counted(&connection);
        assert!(frames > 0 && before.len() > 100 * 4096, "{frames} frames, {} bytes", before.len());
        assert_eq!(write_again(&log, &ThisMachine).unwrap(), frames);
        assert_eq!(std::fs::read(folder.path().join("a.db-wal")).unwrap(), before);
        // More frames than fit into one chunk.
        connection.execute_batch("BEGIN").unwrap();
        for _ in 0..500 {
            connection.execute("INSERT INTO t VALUES (randomblob(900))", []).unwrap();
        }
        connection.execute_batch("COMMIT").unwrap();
        assert_eq!(write_again(&log, &ThisMachine).unwrap(), counted(&connection));
    }

    #[test]
    fn a_frame_that_is_not_whole_ends_the_log_wherever_it_is_harmed() {
        let folder = tempfile::tempdir().unwrap();
        let (connection, log) = database(folder.path());
        let frames = counted(&connection);
        let last = HEADER_BYTES as u64 + (frames - 1) * (FRAME_HEADER_BYTES as u64 + 4096);
        for at in [0, 4, 8, 16, 20, 24, 4000, 4119] {
            let mut byte = [0];
            log.read_exact_at(&mut byte, last + at).unwrap();
            log.write_all_at(&[!byte[0]], last + at).unwrap();
            assert_eq!(write_again(&log, &ThisMachine).unwrap(), frames - 1, "{at}");
            log.write_all_at(&byte, last + at).unwrap();
        }
        for at in [0, 8, 16, 24] {
            let mut byte = [0];
            log.read_exact_at(&mut byte, at).unwrap();
            log.write_all_at(&[!byte[0]], at).unwrap();
            assert_eq!(write_again(&log, &ThisMachine).unwrap(), 0, "{at}");
            log.write_all_at(&byte, at).unwrap();
        }
        assert_eq!(write_again(&log, &ThisMachine).unwrap(), frames);
        log.set_len(last + 100).unwrap();
        assert_eq!(write_again(&log, &ThisMachine).unwrap(), frames - 1);
        log.set_len(20).unwrap();
        assert_eq!(write_again(&log, &ThisMachine).unwrap(), 0);
    }
}
