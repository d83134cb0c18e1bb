//! Counts CPU instructions per event, as the difference between a longer and a shorter run, so that the
//! startup does not count.

use std::process::Command;

/// The length of the shorter run, and the difference to the longer one.
const SHORT: u32 = 50_000;
const MORE: u32 = 50_000;

/// The instructions per event, and the tool that counted them.
pub(crate) fn per_event(subject: &str) -> Option<(f64, &'static str)> {
    difference(perf, subject)
        .map(|count| (count, "perf"))
        .or_else(|| difference(valgrind, subject).map(|count| (count, "valgrind")))
}

fn difference(count: fn(&str, u32) -> Option<u64>, subject: &str) -> Option<f64> {
    let (short, long) = (count(subject, SHORT)?, count(subject, SHORT + MORE)?);
    Some((long.saturating_sub(short)) as f64 / f64::from(MORE))
}

fn perf(subject: &str, events: u32) -> Option<u64> {
    let output = Command::new("perf")
        .args(["stat", "-x", ",", "-e", "instructions:u"])
        .arg(std::env::current_exe().ok()?)
        .args(["host", subject, &events.to_string()])
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().find(|line| line.contains("instructions"))?.split(',').next()?.parse().ok()
}

fn valgrind(subject: &str, events: u32) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args(["host", subject, &events.to_string()])
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}
