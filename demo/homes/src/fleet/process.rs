//! One child process of the demo: started, monitored, signalled, and killed when it is dropped.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ephor::environment::SystemClock;
use ephor::{Clock, Monotonic};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::os::{self, ProcessId, Signal, Used};

/// A process that reads its input has done so by then. One that is paused does not, and what waits for it fills up.
const HEARING: Duration = Duration::from_secs(1);

/// The cost of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// CPU time, in cores, since the last look.
    pub cores: f64,
    /// Resident memory in bytes.
    pub memory: u64,
}

/// A process that runs, or has run.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pid: Option<ProcessId>,
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
        os::ignore_terminal(&mut command);
        command.kill_on_drop(true);
        let child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start {}: {error}", program.display()))
        })?;
        let pid = child.id().and_then(ProcessId::new);
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
            (None, Some(pid)) => os::send_signal(pid, signal),
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
        let Some(used) = Used::of(pid) else { return Cost::default() };
        let cores = self.looked.map_or(0.0, |(then, ticks)| used.cores_since(ticks, now.since(then)));
        self.looked = Some((now, used.ticks));
        Cost { cores, memory: used.memory }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        process.signal(Signal::Pause).unwrap();
        process.tell("something").await.unwrap();
        assert!(!process.wait(Duration::from_millis(100)).await, "it is paused");
        process.signal(Signal::Continue).unwrap();
        assert!(process.wait(Duration::from_secs(30)).await);
        assert_eq!(process.ended(), Some(false), "3 is no good order");
        assert_eq!(process.last_lines(), "heard something");
        assert!(process.signal(Signal::Kill).is_err(), "a process that has ended gets no signal");
    }
}
