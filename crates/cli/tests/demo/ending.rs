//! Tests that no process of the demo is left running, however the demo ends.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::common::ephor;
use crate::processes::{must_all_be_gone, that_name};
use crate::running_demo::{Demo, signal};

const SMALL: [&str; 4] = ["--homes", "2000", "--hosts", "2"];

#[test]
fn a_demo_that_is_killed_takes_all_its_processes_along() {
    let place = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(place.path(), &SMALL);
    demo.wait_until_it_flows();
    demo.do_to("host-2", "pause_host").unwrap();
    let folder = demo.folder();
    let named = that_name(&folder);
    assert_eq!(named.len(), 3, "a hub and two hosts: {named:#?}");
    demo.kill();
    must_all_be_gone(&folder);
}

#[test]
fn a_demo_that_has_its_time_ends_by_itself_with_a_paused_host() {
    let place = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(place.path(), &[&SMALL[..], &["--seconds", "12"]].concat());
    demo.wait_until_it_flows();
    demo.do_to("host-1", "pause_host").unwrap();
    let folder = demo.folder();
    let outcome = demo.end();
    outcome.must_be_exact();
    assert!(!outcome.stderr.contains("WARN"), "nothing went wrong: {}", outcome.stderr);
    must_all_be_gone(&folder);
}

#[test]
fn a_second_ctrl_c_does_not_wait() {
    let place = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(place.path(), &SMALL);
    demo.wait_until_it_flows();
    for host in ["host-1", "host-2"] {
        demo.do_to(host, "kill_host").unwrap();
    }
    demo.wait_for("what waits for hosts", |demo| {
        let audit = demo.audit();
        (audit.sent > audit.processed + 300).then_some(())
    });
    let folder = demo.folder();
    signal(demo.process(), "INT");
    demo.wait_for("the message that it stops", |demo| {
        demo.stderr().contains("press Ctrl-C again").then_some(())
    });
    // No host is left to process the rest, so a graceful stop would wait in vain. Repeat the signal, because
    // the first may come before the handler is installed.
    let process = demo.process();
    demo.wait_for("its end", |demo| {
        signal(process, "INT");
        demo.stderr().contains("stopped immediately").then_some(())
    });
    assert!(!demo.end().status.success());
    must_all_be_gone(&folder);
}

#[test]
fn a_demo_that_nobody_listens_to_any_more_ends_in_good_order() {
    let place = tempfile::tempdir().unwrap();
    let mut command = ephor(place.path());
    command.args(["demo", "--page", "127.0.0.1:0", "--seconds", "5"]).args(SMALL);
    command.env_remove("EPHOR_DEMO_HUB").env_remove("EPHOR_DEMO_RESULTS");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    assert!(stderr.lines().any(|line| line.unwrap().starts_with("Ctrl-C stops everything")));
    // Both pipes are closed by now, like those of a `tee` that got the same Ctrl-C.
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    must_all_be_gone(&place.path().join("ephor-demo"));
}
