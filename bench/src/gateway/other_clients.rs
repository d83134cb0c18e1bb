//! Runs the clients in `bench/other_clients` as child processes, and measures their rate and the CPU time of
//! both ends. The official Python and JavaScript clients receive from `ephor dev`, fe2o3-amqp from a server
//! of its own.
//!
//! Each client prints `EVENTS SECONDS`; until it ends, its CPU time can be read.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ephor::BoxError;

use super::dev::{Dev, HUB};
use super::our_client::Run;
use crate::machine::cpu_time;

/// The root of the source tree.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// fe2o3-amqp, built from the registry with its own lock file.
pub(crate) struct Fe2o3(PathBuf);

impl Fe2o3 {
    pub(crate) fn build() -> Result<Self, BoxError> {
        let target = root().join("target/other_clients");
        let status = Command::new("cargo")
            .args(["build", "--quiet", "--release", "--locked", "--manifest-path"])
            .arg(root().join("bench/other_clients/fe2o3/Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .status()?;
        if !status.success() {
            return Err("cannot build the peer fe2o3-amqp".into());
        }
        Ok(Self(target.join("release/fe2o3-peer")))
    }

    /// Measures from its server to its client.
    pub(crate) fn receive(&self, events: u64) -> Result<Run, BoxError> {
        let events = events.to_string();
        let mut server =
            KillOnDrop(Command::new(&self.0).args(["serve", &events]).stdout(Stdio::piped()).spawn()?);
        let mut port = String::new();
        let output = server.0.stdout.take().ok_or("the process has no output")?;
        BufReader::new(output).read_line(&mut port)?;
        let id = server.0.id();
        run(Command::new(&self.0).args(["receive", port.trim(), &events]), id)
    }
}

/// The official Python client.
pub(crate) fn python(dev: &Dev, events: u64) -> Result<Run, BoxError> {
    let program = installed("python/bin/python")?;
    official(Command::new(program).arg(root().join("bench/other_clients/python/receive.py")), dev, events)
}

/// The official JavaScript client.
pub(crate) fn javascript(dev: &Dev, events: u64) -> Result<Run, BoxError> {
    let modules = installed("javascript/node_modules")?;
    let mut command = Command::new("node");
    command.arg(root().join("bench/other_clients/javascript/receive.js")).env("NODE_PATH", modules);
    official(&mut command, dev, events)
}

fn official(command: &mut Command, dev: &Dev, events: u64) -> Result<Run, BoxError> {
    run(command.args([&dev.connection, HUB, &events.to_string()]), dev.process())
}

fn installed(path: &str) -> Result<PathBuf, BoxError> {
    let path = root().join("target/interop").join(path);
    match path.exists() {
        true => Ok(path),
        false => Err(format!("{} is missing: ./check interop installs it", path.display()).into()),
    }
}

/// Runs a client to its end and reads its output. Its CPU time counts from its start on: the startup is
/// little beside the run.
fn run(command: &mut Command, server: u32) -> Result<Run, BoxError> {
    let before = cpu_time(server);
    let mut client = KillOnDrop(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
    let mut output = BufReader::new(client.0.stdout.take().ok_or("the process has no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    let (server, used) = (cpu_time(server).saturating_sub(before), cpu_time(client.0.id()));
    std::io::copy(&mut output.by_ref(), &mut std::io::sink())?;
    let (events, seconds) = line.trim().split_once(' ').ok_or_else(|| {
        format!("{command:?} printed {line:?} instead of a number of events and of seconds")
    })?;
    let took = Duration::try_from_secs_f64(seconds.parse()?)?;
    Ok(Run { events: events.parse()?, took, server, client: used })
}

/// A child process that is killed on drop.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
