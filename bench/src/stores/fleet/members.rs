//! Starts and kills the processes of the fleet. They end with this process, because their standard input is
//! closed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ephor::BoxError;

use super::events_read::EventsRead;
use super::options::Pace;
use crate::machine::cpu_time;

pub(super) struct Members(Vec<Child>);

impl Members {
    /// Starts one process for each number of hosts.
    pub(super) fn start(
        spread: &[usize],
        pace: Pace,
        postgres: &str,
        hub: &str,
        events_read: &Arc<EventsRead>,
    ) -> Result<Self, BoxError> {
        let mut members = Self(Vec::new());
        for (number, hosts) in spread.iter().enumerate() {
            let mut child = Command::new(std::env::current_exe()?)
                .args(["stores", super::PROCESS, &super::process_name(number)])
                .args([hosts.to_string(), pace.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            // Not as arguments, which everybody can read.
            let input = child.stdin.as_mut().ok_or("the process has no input")?;
            writeln!(input, "{postgres}\n{hub}")?;
            let output = child.stdout.take().ok_or("the process has no output")?;
            let events_read = events_read.clone();
            thread::spawn(move || listen(number, BufReader::new(output), &events_read));
            members.0.push(child);
        }
        Ok(members)
    }

    /// Kills a process as the kernel does when memory is short.
    pub(super) fn kill_first(&mut self) -> Result<(), BoxError> {
        let first = self.0.first_mut().ok_or("there is no process")?;
        first.kill()?;
        first.wait()?;
        Ok(())
    }

    /// The CPU time of the living processes.
    pub(super) fn processor(&self) -> Duration {
        self.0.iter().map(|child| cpu_time(child.id())).sum()
    }
}

fn listen(number: usize, output: impl BufRead, events_read: &EventsRead) {
    // The last line of a killed process may be incomplete.
    for line in output.lines().map_while(Result::ok) {
        if let Err(error) = events_read.write(number, &line) {
            eprintln!("process {number} printed {line:?}: {error}");
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
