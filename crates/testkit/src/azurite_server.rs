//! Starts Azurite, the emulator of Azure Blob Storage, in a folder of its own, on a free port.
//!
//! It is stopped when the process that started it is gone, however that ended: a shell waits for
//! the end of its input, to which only that process can write.

#![allow(clippy::unwrap_used, reason = "a test whose server does not start fails by a panic")]

use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::faketime;

/// The account that every Azurite has.
pub const ACCOUNT: &str = "devstoreaccount1";

/// The key of [`ACCOUNT`]. It is public.
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Runs the program with its folder; when the input ends, kills it and removes the folder.
const SCRIPT: &str = r#"
folder=$1; shift
"$@" --location "$folder" </dev/null >/dev/null & program=$!
echo $program
exec >/dev/null 2>&1
cat
kill -CONT $program; kill -KILL $program; wait $program
rm -rf "$folder"
"#;

/// A running Azurite. It panics when the machine does not let it do its work.
#[derive(Debug)]
pub struct Azurite {
    /// Ends the server when its input ends.
    keeper: Child,
    server: Pid,
    /// The port on which it listens, on the loopback interface.
    pub port: u16,
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/azurite/node_modules/azurite/dist/src/blob/main.js")
}

impl Azurite {
    /// A new, empty one.
    pub fn start() -> Self {
        Self::with_time(vec![])
    }

    /// The same, with a clock that is this many seconds ahead of this machine's, or behind it if
    /// negative.
    pub fn start_ahead(seconds: i64) -> Self {
        Self::with_time(faketime::variables(seconds))
    }

    fn with_time(time: Vec<(&'static str, String)>) -> Self {
        let folder = tempfile::Builder::new().prefix("ephor-azurite-").tempdir().unwrap().keep();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (keeper, server) = run(&folder, port, time);
        let mut azurite = Self { keeper, server, port };
        azurite.wait_until_it_answers();
        azurite
    }

    #[expect(clippy::disallowed_methods, reason = "a process is waited for in real time")]
    fn wait_until_it_answers(&mut self) {
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            assert!(rustix::process::test_kill_process(self.server).is_ok(), "Azurite exited");
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("Azurite did not answer within a minute");
    }

    /// The URL of its blob service.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/{ACCOUNT}", self.port)
    }

    /// The connection string for an application.
    pub fn connection_string(&self) -> String {
        let endpoint = self.endpoint();
        format!(
            "DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint};"
        )
    }

    /// Suspends it.
    pub fn pause(&self) {
        kill_process(self.server, Signal::STOP).unwrap();
    }

    /// Resumes it.
    pub fn resume(&self) {
        kill_process(self.server, Signal::CONT).unwrap();
    }
}

fn run(folder: &Path, port: u16, time: Vec<(&'static str, String)>) -> (Child, Pid) {
    let program = program();
    assert!(program.is_file(), "Azurite is missing; run demo/homes/azurite/install");
    let mut command = Command::new("sh");
    command.arg("-c").arg(SCRIPT).arg("sh").arg(folder).arg("node").arg(program);
    command.args(["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--blobHost", "127.0.0.1"]);
    command.args(["--blobPort", &port.to_string()]).envs(time);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/");
    // A key pressed to end the tests signals the process group of the tests, and not this one.
    command.process_group(0);
    let mut keeper = command.spawn().expect("a shell starts");
    let mut line = String::new();
    let output = keeper.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
    let server = line.trim().parse().ok().and_then(Pid::from_raw).expect("the server's process id");
    (keeper, server)
}

impl Drop for Azurite {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        drop(self.keeper.wait());
    }
}
