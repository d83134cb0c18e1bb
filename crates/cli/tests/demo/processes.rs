//! Test helper: finds the processes of a demo by its folder, and the children of a process; waits until a
//! demo has no process left.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The arguments of a process, each followed by a space; none if it has ended.
pub(crate) fn arguments(process: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    (!text.is_empty()).then_some(text)
}

fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The processes that have the folder among their arguments.
pub(crate) fn that_name(folder: &Path) -> Vec<(u32, String)> {
    let folder = folder.to_str().unwrap();
    let named = |process| Some((process, arguments(process).filter(|text| text.contains(folder))?));
    all().into_iter().filter_map(named).collect()
}

/// The children of a process.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let is_child = |process: &u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // The second field is a name in brackets, which may contain anything; then come state and parent.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        fields.split_whitespace().nth(1).and_then(|id| id.parse().ok()) == Some(parent)
    };
    all().into_iter().filter(is_child).collect()
}

/// Waits until no process has the folder among its arguments; fails after a time limit.
pub(crate) fn must_all_be_gone(folder: &Path) {
    let began = Instant::now();
    loop {
        let left = that_name(folder);
        if left.is_empty() {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "still running: {left:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
