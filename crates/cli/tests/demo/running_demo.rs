//! Test helper: a running demo, controlled through its page.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::ephor;

/// The time limit of every wait; sufficient on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);

/// Killed if the test fails; its processes end with it.
pub(crate) struct Demo {
    child: Child,
    page: String,
    place: PathBuf,
}

impl Demo {
    /// Starts a demo whose folder is `ephor-demo` in `place`.
    pub(crate) fn start(place: &Path, more: &[&str]) -> Self {
        let mut command = ephor(place);
        command.args(["demo", "--page", "127.0.0.1:0"]).args(more);
        command.env_remove("EPHOR_DEMO_HUB").env_remove("EPHOR_DEMO_RESULTS");
        command.stdin(Stdio::null());
        command.stdout(File::create(place.join("stdout.txt")).unwrap());
        command.stderr(File::create(place.join("stderr.txt")).unwrap());
        let child = command.spawn().unwrap();
        let mut demo = Self { child, page: String::new(), place: place.to_owned() };
        demo.page = demo.wait_for("its banner", |demo| {
            let stderr = demo.stderr();
            assert!(demo.child.try_wait().unwrap().is_none(), "it ended before it was ready:\n{stderr}");
            let rest = stderr.split_once("http://")?.1;
            Some(rest.split_once('/')?.0.to_owned())
        });
        demo
    }

    /// Polls until `look` returns a value.
    pub(crate) fn wait_for<T>(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{what} did not come within {PATIENCE:?}:\n{}",
                self.stderr()
            );
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until all partitions have live owners, and readings arrive in the results.
    pub(crate) fn wait_until_it_flows(&mut self) {
        self.wait_for("the first readings", |demo| {
            let audit = demo.audit();
            (audit.processed > 0 && demo.shares(0).iter().sum::<usize>() == 16).then_some(())
        });
    }

    /// Its output on stderr.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.place.join("stderr.txt")).unwrap_or_default()
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// `ADDRESS:PORT`.
    pub(crate) fn page(&self) -> &str {
        &self.page
    }

    /// The folder of its data.
    pub(crate) fn folder(&self) -> PathBuf {
        self.place.join("ephor-demo")
    }

    pub(crate) fn city(&self) -> Value {
        self.ask(&format!("GET /api/city HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.page))
            .unwrap()
    }

    pub(crate) fn fleet(&self) -> Value {
        self.ask(&format!("GET /api/fleet HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.page))
            .unwrap()
    }

    /// The audit, as the page shows it.
    pub(crate) fn audit(&self) -> Audit {
        let audit = self.city()["audit"].clone();
        let number = |name: &str| audit[name].as_u64().unwrap();
        Audit {
            sent: number("sent"),
            processed: number("processed"),
            invented: number("invented"),
            homes_behind: number("homes_behind"),
            sensor_repeats: number("sensor_repeats"),
            replayed: number("replayed"),
        }
    }

    /// Sends an action, such as `{"action":"add_host"}`.
    pub(crate) fn act(&self, action: &Value) -> Result<String, String> {
        let body = action.to_string();
        let answer = self.ask(&format!(
            "POST /api/act HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{body}",
            self.page,
            body.len()
        ));
        answer.map(|done| done["done"].as_str().unwrap().to_owned())
    }

    /// Sends an action for one host.
    pub(crate) fn do_to(&self, host: &str, action: &str) -> Result<String, String> {
        self.act(&json!({"action": action, "host": host}))
    }

    /// The names of the hosts that are in this state.
    pub(crate) fn hosts(&self, state: &str) -> Vec<String> {
        let fleet = self.fleet();
        let hosts = fleet["hosts"].as_array().unwrap().iter();
        let hosts = hosts.filter(|host| host["state"].as_str() == Some(state));
        hosts.map(|host| host["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The owner of each partition of a group, if it has one whose lease has not expired.
    pub(crate) fn owners(&self, group: usize) -> Vec<Option<String>> {
        let fleet = self.fleet();
        let partitions = fleet["groups"][group]["partitions"].as_array().cloned().unwrap_or_default();
        let owner = |partition: &Value| {
            let alive = partition["expired"].as_bool() == Some(false);
            partition["owner"].as_str().filter(|_| alive).map(str::to_owned)
        };
        partitions.iter().map(owner).collect()
    }

    /// The number of partitions of a group that each owner has, the largest first.
    pub(crate) fn shares(&self, group: usize) -> Vec<usize> {
        let owners: Vec<String> = self.owners(group).into_iter().flatten().collect();
        let mut names = owners.clone();
        names.sort();
        names.dedup();
        let mut shares: Vec<usize> =
            names.iter().map(|name| owners.iter().filter(|owner| owner == &name).count()).collect();
        shares.sort_by_key(|share| std::cmp::Reverse(*share));
        shares
    }

    fn ask(&self, request: &str) -> Result<Value, String> {
        let mut stream = TcpStream::connect(&self.page).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP: {answer:?}"));
        let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {body}"));
        match head.starts_with("HTTP/1.1 200") {
            true => Ok(body),
            false => Err(body["error"].as_str().unwrap_or(head).to_owned()),
        }
    }

    /// Sends Ctrl-C, and returns the outcome.
    pub(crate) fn interrupt(mut self) -> Outcome {
        signal(self.process(), "INT");
        self.end()
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> Outcome {
        let status = self.wait_for("its end", |demo| demo.child.try_wait().unwrap());
        let stdout = fs::read_to_string(self.place.join("stdout.txt")).unwrap();
        Outcome { status, stdout, stderr: self.stderr() }
    }

    /// Sends SIGKILL to the demo itself.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn signal(process: u32, signal: &str) {
    let sent =
        std::process::Command::new("kill").args([&format!("-{signal}"), &process.to_string()]).status();
    assert!(sent.unwrap().success());
}

/// The audit of a demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Audit {
    pub(crate) sent: u64,
    pub(crate) processed: u64,
    pub(crate) invented: u64,
    pub(crate) homes_behind: u64,
    pub(crate) sensor_repeats: u64,
    pub(crate) replayed: u64,
}

/// The outcome of a demo.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// The audit in its last lines, which must balance.
    pub(crate) fn must_be_exact(&self) -> Audit {
        let Self { status, stdout, stderr } = self;
        assert!(status.success(), "{status}\n{stdout}\n{stderr}");
        let audit = Audit {
            sent: self.number("sent "),
            processed: self.number("processed "),
            invented: self.number("unexpected "),
            homes_behind: self.number("homes that differ "),
            sensor_repeats: self.number("repeated by sensors "),
            replayed: self.number("delivered again "),
        };
        assert!(audit.sent > 0, "{stdout}");
        assert_eq!((audit.sent, self.number("lost ")), (audit.processed, 0), "{stdout}");
        assert_eq!((audit.invented, audit.homes_behind), (0, 0), "{stdout}");
        audit
    }

    /// The number after these words.
    fn number(&self, words: &str) -> u64 {
        let found = self.stdout.split_once(words).map(|(_, rest)| rest);
        let digits = found.map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
        digits
            .and_then(|digits| digits.parse().ok())
            .unwrap_or_else(|| panic!("no {words:?} in\n{}", self.stdout))
    }
}
