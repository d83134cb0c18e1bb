//! The hub process of the demo: `ephor dev`, which can be restarted at any time.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ephor::BoxError;
use tokio::net::{TcpListener, TcpStream};

use super::process::{Cost, Process};
use crate::os::Signal;
use crate::reading::PARTITIONS;

/// The hub's name.
pub const HUB: &str = "homes";
/// The group that consolidates.
pub const CONSOLIDATE: &str = "consolidate";
/// The group that routes alarms.
pub const ALARMS: &str = "alarms";

/// More than the hub takes to open its log.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// A hub of our own, in a process of its own.
#[derive(Debug)]
pub(super) struct HubProcess {
    program: PathBuf,
    folder: PathBuf,
    address: SocketAddr,
    process: Process,
}

impl HubProcess {
    /// Starts it on a port that is free, and waits until it answers.
    pub(super) async fn start(program: &Path, folder: &Path) -> Result<Self, BoxError> {
        let mut last = None;
        for _ in 0..3 {
            let address = free_address().await?;
            let process = launch(program, folder, address)?;
            let mut hub = Self { program: program.to_owned(), folder: folder.to_owned(), address, process };
            match hub.answers().await {
                Ok(()) => return Ok(hub),
                // Somebody else may have taken the port.
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| "the hub did not start".into()))
    }

    /// The connection string of the hub.
    pub(super) fn connection(&self) -> String {
        format!(
            "Endpoint=sb://{};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;\
             UseDevelopmentEmulator=true;EntityPath={HUB}",
            self.address
        )
    }

    /// Kills it, as a crash would, and starts it again where it was.
    pub(super) async fn restart(&mut self) -> Result<(), BoxError> {
        drop(self.process.signal(Signal::Kill));
        self.process.wait(PATIENCE).await;
        self.process = launch(&self.program, &self.folder, self.address)?;
        self.answers().await
    }

    pub(super) async fn stop(&mut self) {
        drop(self.process.signal(Signal::Terminate));
        if !self.process.wait(PATIENCE).await {
            drop(self.process.signal(Signal::Kill));
        }
    }

    pub(super) fn is_up(&mut self) -> bool {
        self.process.ended().is_none()
    }

    pub(super) fn cost(&mut self) -> Cost {
        self.process.cost()
    }

    async fn answers(&mut self) -> Result<(), BoxError> {
        let answer = async {
            loop {
                if self.process.ended().is_some() {
                    return Err(format!("the hub exited:\n{}", self.process.last_lines()));
                }
                if TcpStream::connect(self.address).await.is_ok() {
                    return Ok(());
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let late = || format!("the hub did not answer at {} within {PATIENCE:?}", self.address);
        Ok(tokio::time::timeout(PATIENCE, answer).await.map_err(|_| late())??)
    }
}

fn launch(program: &Path, folder: &Path, address: SocketAddr) -> io::Result<Process> {
    let (data, config) = (folder.join("hub"), folder.join("hub.json"));
    std::fs::write(&config, configuration())?;
    let arguments = [
        "dev".into(),
        format!("--data={}", data.display()),
        format!("--amqp={address}"),
        "--http=127.0.0.1:0".into(),
        format!("--config={}", config.display()),
        "--end-with-parent".into(),
    ];
    Process::start(program, &arguments, &[], &folder.join("hub.log"))
}

/// A demo may run for days: at the default speed this much is more than an hour.
const KEPT: &str = "4GiB";

fn configuration() -> String {
    let hub = serde_json::json!({
        "name": HUB,
        "partitions": PARTITIONS,
        "groups": [CONSOLIDATE, ALARMS],
        "retention": { "bytes": KEPT },
    });
    serde_json::json!({ "hubs": [hub] }).to_string()
}

async fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()
}
