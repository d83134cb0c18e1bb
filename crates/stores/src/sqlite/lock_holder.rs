//! Finds the process that holds the lock that a transaction waits for, as far as Linux tells.
//!
//! POSIX locks belong to a process and a file, and a process loses all of them when it closes any
//! handle to that file. Therefore nothing here opens the database or its shared memory, not even to
//! ask about locks: it reads `/proc/locks` and the metadata of the files.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The byte in the shared memory whose lock allows writing (`WAL_WRITE_LOCK`).
const WRITE_BYTE: u64 = 120;
/// The byte that is locked while the first process initializes the shared memory.
const SETUP_BYTE: u64 = 128;
/// The bytes in the database file that SQLite locks (pending, reserved and shared locks).
const DATABASE_BYTES: std::ops::RangeInclusive<u64> = 0x4000_0000..=0x4000_01FF;

/// The process that holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockHolder {
    process: u32,
    program: String,
    stopped: bool,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, program, stopped } = self;
        if *process == std::process::id() {
            return write!(f, "another part of this process ({process}, {program}) holds the write lock");
        }
        write!(f, "process {process} ({program}) holds the write lock")?;
        match stopped {
            true => write!(f, " and is stopped: continue it (kill -CONT {process}) or end it"),
            false => f.write_str(
                ": its disk may be slow, its container may be paused, or it is a tool with an open transaction",
            ),
        }
    }
}

/// The number of times the machine's list of locks is read: one read may miss locks that change meanwhile.
const LOCK_LIST_READS: usize = 5;

/// Finds the holder of a lock on this database that keeps others from writing.
pub(super) fn find(database: &Path, shared_memory: &Path) -> Option<LockHolder> {
    (0..LOCK_LIST_READS).find_map(|_| look(database, shared_memory))
}

fn look(database: &Path, shared_memory: &Path) -> Option<LockHolder> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let is_ours = |lock: &Lock| {
        let in_memory = lock.covers(WRITE_BYTE) || lock.covers(SETUP_BYTE);
        let in_database = DATABASE_BYTES.contains(&lock.first);
        (in_memory && lock.is_on(shared_memory)) || (in_database && lock.is_on(database))
    };
    let lock = locks.lines().filter_map(Lock::parse).find(is_ours)?;
    let (program, stopped) = program_and_state(lock.process);
    Some(LockHolder { process: lock.process, program, stopped })
}

/// An exclusive lock, as `/proc/locks` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lock {
    process: u32,
    device: (u32, u32),
    inode: u64,
    first: u64,
    last: u64,
}

impl Lock {
    /// Parses `1: POSIX  ADVISORY  WRITE 3548 fe:00:13374 120 120`. Returns none for shared locks and for
    /// locks that a process waits for (`->`).
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().skip(1);
        let exclusive = words.next()? == "POSIX" && words.next().is_some() && words.next()? == "WRITE";
        let process = words.next().filter(|_| exclusive)?.parse().ok()?;
        let mut place = words.next()?.split(':');
        let major = u32::from_str_radix(place.next()?, 16).ok()?;
        let minor = u32::from_str_radix(place.next()?, 16).ok()?;
        let inode = place.next()?.parse().ok()?;
        let first = words.next()?.parse().ok()?;
        let last = words.next()?.parse().unwrap_or(u64::MAX);
        Some(Self { process, device: (major, minor), inode, first, last })
    }

    fn covers(&self, byte: u64) -> bool {
        (self.first..=self.last).contains(&byte)
    }

    fn is_on(&self, file: &Path) -> bool {
        let Ok(file) = fs::metadata(file) else { return false };
        let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
        // On btrfs and overlay the lock names another device than the file: compare with the files
        // that the process has open.
        file.ino() == self.inode && (device == self.device || has_open(self.process, &file))
    }
}

/// Whether this process has a file open; also true where that is unknown.
pub(super) fn is_open_in_this_process(file: &fs::Metadata) -> bool {
    !Path::new("/proc/self/fd").is_dir() || has_open(std::process::id(), file)
}

fn has_open(process: u32, file: &fs::Metadata) -> bool {
    let Ok(handles) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    let same = |open: fs::Metadata| (open.dev(), open.ino()) == (file.dev(), file.ino());
    handles.flatten().any(|handle| fs::metadata(handle.path()).is_ok_and(same))
}

/// Reads `1234 (my-host) T 1 …`. The name may contain any character, also brackets.
fn program_and_state(process: u32) -> (String, bool) {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let named = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')'));
    let (program, rest) = named.unwrap_or(("unknown", ""));
    (program.to_owned(), rest.trim_start().starts_with(['T', 't']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusive_locks_are_read_and_others_passed_over() {
        let lock = Lock::parse("1: POSIX  ADVISORY  WRITE 3548 fe:10:13374 120 127").unwrap();
        let expected = Lock { process: 3548, device: (0xfe, 0x10), inode: 13374, first: 120, last: 127 };
        assert_eq!(lock, expected);
        assert!(lock.covers(WRITE_BYTE) && lock.covers(127) && !lock.covers(SETUP_BYTE));
        assert_eq!(Lock::parse("2: POSIX  ADVISORY  WRITE 1 00:01:2 0 EOF").unwrap().last, u64::MAX);
        for other in [
            "",
            "3: POSIX  ADVISORY  READ 3548 fe:10:13374 120 120",
            "4: FLOCK  ADVISORY  WRITE 3548 fe:10:13374 0 EOF",
            "5: -> POSIX  ADVISORY  WRITE 3548 fe:10:13374 120 120",
            "6: POSIX  ADVISORY  WRITE x fe:10:13374 120 120",
        ] {
            assert_eq!(Lock::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_words_say_who_and_what_to_do() {
        let holder = LockHolder { process: 1, program: "my-host".into(), stopped: true };
        assert_eq!(
            holder.to_string(),
            "process 1 (my-host) holds the write lock and is stopped: continue it (kill -CONT 1) or end it"
        );
        let running = LockHolder { stopped: false, ..holder.clone() }.to_string();
        assert!(running.starts_with("process 1 (my-host) holds the write lock: "), "{running}");
        let ourselves = LockHolder { process: std::process::id(), ..holder }.to_string();
        assert!(ourselves.starts_with("another part of this process ("), "{ourselves}");
    }

    #[test]
    fn this_process_is_running_and_nobody_is_unknown() {
        let (program, stopped) = program_and_state(std::process::id());
        assert!(program != "unknown" && !stopped);
        assert_eq!(program_and_state(u32::MAX), ("unknown".into(), false));
    }
}
