//! Tests of `ephor send`, mostly from standard input: every valid line is sent unchanged, an error names the
//! line that failed, and the log of a connection names the hub.

use std::path::Path;

use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, OpenRequest};
use ephor_eventhubs::EventHub;

use crate::common::{Dev, ephor};

const SEND: [&str; 2] = ["send", "homes"];

fn dev(folder: &Path) -> Dev {
    Dev::start(folder, &["--memory", "--hub", "homes:1"])
}

/// The bodies of all events in the hub.
async fn stored(dev: &Dev) -> Vec<Vec<u8>> {
    let hub = EventHub::builder(&dev.connection()).hub("homes").build().unwrap();
    let all = hub.partition_properties(PartitionId(0)).await.unwrap().last.unwrap().sequence.0 + 1;
    let request = OpenRequest {
        start: StartPosition::Earliest,
        prefetch_events: 1_000,
        prefetch_bytes: 1 << 20,
        ..OpenRequest::probe(&ConsumerGroup::default_group(), PartitionId(0), "test")
    };
    let mut receiver = hub.open(request).await.unwrap();
    let mut events = Vec::new();
    while (events.len() as u64) < all {
        receiver.receive(&mut events, 1_000).await.unwrap();
    }
    receiver.close().await;
    events.iter().map(|event| event.body.to_vec()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_sent_as_they_are_even_if_they_are_no_text() {
    let folder = tempfile::tempdir().unwrap();
    let dev = dev(folder.path());
    let output = dev.run(folder.path(), &SEND, b"one\n\xff\x00\xfe\nthree\r\nlast");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    assert_eq!(text, "4 events sent to homes\n");
    assert_eq!(stored(&dev).await, [&b"one"[..], b"\xff\x00\xfe", b"three", b"last"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_cannot_be_sent_is_named_and_those_before_it_are_sent() {
    let folder = tempfile::tempdir().unwrap();
    let config = r#"{"hubs": [{"name": "homes", "partitions": 1, "max_event_bytes": "2KiB"}]}"#;
    std::fs::write(folder.path().join("hubs.json"), config).unwrap();
    let dev = Dev::start(folder.path(), &["--memory", "--config", "hubs.json"]);
    // In the middle of lines that are sent together.
    let good: Vec<String> = (1..=149).map(|n| format!("line {n}")).collect();
    let input = format!("{}\n{}\nbehind\n", good.join("\n"), "x".repeat(4 << 10));
    let output = dev.run(folder.path(), &SEND, input);
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("ephor: 149 events sent; line 150: cannot be sent: "), "{text}");
    let expected: Vec<Vec<u8>> = good.into_iter().map(String::into_bytes).collect();
    assert_eq!(stored(&dev).await, expected);
}

#[test]
fn an_input_that_cannot_be_read_and_a_hub_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let dev = dev(folder.path());
    let mut send = ephor(folder.path());
    send.args(SEND).env("EPHOR_CONNECTION", dev.connection());
    let output = send.stdin(std::fs::File::open(folder.path()).unwrap()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("ephor: 0 events sent; line 1 cannot be read: "), "{text}");

    let output = dev.run(folder.path(), &["send", "nowhere"], "one\ntwo\n");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("ephor: 0 events sent; line 1: the hub refused it: "), "{text}");
    assert!(!output.status.success());
}

#[test]
fn the_log_of_a_connection_names_the_hub_and_beside_it_the_peer() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let dev = Dev::start(here, &["--memory", "--hub", "homes:1"]);
    let mut send = ephor(here);
    send.args(["send", "homes", "x"])
        .env("EPHOR_CONNECTION", dev.connection())
        .env("RUST_LOG", "ephor_eventhubs=info");
    let output = send.output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.contains("namespace=127.0.0.1 hub=homes container="), "{log}");
}
