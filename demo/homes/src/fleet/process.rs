//! A process of the demo: started, watched, signalled, and ended with its parent.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ephor::environment::SystemClock;
use ephor::{Clock, Monotonic};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

/// A process that reads its input has done so by then. One that is paused does not, and what waits for it fills up.
const HEARING: Duration = Duration::from_secs(1);

/// The cost of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Processor time, in cores, since the last look.
    pub cores: f64,
    /// Resident memory in bytes.
    pub memory: u64,
}

/// A process that runs, or has run.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pid: Option<Pid>,
    log: PathBuf,
    looked: Option<(Monotonic, u64)>,
}

impl Process {
    /// Starts `program`; what it says goes to the end of `log`.
    pub(super) fn start(
        program: &Path,
        arguments: &[String],
        environment: &[(String, String)],
        log: &Path,
    ) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(environment.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(file);
        // Ctrl-C in the terminal is for the parent alone, which ends the others in good order.
        command.process_group(0).kill_on_drop(true);
        let child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start {}: {error}", program.display()))
        })?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { child, pid, log: log.to_owned(), looked: None })
    }

    /// Whether it has ended, and whether in good order.
    pub(super) fn ended(&mut self) -> Option<bool> {
        match self.child.try_wait() {
            Ok(Some(status)) => Some(status.success()),
            Ok(None) => None,
            Err(_) => Some(false),
        }
    }

    /// Sends a signal; a process that has ended gets none.
    pub(super) fn signal(&mut self, signal: Signal) -> io::Result<()> {
        match (self.ended(), self.pid) {
            (None, Some(pid)) => Ok(kill_process(pid, signal)?),
            _ => Err(io::Error::other("the process has ended")),
        }
    }

    /// Writes a line to its standard input. One that does not read is not waited for.
    pub(super) async fn tell(&mut self, line: &str) -> io::Result<()> {
        let Some(input) = &mut self.child.stdin else {
            return Err(io::Error::other("the process has no input"));
        };
        let line = format!("{line}\n");
        let written = tokio::time::timeout(HEARING, input.write_all(line.as_bytes())).await;
        written.map_err(|_| io::Error::other("the process does not read its input"))?
    }

    /// Waits for its end; false if it takes longer.
    pub(super) async fn wait(&mut self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.child.wait()).await.is_ok()
    }

    /// The last lines that it wrote, to be shown when it failed.
    pub(super) fn last_lines(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// Returns its cost. The first call has no interval to measure.
    pub(super) fn cost(&mut self) -> Cost {
        let (Some(pid), None) = (self.pid, self.ended()) else { return Cost::default() };
        let now = SystemClock.now();
        let Some(used) = Used::of(pid.as_raw_nonzero().get()) else { return Cost::default() };
        let cores = self.looked.map_or(0.0, |(then, ticks)| used.cores_since(ticks, now.since(then)));
        self.looked = Some((now, used.ticks));
        Cost { cores, memory: used.memory }
    }
}

/// The usage of a process, from the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// Processor time in ticks of the system's clock.
    pub(super) ticks: u64,
    pub(super) memory: u64,
}

impl Used {
    pub(super) fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        Self::parse(&stat, &statm)
    }

    /// The name of the program, which stands in parentheses, may have anything in it.
    fn parse(stat: &str, statm: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ').skip(11).map(str::parse::<u64>);
        let ticks = fields.next()?.ok()? + fields.next()?.ok()?;
        let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
        Some(Self { ticks, memory: pages * rustix::param::page_size() as u64 })
    }

    pub(super) fn cores_since(self, ticks: u64, passed: Duration) -> f64 {
        let spent = self.ticks.saturating_sub(ticks) as f64 / rustix::param::clock_ticks_per_second() as f64;
        if passed.is_zero() { 0.0 } else { spent / passed.as_secs_f64() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_of_a_process_is_read() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 4 0 1 1 1";
        let used = Used::parse(stat, "100 3 1 1 0 1 0").unwrap();
        assert_eq!(used, Used { ticks: 200, memory: 3 * rustix::param::page_size() as u64 });
        let second = rustix::param::clock_ticks_per_second();
        let later = Used { ticks: 200 + second, ..used };
        assert_eq!(later.cores_since(200, Duration::from_secs(2)), 0.5);
        assert_eq!(Used::parse("nothing", ""), None);
    }

    #[tokio::test]
    async fn a_process_that_does_not_listen_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = ["600".to_owned()];
        let log = folder.path().join("log");
        let mut process = Process::start(Path::new("sleep"), &arguments, &[], &log).unwrap();
        process.tell("something").await.unwrap();
        // More than any pipe takes.
        let told = tokio::time::timeout(Duration::from_secs(60), process.tell(&"x".repeat(4 << 20))).await;
        let error = told.expect("it is waited for").unwrap_err().to_string();
        assert_eq!(error, "the process does not read its input");
    }

    #[tokio::test]
    async fn a_process_is_paused_told_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let arguments = ["-c".to_owned(), "read line; echo heard $line; exit 3".to_owned()];
        let mut process = Process::start(Path::new("/bin/sh"), &arguments, &[], &log).unwrap();
        assert_eq!(process.ended(), None);
        process.signal(Signal::STOP).unwrap();
        process.tell("something").await.unwrap();
        assert!(!process.wait(Duration::from_millis(100)).await, "it is paused");
        process.signal(Signal::CONT).unwrap();
        assert!(process.wait(Duration::from_secs(30)).await);
        assert_eq!(process.ended(), Some(false), "3 is no good order");
        assert_eq!(process.last_lines(), "heard something");
        assert!(process.signal(Signal::KILL).is_err(), "a process that has ended gets no signal");
    }
}
