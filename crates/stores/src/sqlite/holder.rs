//! Who holds the lock that a step waits for, as far as the system tells.
//!
//! SQLite's locks belong to a process and a file, and a process loses all of them as soon as it closes any
//! handle to that file. So nothing here opens the database or its shared memory, not even to ask about locks:
//! `/proc/locks` is read instead, and files are only looked at.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The byte in the shared memory whose lock allows writing (`WAL_WRITE_LOCK`), and the one that is locked
/// while the first process sets the memory up.
const WRITE_BYTE: u64 = 120;
const SETUP_BYTE: u64 = 128;
/// The bytes in the database file that SQLite locks, one to bar newcomers and the next to write alone.
const DATABASE_BYTES: std::ops::RangeInclusive<u64> = 0x4000_0000..=0x4000_01FF;

/// A process that holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    process: u32,
    program: String,
    stopped: bool,
}

impl fmt::Display for Holder {
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

/// The list of all locks of the machine is read in pieces, and misses some while others come and go.
const LOOKS: usize = 5;

/// Who holds a lock on this database that keeps others from writing.
pub(super) fn find(database: &Path, shared_memory: &Path) -> Option<Holder> {
    (0..LOOKS).find_map(|_| look(database, shared_memory))
}

fn look(database: &Path, shared_memory: &Path) -> Option<Holder> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let is_ours = |lock: &Lock| {
        let in_memory = lock.covers(WRITE_BYTE) || lock.covers(SETUP_BYTE);
        let in_database = DATABASE_BYTES.contains(&lock.first);
        (in_memory && lock.is_on(shared_memory)) || (in_database && lock.is_on(database))
    };
    let lock = locks.lines().filter_map(Lock::parse).find(is_ours)?;
    let (program, stopped) = program_and_state(lock.process);
    Some(Holder { process: lock.process, program, stopped })
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
    /// Reads `1: POSIX  ADVISORY  WRITE 3548 fe:00:13374 120 120`. Shared locks and those that are only
    /// waited for (`->`) are passed over.
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
        // Where files and locks are told by different devices (btrfs, overlay), the process shows what it
        // has open.
        file.ino() == self.inode && (device == self.device || has_open(self.process, &file))
    }
}

/// Whether any part of this process has a file open, or that cannot be told.
pub(super) fn is_open_here(file: &fs::Metadata) -> bool {
    !Path::new("/proc/self/fd").is_dir() || has_open(std::process::id(), file)
}

fn has_open(process: u32, file: &fs::Metadata) -> bool {
    let Ok(handles) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    let same = |open: fs::Metadata| (open.dev(), open.ino()) == (file.dev(), file.ino());
    handles.flatten().any(|handle| fs::metadata(handle.path()).is_ok_and(same))
}

/// From `1234 (my-host) T 1 …`: the name may contain anything, brackets too.
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
        let holder = Holder { process: 1, program: "my-host".into(), stopped: true };
        assert_eq!(
            holder.to_string(),
            "process 1 (my-host) holds the write lock and is stopped: continue it (kill -CONT 1) or end it"
        );
        let running = Holder { stopped: false, ..holder.clone() }.to_string();
        assert!(running.starts_with("process 1 (my-host) holds the write lock: "), "{running}");
        let ourselves = Holder { process: std::process::id(), ..holder }.to_string();
        assert!(ourselves.starts_with("another part of this process ("), "{ourselves}");
    }

    #[test]
    fn this_process_is_running_and_nobody_is_unknown() {
        let (program, stopped) = program_and_state(std::process::id());
        assert!(program != "unknown" && !stopped);
        assert_eq!(program_and_state(u32::MAX), ("unknown".into(), false));
    }
}
