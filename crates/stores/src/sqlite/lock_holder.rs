//! Finds the process that holds the database lock that a transaction waits for, if the operating system
//! reveals it.
//!
//! POSIX locks belong to a process and a file, and a process loses all of them when it closes any
//! handle to that file. Therefore nothing here opens the database or its shared memory, not even to
//! ask about locks: `os.rs` has the system's list of locks, and the metadata of the files.

use std::fmt;
use std::path::Path;

use super::os::{ExclusiveLock, exclusive_locks, program_and_state};

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
    let is_ours = |lock: &ExclusiveLock| {
        let in_memory = lock.covers(WRITE_BYTE) || lock.covers(SETUP_BYTE);
        let in_database = DATABASE_BYTES.contains(&lock.first);
        (in_memory && lock.is_on(shared_memory)) || (in_database && lock.is_on(database))
    };
    let lock = exclusive_locks().ok()?.into_iter().find(is_ours)?;
    let (program, stopped) = program_and_state(lock.process);
    Some(LockHolder { process: lock.process, program, stopped })
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
