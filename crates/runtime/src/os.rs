//! The services of the operating system: its clocks, random numbers, the ids of machine and
//! boot, the death of the parent process. Linux only; a port replaces this file.

use std::io;
use std::time::Duration;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::time::{ClockId, Timespec, clock_gettime};

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

fn duration(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_run_and_the_boot_has_one_id() {
        assert!(since_boot() > Duration::ZERO);
        assert!(since_1970() > Duration::from_secs(1_500_000_000));
        let boot = boot_id().unwrap();
        assert!(boot.len() >= 36, "{boot}");
        assert_eq!(boot, boot_id().unwrap());
    }
}
