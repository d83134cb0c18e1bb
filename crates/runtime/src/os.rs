//! The services of the operating system that several crates use. Linux only; a port replaces this file.
//!
//! | a port provides | the other crates need it for |
//! |---|---|
//! | a clock that counts suspended time and cannot be set, and the wall clock | leases, the time of a hub |
//! | random numbers, the ids of machine and boot | identities, the clock of a SQLite store |
//! | [`end_with_parent`] | processes of the demo and of tests |
//! | [`EndSignals`] | graceful stops |
//! | reads and writes at a position, [`open_direct`], [`private_file`] | logs, databases and keys |

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::signal::unix::{self as signals, SignalKind};

/// The time since boot, including the time in which the machine was suspended. It cannot be set.
pub fn since_boot() -> Duration {
    duration(clock_gettime(ClockId::Boottime))
}

/// The wall clock: the time since 1970-01-01 in UTC.
pub fn since_1970() -> Duration {
    duration(clock_gettime(ClockId::Realtime))
}

/// A random number seeded by the operating system. Identities depend on it: machines that start
/// from the same image must not draw the same numbers.
pub fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u64(fastrand::u64(..));
    hasher.finish()
}

/// The id of this boot: new after each reboot, and the same for all processes.
pub fn boot_id() -> io::Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    // A container in its own time namespace counts the time since boot differently: it counts as
    // another machine.
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Ok(format!("{} {}", boot.trim(), namespace.display()).trim().to_owned())
}

/// The id of the machine, if it has one that survives a reboot.
pub fn machine_id() -> Option<String> {
    let name = std::fs::read_to_string("/etc/machine-id").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Asks the system to kill this process when its parent ends, also if the parent is killed.
///
/// Fails if the parent has ended already.
pub fn end_with_parent() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the call: then no signal comes.
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() == 1) {
        return Err(io::Error::other("the process that started this one has ended"));
    }
    Ok(())
}

/// A request of the system, or of a user at the terminal, to end this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndSignal {
    /// Its name, for logs.
    pub name: &'static str,
    /// The exit status of a process that it ends.
    pub exit_status: i32,
}

const INTERRUPT: EndSignal = EndSignal { name: "SIGINT", exit_status: 128 + 2 };
const TERMINATE: EndSignal = EndSignal { name: "SIGTERM", exit_status: 128 + 15 };

/// Listens for [`EndSignal`]s. While it exists, and afterwards, they do not end the process by themselves.
#[derive(Debug)]
pub struct EndSignals {
    interrupt: Option<signals::Signal>,
    terminate: Option<signals::Signal>,
}

impl EndSignals {
    /// Listens from now on. `failed` gets the name of each signal that cannot be listened for.
    pub fn listen(mut failed: impl FnMut(&'static str, io::Error)) -> Self {
        let mut listen =
            |kind, signal: EndSignal| signals::signal(kind).map_err(|error| failed(signal.name, error)).ok();
        Self {
            interrupt: listen(SignalKind::interrupt(), INTERRUPT),
            terminate: listen(SignalKind::terminate(), TERMINATE),
        }
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> EndSignal {
        tokio::select! {
            () = received(self.interrupt.as_mut()) => INTERRUPT,
            () = received(self.terminate.as_mut()) => TERMINATE,
        }
    }
}

async fn received(signal: Option<&mut signals::Signal>) {
    let signal = async { signal?.recv().await };
    if signal.await.is_none() {
        std::future::pending::<()>().await;
    }
}

/// Reads once at a position and returns the number of bytes: 0 at the end of the file.
pub fn read_at(file: &File, into: &mut [u8], position: u64) -> io::Result<usize> {
    file.read_at(into, position)
}

/// Fills the buffer from a position on, or up to the end of the file, and returns the number of bytes.
pub fn read_full_at(file: &File, into: &mut [u8], position: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Writes all bytes at a position.
pub fn write_all_at(file: &File, bytes: &[u8], position: u64) -> io::Result<()> {
    file.write_all_at(bytes, position)
}

/// Opens a file for reads and writes past the page cache. Offsets, lengths and addresses must be aligned
/// (`direct_io.rs`). Where that is not offered, this or the first read fails: see
/// [`is_direct_io_refused`].
pub fn open_direct(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    File::options().read(true).write(true).custom_flags(flags).open(path)
}

/// Whether an error means that the file system offers no direct I/O, or only in larger blocks, and not
/// that the disk fails.
pub fn is_direct_io_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// Lets only the user of this process read and write a file that these options create.
pub fn private_file(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

fn duration(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_read_and_written_at_positions_and_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut options = File::options();
        let file = private_file(options.read(true).write(true).create_new(true)).open(&path).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        write_all_at(&file, b"abc", 2).unwrap();
        let mut read = [9; 8];
        assert_eq!(read_full_at(&file, &mut read, 1).unwrap(), 4);
        assert_eq!(read, *b"\0abc\x09\x09\x09\x09");
        assert_eq!(read_at(&file, &mut read, 5).unwrap(), 0);
    }

    #[test]
    fn a_file_system_without_direct_io_is_told_from_a_disk_that_fails() {
        use rustix::io::Errno;
        for errno in [Errno::INVAL, Errno::OPNOTSUPP] {
            assert!(is_direct_io_refused(&errno.into()), "{errno}");
        }
        assert!(!is_direct_io_refused(&Errno::IO.into()));
    }

    #[test]
    fn the_clocks_run_and_the_boot_has_one_id() {
        assert!(since_boot() > Duration::ZERO);
        assert!(since_1970() > Duration::from_secs(1_500_000_000));
        let boot = boot_id().unwrap();
        assert!(boot.len() >= 36, "{boot}");
        assert_eq!(boot, boot_id().unwrap());
    }
}
