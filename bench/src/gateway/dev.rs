//! Runs `ephor dev` as a child process.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ephor::BoxError;
use rustix::process::{Pid, Signal, kill_process};

use crate::machine::{now, since};

/// The name of its hub.
pub(crate) const HUB: &str = "bench";

/// A running `ephor dev` on a folder; stopped on drop.
pub(crate) struct Dev {
    child: Child,
    /// The connection string.
    pub(crate) connection: String,
    /// The time from the start of the process to the line that begins with `ready`.
    pub(crate) ready_after: Duration,
}

impl Dev {
    pub(crate) fn start(folder: &Path, partitions: u32) -> Result<Self, BoxError> {
        let program = std::env::current_exe()?.with_file_name("ephor");
        if !program.exists() {
            return Err(
                format!("{} is missing: run ./check bench, which builds it", program.display()).into()
            );
        }
        let began = now();
        let mut child = Command::new(program)
            .args(["dev", "--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"])
            .arg(folder)
            .args(["--hub", &format!("{HUB}:{partitions}")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = child.stdout.take().map(BufReader::new).ok_or("the process has no output")?;
        let mut connection = None;
        for line in lines.lines() {
            let line = line?;
            let line = line.trim();
            if line.starts_with("Endpoint=") {
                connection.get_or_insert_with(|| line.to_owned());
            }
            if line.starts_with("ready") {
                let ready_after = since(began);
                let connection = connection.ok_or("ephor dev printed no connection string")?;
                return Ok(Self { child, connection, ready_after });
            }
        }
        Err(format!("ephor dev ended before it was ready: {}", child.wait()?).into())
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let asked = Pid::from_raw(self.child.id().cast_signed())
            .is_some_and(|process| kill_process(process, Signal::TERM).is_ok());
        if !asked {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}
