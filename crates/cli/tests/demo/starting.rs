//! Tests of the start of the demo, and of folders, addresses and hubs with which it refuses to start. Also
//! tests `ephor demo host kill` and `ephor demo status`.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use crate::common::{Dev, ephor};
use crate::running_demo::Demo;

const SMALL: [&str; 4] = ["--homes", "2000", "--speed", "10"];

/// Runs it with arguments that it refuses, and returns its output on stderr.
fn refused(place: &Path, more: &[&str]) -> String {
    let output: Output = ephor(place).arg("demo").args(more).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{text}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
    text
}

#[test]
fn five_hosts_share_sixteen_partitions_and_a_second_start_replaces_the_folder() {
    let place = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(place.path(), &SMALL);
    demo.wait_until_it_flows();
    for group in [0, 1] {
        demo.wait_for("4-3-3-3-3", |demo| (demo.shares(group) == [4, 3, 3, 3, 3]).then_some(()));
    }
    let page = demo.page().to_owned();
    let kill = |host: &str| {
        let output =
            ephor(place.path()).args(["demo", "host", "kill", host, "--page", &page]).output().unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (done, _, stderr) = kill("host-9");
    assert!(!done && stderr.contains("there are host-1, host-2, host-3, host-4, host-5"), "{stderr}");
    let (done, stdout, stderr) = kill("host-3");
    assert!(done && stdout.starts_with("host-3 is dead"), "{stdout}{stderr}");
    demo.wait_for("the others to take over", |demo| (demo.shares(0) == [4, 4, 4, 4]).then_some(()));
    let status = ephor(place.path()).args(["demo", "status", "--page", &page]).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains("never sent 0") && status.contains("dead"), "{status}");
    let folder = demo.folder();
    demo.interrupt().must_be_exact();

    fs::write(folder.join("left.txt"), "by the first").unwrap();
    let mut second = Demo::start(place.path(), &[&SMALL[..], &["--hosts", "1"]].concat());
    assert!(!folder.join("left.txt").exists());
    second.wait_until_it_flows();
    second.interrupt().must_be_exact();
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_started() {
    let place = tempfile::tempdir().unwrap();
    let here = place.path();
    let folder = here.join("mine");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("letter.txt"), "dear").unwrap();
    let text = refused(here, &["--data", "mine", "--page", "127.0.0.1:0"]);
    assert!(
        text.contains("mine is not empty and was not created by a demo; use another folder with --data"),
        "{text}"
    );
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let text = refused(here, &["--page", &address]);
    assert!(
        text.contains(&format!("cannot listen on {address}")) && text.contains("is a demo running there?"),
        "{text}"
    );
    let text = refused(here, &["--page", "0.0.0.0:0"]);
    assert!(text.contains("can be reached from other machines"), "{text}");
    assert!(!here.join("ephor-demo").exists());
}

#[test]
fn a_hub_with_other_partitions_or_without_its_groups_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let here = place.path();
    let dev = Dev::start(here, &["--memory", "--hub", "homes:4", "--hub", "bare:16"]);
    let demo = |hub: &str| {
        let connection = format!("{};EntityPath={hub}", dev.connection());
        refused(here, &["--page", "127.0.0.1:0", "--hub", &connection])
    };
    let text = demo("homes");
    assert!(text.contains("the demo needs a hub with 16 partitions, and this hub has 4"), "{text}");
    let text = demo("bare");
    assert!(text.contains("the hub needs the consumer groups consolidate and alarms"), "{text}");
    dev.stop();
}
