//! Test helper: measures memory and open files of this process, lets one test run at a time, and runs a test
//! in a second process.

use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) const MIB: usize = 1 << 20;

/// The resident memory of this process, in bytes.
pub(crate) fn memory() -> usize {
    status("VmRSS:")
}

fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// The peak resident memory of this process since [`forget_peak`], in bytes.
pub(crate) fn peak_memory() -> usize {
    status("VmHWM:")
}

/// Resets the peak.
pub(crate) fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// The factor by which tests are larger than in the short form; EPHOR_HOSTILE_SCALE sets it for the long one.
pub(crate) fn scale() -> usize {
    std::env::var("EPHOR_HOSTILE_SCALE").map_or(1, |scale| scale.parse().unwrap())
}

/// The number of open files and sockets.
pub(crate) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Lets one test run at a time, so that it measures only itself.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a future on two threads.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(future)
}

/// Runs the test of this name in a second process, with the highest limit of open files. It gets `variable`,
/// and ends when its input does.
pub(crate) fn second(test: &str, variable: &str, value: &str) -> Child {
    Command::new("sh")
        .args(["-c", "ulimit -S -n \"$(ulimit -H -n)\"; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(variable, value)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}
