//! A newcomer's first five minutes: start a hub, send, look, stop, start again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail right there")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A running `ephor dev`, killed if the test fails.
struct Dev {
    child: Child,
    banner: String,
}

impl Dev {
    fn start(folder: &Path, more: &[&str]) -> Self {
        let mut command = ephor(folder);
        command.args(["dev", "--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0"]).args(more);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut banner = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while !banner.lines().any(|line| line.starts_with("ready")) {
            assert_ne!(lines.read_line(&mut banner).unwrap(), 0, "it ended before it was ready:\n{banner}");
        }
        Self { child, banner }
    }

    /// What stands behind this word at the beginning of a line.
    fn value(&self, word: &str) -> &str {
        let line = self.banner.lines().find_map(|line| line.trim_start().strip_prefix(word));
        line.unwrap_or_else(|| panic!("no {word} in\n{}", self.banner)).trim()
    }

    fn connection(&self) -> String {
        format!("Endpoint={}", self.value("Endpoint="))
    }

    fn run(&self, folder: &Path, arguments: &[&str], input: &str) -> Output {
        let mut command = ephor(folder);
        command.args(arguments).env("EPHOR_CONNECTION", self.connection());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn ephor(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ephor"));
    command.current_dir(folder).env_remove("EPHOR_CONNECTION").env_remove("RUST_LOG");
    command
}

fn bodies(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let mut bodies: Vec<String> =
        text.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect();
    bodies.sort();
    bodies
}

#[test]
fn what_is_sent_is_seen_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let dev = Dev::start(here, &["--hub", "doors:2", "--group", "doors/alarms"]);
    assert_eq!(dev.value("hub"), "doors, 2 partitions, groups $Default, alarms");
    assert_eq!(dev.value("data"), "ephor-data, survives restarts and power failures");
    assert!(dev.run(here, &["send", "doors", "one", "two"], "").status.success());
    assert!(dev.run(here, &["send", "doors", "--key", "home-7"], "three\nfour\n").status.success());
    dev.stop();

    let dev = Dev::start(here, &[]);
    let tail = ["tail", "doors", "--group", "alarms", "--from-beginning", "-n", "4"];
    assert_eq!(bodies(&dev.run(here, &tail, "")), ["four", "one", "three", "two"]);
    let refused = dev.run(here, &["send", "nowhere", "x"], "");
    assert!(!refused.status.success());
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("The messaging entity 'sb://localhost/nowhere' could not be found"), "{text}");
    dev.stop();

    let verified = ephor(here).args(["verify", "ephor-data"]).output().unwrap();
    let text = String::from_utf8(verified.stdout).unwrap();
    assert!(
        text.starts_with("doors: 4 events in 1 segments") && text.ends_with("1 hubs, all intact\n"),
        "{text}"
    );
}

#[test]
fn memory_keeps_nothing_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path(), &["--memory"]);
    assert_eq!(dev.value("data"), "in memory, forgotten at the end");
    assert_eq!(dev.value("hub"), "homes, 4 partitions, groups $Default");
    dev.stop();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn health_is_answered_as_by_the_emulator() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path(), &["--memory"]);
    let address = dev.value("health").strip_prefix("http://").unwrap().strip_suffix("/health").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with(r#"{"status":"healthy","message":"Service is healthy."}"#), "{answer}");
}

#[test]
fn what_is_in_the_way_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path(), &[]);
    let fails = |arguments: &[&str]| {
        let output = ephor(folder.path()).args(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let text = fails(&["dev", "--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    assert!(text.contains("is in use by process"), "{text}");
    let text = fails(&["dev", "--memory", "--amqp", dev.value("amqp"), "--http", "127.0.0.1:0"]);
    assert!(text.contains("something else listens there"), "{text}");
    let text = fails(&["dev", "--memory", "--hub", "homes:many"]);
    assert!(text.contains("is not a number of partitions"), "{text}");
    let text = fails(&["dev", "--memory", "--config", "nothing.json"]);
    assert!(text.contains("nothing.json"), "{text}");
}

#[test]
fn the_emulators_configuration_is_taken_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let config = r#"{"UserConfig": {"NamespaceConfig": [{"Type": "EventHub", "Name": "emulatorNs1", "Entities": [
        {"Name": "eh1", "PartitionCount": 2, "ConsumerGroups": [{"Name": "cg1"}]}]}],
        "LoggingConfig": {"Type": "File"}}}"#;
    std::fs::write(folder.path().join("Config.json"), config).unwrap();
    let dev = Dev::start(folder.path(), &["--memory", "--config", "Config.json"]);
    assert_eq!(dev.value("hub"), "eh1, 2 partitions, groups $Default, cg1");
}
