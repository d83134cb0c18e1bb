//! However it ends, nothing of it is left running.

use crate::processes::{must_all_be_gone, that_name};
use crate::running::Demo;

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
    demo.end().must_be_exact();
    must_all_be_gone(&folder);
}
