//! Test helpers: start `ephor dev`, and run other `ephor` commands while it is running.
#![allow(dead_code, reason = "no test uses all of it")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A running `ephor dev`, killed if the test fails.
pub(crate) struct Dev {
    child: Child,
    banner: String,
    log: File,
}

impl Dev {
    pub(crate) fn start(folder: &Path, more: &[&str]) -> Self {
        Self::start_with(&mut ephor(folder), more)
    }

    /// Starts it with a prepared command.
    pub(crate) fn start_with(command: &mut Command, more: &[&str]) -> Self {
        Self::start_on("127.0.0.1:0", command, more)
    }

    /// Starts it with AMQP on this address.
    pub(crate) fn start_on(amqp: &str, command: &mut Command, more: &[&str]) -> Self {
        command.args(["dev", "--amqp", amqp, "--http", "127.0.0.1:0"]).args(more);
        let log = tempfile::tempfile().unwrap();
        command.stdout(Stdio::piped()).stderr(log.try_clone().unwrap());
        let mut child = command.spawn().unwrap();
        let mut banner = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while !banner.lines().any(|line| line.starts_with("ready")) {
            assert_ne!(lines.read_line(&mut banner).unwrap(), 0, "it ended before it was ready:\n{banner}");
        }
        Self { child, banner, log }
    }

    pub(crate) fn banner(&self) -> &str {
        &self.banner
    }

    /// The value after this word at the beginning of a line.
    pub(crate) fn value(&self, word: &str) -> &str {
        let line = self.banner.lines().find_map(|line| line.trim_start().strip_prefix(word));
        line.unwrap_or_else(|| panic!("no {word} in\n{}", self.banner)).trim()
    }

    pub(crate) fn connection(&self) -> String {
        format!("Endpoint={}", self.value("Endpoint="))
    }

    pub(crate) fn run(&self, folder: &Path, arguments: &[&str], input: impl AsRef<[u8]>) -> Output {
        let mut command = ephor(folder);
        command.args(arguments).env("EPHOR_CONNECTION", self.connection());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_ref()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// The raw answer to an HTTP request.
    pub(crate) fn ask(&self, request: &str) -> String {
        let address = self.value("health").strip_prefix("http://").unwrap().strip_suffix("/health").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Its output on stderr so far.
    pub(crate) fn log(&self) -> String {
        // It writes at the same file position, which must not move.
        let mut text = vec![0; 1 << 20];
        let read = self.log.read_at(&mut text, 0).unwrap();
        String::from_utf8_lossy(&text[..read]).into_owned()
    }

    pub(crate) fn stop(self) {
        self.stop_and_read_log();
    }

    /// Stops it with Ctrl-C; returns its output on stderr.
    pub(crate) fn stop_and_read_log(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
        let mut text = Vec::new();
        self.log.rewind().unwrap();
        self.log.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Writes a file that nobody else can read.
pub(crate) fn write_secret(file: &Path, text: &str) {
    std::fs::write(file, text).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Makes a new folder with a key and a certificate for `localhost`, and returns their paths.
pub(crate) fn own_certificate(folder: &Path) -> (PathBuf, PathBuf) {
    std::fs::create_dir(folder).unwrap();
    let (_, pem) = ephor_gateway::Tls::for_development(folder, &["localhost"]).unwrap();
    (pem.with_extension("key"), pem)
}

/// The command in a folder, without the environment variables that would change it.
pub(crate) fn ephor(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ephor"));
    for name in ["EPHOR_CONNECTION", "EPHOR_KEY_FILE", "EPHOR_STORE", "EPHOR_TRUST", "RUST_LOG"] {
        command.env_remove(name);
    }
    command.current_dir(folder);
    command
}
