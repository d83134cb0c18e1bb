//! Starts a PostgreSQL server in a folder of its own, on a free port.
//!
//! It is stopped when the process that started it is gone, however that ended: a shell waits for
//! the end of its input, to which only that process can write.

#![allow(clippy::unwrap_used, reason = "a test whose server does not start fails by a panic")]

mod standby;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The superuser.
pub const ADMIN: &str = "admin";

/// The password of [`ADMIN`], with a text that is easy to find where it must not appear.
pub const PASSWORD: &str = "canary-pass";

/// A user that may connect over TLS only.
pub const TLS_ONLY: &str = "tls_only";

/// An address at which a server on the loopback interface answers, although it does not count as
/// loopback: Linux connects it to this machine. For rules that apply between machines.
pub const ELSEWHERE: &str = "0.0.0.0";

/// A running server. It panics when the machine does not let it do its work.
#[derive(Debug)]
pub struct Server {
    folder: PathBuf,
    bin: PathBuf,
    user: Option<(u32, u32)>,
    /// The variables that make its clock differ from this machine's.
    clock: Vec<(&'static str, String)>,
    /// The port on which it listens, on the loopback interface.
    pub port: u16,
    /// Ends the server when its input ends.
    _keeper: Child,
}

/// The programs of the newest installed server. `./check` installs one.
fn binaries() -> Option<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("bin/initdb").exists())
        .filter_map(|path| Some((path.file_name()?.to_str()?.parse().ok()?, path.join("bin"))))
        .collect();
    found.sort();
    found.pop().map(|(_, newest)| newest)
}

/// The ids of another user, because the server refuses to run as root.
fn other_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
        Some((fields.next()??, fields.next()??))
    };
    Some(ids("postgres").or_else(|| ids("nobody")).expect("there is a user that is not root"))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    /// True if a server is installed.
    pub fn is_installed() -> bool {
        binaries().is_some()
    }

    /// A new server with nothing but the superuser. Its data survives a crash of the process, but
    /// not a power failure.
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// The same, with lines of a configuration file that override ours, such as `fsync = on`.
    pub fn start_with(settings: &str) -> Self {
        let mut server = Self::empty();
        server.write("password", PASSWORD);
        let password = format!("--pwfile={}", server.folder.join("password").display());
        server.tool("initdb", &["-U", ADMIN, "-A", "scram-sha-256", &password, "-E", "UTF8", "--no-sync"]);
        server.configure(settings);
        server.run_on_a_free_port();
        server
    }

    /// An empty folder for a server, and a process that cleans up afterwards.
    fn empty() -> Self {
        let bin = binaries().expect("PostgreSQL is installed: apt-get install postgresql");
        let user = other_user();
        let folder = tempfile::Builder::new().prefix("ephor-postgres-").tempdir().unwrap().keep();
        give(&folder, user);
        let keeper = keep(&bin, &folder, user);
        Self { folder, bin, user, clock: vec![], port: 0, _keeper: keeper }
    }

    fn run_on_a_free_port(&mut self) {
        for attempt in 0.. {
            self.port = free_port();
            if self.try_run() {
                break;
            }
            // Another process may have taken the port.
            assert!(attempt < 5, "the server did not start: {}", self.log());
        }
    }

    fn configure(&self, settings: &str) {
        let certified =
            rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), ELSEWHERE.to_owned()]).unwrap();
        self.write("data/server.crt", &certified.cert.pem());
        self.write("data/server.key", &certified.signing_key.serialize_pem());
        let configuration = fs::read_to_string(self.data().join("postgresql.conf")).unwrap();
        // Nothing survives a power failure here, everything survives a kill.
        let ours = "\nfsync = off\nfull_page_writes = off\nmax_connections = 150\nshared_buffers = 32MB\n\
                    ssl = on\nlisten_addresses = '127.0.0.1'\nmax_wal_size = 200MB\n";
        self.write("data/postgresql.conf", &format!("{configuration}{ours}{settings}\n"));
        let access = format!(
            "hostssl all {TLS_ONLY} all scram-sha-256\nhost all {TLS_ONLY} all reject\n\
             host all all all scram-sha-256\nhost replication all all scram-sha-256\n"
        );
        self.write("data/pg_hba.conf", &access);
    }

    /// The path of its self-signed certificate, for `localhost` and [`ELSEWHERE`].
    pub fn certificate(&self) -> PathBuf {
        self.data().join("server.crt")
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        give(&path, self.user);
    }

    fn command(&self, tool: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.bin.join(tool));
        command.arg("-D").arg(self.data()).args(arguments).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.envs(self.clock.iter().map(|(name, value)| (name, value)));
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }

    fn tool(&self, tool: &str, arguments: &[&str]) {
        assert!(self.command(tool, arguments).status().unwrap().success(), "{tool} {arguments:?}");
    }

    fn try_run(&self) -> bool {
        let options = format!("-p {} -k {}", self.port, self.folder.display());
        let log = self.folder.join("log");
        let log = log.to_str().unwrap();
        self.command("pg_ctl", &["start", "-w", "-t", "60", "-l", log, "-o", &options])
            .status()
            .unwrap()
            .success()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Kills it as a crash would: it recovers when it runs again.
    pub fn crash(&self) {
        self.tool("pg_ctl", &["stop", "-m", "immediate"]);
    }

    /// Stops it gracefully: clients are disconnected.
    pub fn stop(&self) {
        self.tool("pg_ctl", &["stop", "-m", "fast"]);
    }

    /// Runs it again after it was stopped or crashed.
    pub fn run_again(&self) {
        assert!(self.try_run(), "{}", self.log());
    }

    /// The superuser's URL of a database.
    pub fn url(&self, database: &str) -> String {
        self.url_of(ADMIN, PASSWORD, database)
    }

    /// A user's URL of a database.
    pub fn url_of(&self, user: &str, password: &str, database: &str) -> String {
        format!("postgres://{user}:{password}@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }
}

fn give(path: &Path, user: Option<(u32, u32)>) {
    if let Some((user, group)) = user {
        chown(path, Some(user), Some(group)).unwrap();
    }
}

/// Waits until its input ends, then stops the server and removes the folder.
fn keep(bin: &Path, folder: &Path, user: Option<(u32, u32)>) -> Child {
    let script = "cat; \"$0/pg_ctl\" stop -m immediate -D \"$1/data\"; rm -rf \"$1\"";
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(bin).arg(folder).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // A key pressed to end the tests signals the process group of the tests, and not this one.
    command.process_group(0);
    if let Some((user, group)) = user {
        command.uid(user).gid(group);
    }
    command.spawn().unwrap()
}
