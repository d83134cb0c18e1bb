//! The operating-system services that the demo needs: signals to processes, signals to itself, and the CPU
//! time and memory of a process. Linux only; a port replaces this file, and `os.rs` of `ephor-runtime`.
//!
//! | a port provides | the demo needs it for |
//! |---|---|
//! | [`send_signal`]: end, kill, pause and continue a process | the buttons of the page |
//! | [`ignore_terminal`] | ending its processes in good order |
//! | [`StopSignals`] | ending a host in good order |
//! | [`Used`]: CPU time and memory of a process | the figures of the page |

use std::io;
use std::time::Duration;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Pid, kill_process};
use tokio::process::Command;
use tokio::signal::unix::{self, SignalKind};

/// The id of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessId(Pid);

impl ProcessId {
    pub(crate) fn new(id: u32) -> Option<Self> {
        Pid::from_raw(i32::try_from(id).ok()?).map(Self)
    }
}

/// A signal to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Asks it to end.
    Terminate,
    /// Ends it at once.
    Kill,
    /// Lets it run no more, until it is continued.
    Pause,
    Continue,
}

/// Sends a signal to a process.
pub(crate) fn send_signal(process: ProcessId, signal: Signal) -> io::Result<()> {
    let signal = match signal {
        Signal::Terminate => rustix::process::Signal::TERM,
        Signal::Kill => rustix::process::Signal::KILL,
        Signal::Pause => rustix::process::Signal::STOP,
        Signal::Continue => rustix::process::Signal::CONT,
    };
    Ok(kill_process(process.0, signal)?)
}

/// Keeps Ctrl-C in the terminal from a process that will be started.
pub(crate) fn ignore_terminal(command: &mut Command) {
    command.process_group(0);
}

/// Listens for requests of the system, or of a user at the terminal, to end this process.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
}

impl StopSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        let terminate = unix::signal(SignalKind::terminate())?;
        let interrupt = unix::signal(SignalKind::interrupt())?;
        Ok(Self { terminate, interrupt })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The usage of a process, from the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// CPU time in ticks of the system's clock.
    pub(crate) ticks: u64,
    pub(crate) memory: u64,
}

impl Used {
    pub(crate) fn of(process: ProcessId) -> Option<Self> {
        let pid = process.0.as_raw_nonzero();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        Self::parse(&stat, &statm)
    }

    pub(crate) fn of_this_process() -> Option<Self> {
        Self::of(ProcessId(rustix::process::getpid()))
    }

    /// The name of the program, which stands in parentheses, may have anything in it.
    fn parse(stat: &str, statm: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ').skip(11).map(str::parse::<u64>);
        let ticks = fields.next()?.ok()? + fields.next()?.ok()?;
        let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
        Some(Self { ticks, memory: pages * page_size() as u64 })
    }

    pub(crate) fn cores_since(self, ticks: u64, passed: Duration) -> f64 {
        let spent = self.ticks.saturating_sub(ticks) as f64 / clock_ticks_per_second() as f64;
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
        assert_eq!(used, Used { ticks: 200, memory: 3 * page_size() as u64 });
        let second = clock_ticks_per_second();
        let later = Used { ticks: 200 + second, ..used };
        assert_eq!(later.cores_since(200, Duration::from_secs(2)), 0.5);
        assert_eq!(Used::parse("nothing", ""), None);
    }
}
