//! Reads time, CPU time, memory and other figures of processes, disks and this machine from the operating
//! system, and sleeps in real time.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use ephor::environment::SystemClock;
use ephor_core::time::{Clock, Monotonic};

/// Magic numbers of file systems that have no disk (`man 2 statfs`).
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// The kernel's unit of time for programs, on every architecture of Rust's std (`man 7 time`).
const TICKS_A_SECOND: f64 = 100.0;

pub(crate) fn now() -> Monotonic {
    SystemClock.now()
}

/// The time since `began`.
pub(crate) fn since(began: Monotonic) -> Duration {
    now().since(began)
}

/// Blocks the calling thread.
#[expect(clippy::disallowed_methods, reason = "a benchmark runs in real time")]
pub(crate) fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}

/// Suspends a task.
#[expect(clippy::disallowed_methods, reason = "a benchmark runs in real time")]
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// The load over 1, 5 and 15 minutes.
pub(crate) fn load_average() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// The memory that this process holds now (`VmRSS`).
pub(crate) fn resident_bytes() -> u64 {
    field("/proc/self/status", "VmRSS:") * 1024
}

/// The number of context switches to threads of this process other than the calling one.
pub(crate) fn wake_ups_of_others() -> io::Result<u64> {
    let own = fs::read_link("/proc/thread-self")?;
    let mut sum = 0;
    for thread in fs::read_dir("/proc/self/task")? {
        let thread = thread?;
        if Some(thread.file_name().as_os_str()) == own.file_name() {
            continue;
        }
        let status = thread.path().join("status");
        let status = status.to_string_lossy();
        sum += field(&status, "voluntary_ctxt_switches:") + field(&status, "nonvoluntary_ctxt_switches:");
    }
    Ok(sum)
}

fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The bytes that a folder takes on disk; files that vanish meanwhile do not count.
pub(crate) fn disk_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        Some(if metadata.is_dir() { disk_bytes(&entry.path()) } else { metadata.blocks() * 512 })
    });
    sizes.sum()
}

/// The free bytes on the file system of a folder.
pub(crate) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let space = rustix::fs::statvfs(folder)?;
    Ok(space.f_bavail * space.f_frsize)
}

/// True if a folder is on a file system in memory, where a sync costs nothing.
pub(crate) fn is_in_memory(folder: &Path) -> io::Result<bool> {
    let kind = rustix::fs::statfs(folder)?.f_type;
    Ok([TMPFS, RAMFS].contains(&kind))
}

/// The CPU time that a process has used, with all its threads, in steps of a hundredth of a second.
pub(crate) fn cpu_time(process: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The second field is the program's name in brackets, which may contain anything.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |at: usize| fields.split_whitespace().nth(at).and_then(|ticks| ticks.parse::<f64>().ok());
    Duration::from_secs_f64((ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / TICKS_A_SECOND)
}

/// The CPU time that all processes have used since the machine was started.
pub(crate) fn busy_time() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<f64> = fields.filter_map(|ticks| ticks.parse().ok()).collect();
    // All but idle and waiting for a disk; the time of guests is included in the first two.
    let busy = ticks.iter().enumerate().take(8).filter(|(at, _)| ![3, 4].contains(at));
    Duration::from_secs_f64(busy.map(|(_, ticks)| ticks).sum::<f64>() / TICKS_A_SECOND)
}

/// The resident memory of a process (`VmRSS`), and the part that belongs to it alone (`RssAnon`).
pub(crate) fn resident_bytes_of(process: u32) -> (u64, u64) {
    let status = format!("/proc/{process}/status");
    (field(&status, "VmRSS:") * 1024, field(&status, "RssAnon:") * 1024)
}
