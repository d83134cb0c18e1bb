//! The interface [`Machine`] to the computer: two clocks, the ids of machine and boot, and file syncs.
//! Tests replace it.

use std::fs::File;
use std::io;
use std::time::Duration;

use ephor_core::time::{Clock, Timestamp};
use ephor_runtime::environment::SystemClock;
use ephor_runtime::os;

/// The machine that a store runs on.
pub trait Machine: Send + Sync + 'static {
    /// The wall clock.
    fn wall(&self) -> Timestamp;

    /// The time since boot, including suspended time. It cannot be set.
    fn since_boot(&self) -> Duration;

    /// The id of this boot: new after each reboot, and the same for all processes.
    fn boot(&self) -> io::Result<String>;

    /// The id of the machine, if it has one that survives a reboot.
    fn name(&self) -> Option<String>;

    /// Returns after everything that was written to the file is on disk.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Writes bytes over the same bytes, so that the next [`sync`](Self::sync) stores them even if an
    /// earlier sync failed. Tests with a simulated disk record them.
    fn write_again(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        os::write_all_at(file, bytes, offset)
    }
}

/// The machine that this process runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisMachine;

impl Machine for ThisMachine {
    fn wall(&self) -> Timestamp {
        SystemClock.wall()
    }

    fn since_boot(&self) -> Duration {
        os::since_boot()
    }

    fn boot(&self) -> io::Result<String> {
        os::boot_id()
    }

    fn name(&self) -> Option<String> {
        os::machine_id()
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}
