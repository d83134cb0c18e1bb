//! Tests of two processes on one data folder: the second gets an error that names the first, and gets the
//! lock when the first ends.

use std::path::Path;
use std::time::Duration;

use ephor_core::event::NewEvent;
use ephor_hub::{HubConfig, HubError, LocalNamespace, LockError, NamespaceConfig, verify_folder};

use crate::kill_helpers::child_process::{ChildProcess, orders, say, wait_for_the_end};

fn config() -> NamespaceConfig {
    NamespaceConfig { hubs: vec![HubConfig::new("homes", 1).unwrap()], ..NamespaceConfig::default() }
}

/// Another process that has stored an event and has the folder open.
fn holder(folder: &Path) -> ChildProcess {
    let child = ChildProcess::start("second_process::hold_the_folder_as_a_child", folder, "");
    assert_eq!(child.words.recv_timeout(Duration::from_secs(60)).as_deref(), Ok("holding"));
    child
}

/// Not a test of its own: what the other process does, until it is killed or its input ends.
#[test]
fn hold_the_folder_as_a_child() {
    let Some((folder, _)) = orders() else { return };
    let namespace = LocalNamespace::open(folder, config()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let producer = namespace.hub("homes").unwrap().producer();
    runtime.block_on(producer.send(NewEvent::new("one"))).unwrap();
    say("holding");
    wait_for_the_end();
    namespace.close().unwrap();
}

fn in_use_by(folder: &Path, process: u32) -> String {
    let folder = folder.display();
    format!("the data folder {folder} is in use by process {process}; stop it or choose another folder")
}

fn events(folder: &Path) -> u64 {
    let verified = verify_folder(folder).unwrap();
    assert!(verified.iter().all(|hub| hub.is_intact()), "{verified:#?}");
    verified.iter().map(|hub| hub.log.as_ref().unwrap().events).sum()
}

#[test]
fn a_second_process_is_told_who_has_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let child = holder(folder.path());
    // As often as it asks, and without harm to the one who has it.
    for _ in 0..3 {
        let error = LocalNamespace::open(folder.path(), config()).unwrap_err();
        assert!(
            matches!(&error, HubError::Lock(LockError::InUse { holder, .. }) if *holder == Some(child.child.id()))
        );
        assert_eq!(error.to_string(), in_use_by(folder.path(), child.child.id()));
    }
}

#[test]
fn a_folder_that_is_open_is_not_verified() {
    let folder = tempfile::tempdir().unwrap();
    let child = holder(folder.path());
    let error = verify_folder(folder.path()).unwrap_err();
    assert_eq!(error.to_string(), in_use_by(folder.path(), child.child.id()));
}

#[test]
fn a_process_that_was_killed_leaves_the_folder_to_the_next_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for round in 1..=5 {
        let mut child = holder(folder.path());
        child.kill();
        assert_eq!(events(folder.path()), round);
        drop(LocalNamespace::open(folder.path(), config()).unwrap());
    }
}

#[test]
fn a_process_that_stops_leaves_the_folder_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = holder(folder.path());
    assert!(child.stop().success());
    let namespace = LocalNamespace::open(folder.path(), config()).unwrap();
    assert!(namespace.hub("homes").unwrap().recovery().clean);
    drop(namespace);
    assert_eq!(events(folder.path()), 1);
}

#[test]
fn a_folder_that_was_refused_is_opened_once_its_holder_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = holder(folder.path());
    LocalNamespace::open(folder.path(), config()).unwrap_err();
    child.kill();
    let namespace = LocalNamespace::open(folder.path(), config()).unwrap();
    // And now this process is the one that is named.
    let refused = verify_folder(folder.path()).unwrap_err().to_string();
    assert!(refused.contains(&format!("process {} (this process)", std::process::id())), "{refused}");
    drop(namespace);
    assert_eq!(events(folder.path()), 1);
}
