//! Tests of the demo over TLS with a key, and with results in a storage account: two connection strings are
//! all it needs. Its results are exact after a host is killed, and no key is in its output, logs or
//! arguments.

use std::fs;
use std::path::Path;

use ephor_testkit::azurite_server::{Azurite, KEY as ACCOUNT_KEY};

use crate::common::{Dev, ephor, write_secret};
use crate::processes::{arguments, children_of};
use crate::running_demo::{Demo, Outcome};

const HUB_KEY: &str = "canary+of+the+hub/0123456789abcdef=";

fn assert_hidden(text: &str, what: &str) {
    for key in [HUB_KEY, ACCOUNT_KEY] {
        assert!(!text.contains(key.trim_end_matches('=')), "a key is in {what}:\n{text}");
        let quoted = key.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        assert!(!text.contains(&quoted), "a key is in {what}:\n{text}");
    }
}

/// Checks that neither its output nor the logs of its processes contain a secret.
fn assert_nothing_shown(outcome: &Outcome, folder: &Path) {
    assert_hidden(&outcome.stdout, "stdout");
    assert_hidden(&outcome.stderr, "stderr");
    let mut logs = 0;
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".log") {
            assert_hidden(&fs::read_to_string(entry.path()).unwrap(), &name);
            logs += 1;
        }
    }
    assert!(logs >= 2, "the log of every host");
}

#[test]
fn over_tls_with_a_key_and_a_storage_account_it_is_as_exact() {
    let place = tempfile::tempdir().unwrap();
    let here = place.path();
    write_secret(&here.join("own.key"), HUB_KEY);
    let dev = Dev::start_with(
        &mut ephor(here),
        &[
            &["--amqps", "127.0.0.1:0", "--key-file", "own.key", "--hub", "homes:16"][..],
            &["--group", "homes/consolidate", "--group", "homes/alarms"],
        ]
        .concat(),
    );
    let trust = here.join(dev.value("trust").split(',').next().unwrap());
    let port = dev.value("amqps ").rsplit_once(':').unwrap().1;
    let hub = format!(
        "Endpoint=sb://localhost:{port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={HUB_KEY};\
         EntityPath=homes"
    );
    let azurite = Azurite::start();
    let results = azurite.connection_string();

    // Twice on the same hub and the same account: the second run ignores what the first one left.
    for _ in 0..2 {
        let mut demo = Demo::start(
            here,
            &[
                &["--homes", "5000", "--speed", "4", "--hosts", "2", "--trust", trust.to_str().unwrap()][..],
                &["--hub", &hub, "--results", &results],
            ]
            .concat(),
        );
        demo.wait_until_it_flows();
        let children = children_of(demo.process());
        assert_eq!(children.len(), 2, "two hosts, and no hub");
        for child in children {
            assert_hidden(&arguments(child).unwrap(), "the arguments of a host");
        }
        demo.do_to("host-1", "kill_host").unwrap();
        demo.wait_for("the other to take over", |demo| (demo.shares(0) == [16]).then_some(()));
        let why = demo.act(&serde_json::json!({"action": "restart_hub"})).unwrap_err();
        assert!(why.contains("did not start the hub"), "{why}");
        let folder = demo.folder();
        let outcome = demo.interrupt();
        outcome.must_be_exact();
        assert_nothing_shown(&outcome, &folder);
        assert!(!folder.join("results").exists(), "the results are in the account");
    }
    assert_hidden(&dev.stop_and_read_log(), "the hub's log");
}
