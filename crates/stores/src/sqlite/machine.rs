//! The machine's services that the store uses: two clocks, the ids of machine and boot, and file syncs.
//! Tests implement [`Machine`] themselves.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use ephor_core::time::Timestamp;
use rustix::time::{ClockId, Timespec, clock_gettime};

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
        file.write_all_at(bytes, offset)
    }
}

/// The machine that this process runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisMachine;

impl Machine for ThisMachine {
    fn wall(&self) -> Timestamp {
        Timestamp(i64::try_from(duration(clock_gettime(ClockId::Realtime)).as_millis()).unwrap_or(i64::MAX))
    }

    fn since_boot(&self) -> Duration {
        duration(clock_gettime(ClockId::Boottime))
    }

    fn boot(&self) -> io::Result<String> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        // A container in its own time namespace counts the time since boot differently: the store treats
        // it as another machine.
        let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
        Ok(format!("{} {}", boot.trim(), namespace.display()).trim().to_owned())
    }

    fn name(&self) -> Option<String> {
        let name = std::fs::read_to_string("/etc/machine-id").ok()?;
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}

fn duration(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_clocks_and_a_boot() {
        let machine = ThisMachine;
        assert!(machine.wall() > Timestamp(1_500_000_000_000));
        assert!(machine.since_boot() > Duration::ZERO);
        let boot = machine.boot().unwrap();
        assert!(boot.len() >= 36, "{boot}");
        assert_eq!(boot, machine.boot().unwrap());
    }
}
