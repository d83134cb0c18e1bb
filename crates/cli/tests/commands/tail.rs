//! Tests of `ephor tail`: it reopens receivers that fail, starts at the beginning of a hub that was created
//! again, ends without an error when its output is closed, and prints each event on one line, as text or
//! JSON.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, OpenRequest};
use ephor_eventhubs::EventHub;

use crate::common::{Dev, ephor};

/// The time limit for everything here.
const MAX_DURATION: Duration = Duration::from_secs(60);

/// A running `ephor tail`; killed at the end, or when it takes too long.
struct Tail {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    stderr: BufReader<ChildStderr>,
    _watched: mpsc::Sender<()>,
}

impl Tail {
    /// Starts it, and returns when it is reading.
    fn start(dev: &Dev, folder: &Path, more: &[&str]) -> Self {
        let mut command = ephor(folder);
        command.args(["tail", "homes"]).args(more).env("EPHOR_CONNECTION", dev.connection());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = Some(BufReader::new(child.stdout.take().unwrap()));
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let _watched = kill_when_late(child.id());
        let mut tail = Self { child, stdout, stderr, _watched };
        assert_eq!(tail.stderr_line(), "reading $Default of homes; Ctrl-C to stop");
        tail
    }

    fn printed(&mut self) -> String {
        next_line(self.stdout.as_mut().unwrap())
    }

    fn stderr_line(&mut self) -> String {
        next_line(&mut self.stderr)
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Kills the process after a time limit, unless the returned sender is dropped before.
fn kill_when_late(child: u32) -> mpsc::Sender<()> {
    let (watched, ended) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if ended.recv_timeout(MAX_DURATION) == Err(mpsc::RecvTimeoutError::Timeout) {
            drop(Command::new("kill").args(["-KILL", &child.to_string()]).status());
        }
    });
    watched
}

fn next_line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end_matches('\n').to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_another_reader_took_is_named_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let dev = Dev::start(here, &["--memory", "--hub", "homes:2"]);
    let send = |body: &str| {
        assert!(dev.run(here, &["send", "homes", "--partition", "1", body], "").status.success())
    };
    send("before");
    let mut tail = Tail::start(&dev, here, &[]);

    let hub = EventHub::builder(&dev.connection()).hub("homes").build().unwrap();
    let group = ConsumerGroup::default_group();
    let request = OpenRequest {
        epoch: Some(Epoch::from_stored(7)),
        start: StartPosition::Latest,
        ..OpenRequest::probe(&group, PartitionId(1), "owner")
    };
    let owner = hub.open(request.clone()).await.unwrap();
    let text = tail.stderr_line();
    assert!(text.starts_with("partition 1: ") && text.ends_with("; trying again"), "{text}");
    assert!(text.contains("epoch of '7'"), "{text}");
    // It starts at the end of the log at its first start, though nothing was printed yet.
    send("one");
    owner.close().await;
    assert_eq!(tail.stderr_line(), "partition 1: reading again");
    let text = tail.printed();
    assert!(text.ends_with(" 1/1 one"), "{text}");

    // The next time it starts after the last printed event.
    let owner = hub.open(request).await.unwrap();
    assert!(tail.stderr_line().ends_with("; trying again"));
    send("two");
    owner.close().await;
    assert_eq!(tail.stderr_line(), "partition 1: reading again");
    let text = tail.printed();
    assert!(text.ends_with(" 1/2 two"), "{text}");
}

#[test]
fn a_hub_that_was_created_again_is_read_from_its_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let dev = Dev::start(here, &["--memory", "--hub", "homes:1"]);
    let send = |dev: &Dev, letter: &str, events: usize| {
        let lines: String = (0..events).map(|number| format!("{letter}{number}\n")).collect();
        assert!(dev.run(here, &["send", "homes"], lines).status.success());
    };
    send(&dev, "a", 3);
    // With a partition given, it has no other reason to ask the hub about itself.
    let mut tail = Tail::start(&dev, here, &["--partition", "0"]);
    send(&dev, "b", 2);
    assert!(tail.printed().ends_with(" 0/3 b0") && tail.printed().ends_with(" 0/4 b1"));

    // A hub in memory is another one after each start. The first time it is away for a moment, the second time
    // for longer than a receiver waits; the second has fewer events than were read before.
    let amqp = dev.connection();
    let amqp = amqp.split("sb://").nth(1).unwrap().split(['/', ';']).next().unwrap().to_owned();
    let mut dev = Some(dev);
    for (letter, events, long) in [("c", 8, false), ("d", 3, true)] {
        drop(dev.take());
        if long {
            let text = tail.stderr_line();
            assert!(text.starts_with("partition 0: ") && text.ends_with("; trying again"), "{text}");
        }
        let again = Dev::start_on(&amqp, &mut ephor(here), &["--memory", "--hub", "homes:1"]);
        send(&again, letter, events);
        let mut text = tail.stderr_line();
        if text.ends_with("; trying again") && !long {
            // This machine is slow.
            text = tail.stderr_line();
        }
        assert_eq!(
            text,
            "partition 0: the hub was deleted and created again; reading the new one from its beginning"
        );
        assert_eq!(tail.stderr_line(), "partition 0: reading again");
        for number in 0..events {
            let text = tail.printed();
            assert!(text.ends_with(&format!(" 0/{number} {letter}{number}")), "{text}");
        }
        dev = Some(again);
    }
}

#[test]
fn nobody_who_reads_along_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let dev = Dev::start(here, &["--memory", "--hub", "homes:1"]);
    let mut tail = Tail::start(&dev, here, &[]);
    assert!(dev.run(here, &["send", "homes", "one"], "").status.success());
    // Events are not held back in a buffer.
    assert!(tail.printed().ends_with(" one"));
    drop(tail.stdout.take());
    assert!(dev.run(here, &["send", "homes", "two"], "").status.success());
    assert_eq!(tail.stderr_line(), "", "nothing more comes");
    assert!(tail.child.wait().unwrap().success());
}

#[test]
fn an_event_stays_on_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let dev = Dev::start(here, &["--memory", "--hub", "homes:1"]);
    let sent = dev.run(here, &["send", "homes", "--key", "a\nb", "c\r\nd\u{1b}[2J é"], "");
    assert!(sent.status.success());
    let output = dev.run(here, &["tail", "homes", "--from-beginning", "-n", "1"], "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with(" 0/0 key=a\\nb c\\r\\nd\\u{1b}[2J é\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_host_it_says_how_to_read_in_a_group_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let dev = Dev::start(here, &["--memory", "--hub", "homes:1", "--group", "homes/mine"]);
    let hub = EventHub::builder(&dev.connection()).hub("homes").build().unwrap();
    let request = OpenRequest {
        epoch: Some(Epoch::from_stored(13)),
        ..OpenRequest::probe(&ConsumerGroup::default_group(), PartitionId(0), "host")
    };
    let _owner = hub.open(request).await.unwrap();
    let kept_out = dev.run(here, &["tail", "homes"], "");
    assert!(!kept_out.status.success());
    let text = String::from_utf8(kept_out.stderr).unwrap();
    assert!(
        text.starts_with(
            "ephor: a host reads homes with the consumer group $Default, which excludes other readers"
        ),
        "{text}"
    );
    assert!(text.contains("--group NAME (ephor dev --group homes/NAME creates one)"), "{text}");
    assert!(dev.run(here, &["send", "homes", "one"], "").status.success());
    let read = dev.run(here, &["tail", "homes", "--group", "mine", "--from-beginning", "-n", "1"], "");
    assert!(String::from_utf8(read.stdout).unwrap().ends_with(" one\n"));
}

#[test]
fn for_programs_an_event_is_an_object_on_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let dev = Dev::start(here, &["--memory", "--hub", "homes:1"]);
    let sent = dev.run(here, &["send", "homes", "--key", "home-7", "-o", "json"], b"one\n\xff\n");
    let told: serde_json::Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert_eq!(told, serde_json::json!({"hub": "homes", "sent": 2, "done": true}));
    assert_eq!(String::from_utf8(sent.stderr).unwrap(), "");
    let read = dev.run(here, &["tail", "homes", "--from-beginning", "-n", "2", "-o", "json"], "");
    let lines = String::from_utf8(read.stdout).unwrap();
    let events: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&events[0]["body"], &events[0]["key"]), (&"one".into(), &"home-7".into()));
    assert_eq!((&events[1]["body_base64"], &events[1]["sequence"]), (&"/w==".into(), &1.into()));
}
