//! An Azurite of our own, on a free port, in a folder of its own; it ends with the test.

use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// The key of the account that every Azurite has. It is public.
pub(crate) const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

pub(crate) struct Azurite {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Azurite {
    pub(crate) async fn start() -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../target/azurite/node_modules/azurite/dist/src/blob/main.js");
        assert!(program.is_file(), "Azurite is missing; run demo/homes/azurite/install");
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("node")
            .arg(program)
            .args(["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--blobHost", "127.0.0.1"])
            .args(["--blobPort", &port.to_string(), "--location"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("node starts");
        let mut azurite = Self { child, port, _folder: folder };
        azurite.answers().await;
        azurite
    }

    async fn answers(&mut self) {
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                return;
            }
            assert!(self.child.try_wait().unwrap().is_none(), "Azurite ended by itself");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("Azurite does not answer within a minute");
    }

    pub(crate) fn connection_string(&self) -> String {
        let endpoint = format!("http://127.0.0.1:{}/devstoreaccount1", self.port);
        format!(
            "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={KEY};BlobEndpoint={endpoint};"
        )
    }

    /// Stops it in its tracks.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).unwrap();
        kill_process(id, signal).unwrap();
    }
}
