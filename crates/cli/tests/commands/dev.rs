//! Tests of `ephor dev`: restarts, hubs from options and from a file, the health check, TLS certificates, and
//! clients that are refused. Starts that fail are in `dev_failing_starts.rs`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::{Dev, ephor, own_certificate, write_secret};

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
    assert!(text.contains("The messaging entity 'sb://127.0.0.1/nowhere' could not be found"), "{text}");
    dev.stop();

    let verified = ephor(here).args(["verify", "ephor-data"]).output().unwrap();
    let text = String::from_utf8(verified.stdout).unwrap();
    assert!(
        text.starts_with("doors: 4 events in 1 segment, ")
            && text.ends_with("1 hub checked, no damage found\n"),
        "{text}"
    );
    let verified = ephor(here).args(["verify", "ephor-data", "-o", "json"]).output().unwrap();
    let found: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!((&found[0]["hub"], &found[0]["events"]), (&"doors".into(), &4.into()));
    assert_eq!((&found[0]["intact"], &found[0]["damage"]), (&true.into(), &Value::Array(vec![])));
}

#[test]
fn memory_keeps_nothing_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path(), &["--memory"]);
    assert_eq!(dev.value("data"), "in memory, lost when the hub stops");
    assert_eq!(dev.value("hub"), "homes, 4 partitions, groups $Default");
    dev.stop();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn health_is_answered_as_by_the_emulator() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path(), &["--memory"]);
    let answer = dev.ask("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with(r#"{"status":"healthy","message":"Service is healthy."}"#), "{answer}");
    // The same without the body.
    let (head, _) = answer.split_once("{").unwrap();
    assert_eq!(dev.ask("HEAD /health HTTP/1.1\r\nhost: localhost\r\n\r\n"), head);
    let answer = dev.ask("HEAD / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn health_tells_of_a_hub_that_could_not_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    Dev::start(folder.path(), &["--hub", "homes:1", "--hub", "mills:1"]).stop();
    let hubs = std::fs::read_dir(folder.path().join("ephor-data/hubs")).unwrap();
    let mut hubs = hubs.map(|hub| hub.unwrap().path());
    let mills = hubs.find(|hub| hub.to_str().unwrap().contains("mills")).unwrap();
    std::fs::write(mills.join("hub.json"), "nonsense").unwrap();
    let dev = Dev::start(folder.path(), &[]);
    let answer = dev.ask("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
    assert!(answer.contains(r#""status":"unhealthy""#) && answer.contains("mills"), "{answer}");
    assert!(!answer.contains("homes"), "{answer}");
}

#[test]
fn whom_the_hub_does_not_let_in_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let dev = Dev::start(here, &["--memory", "--hub", "homes:1"]);
    let wrong = dev.connection().replace("SAS_KEY_VALUE", "another-key");
    for (hub, connection) in [("homes", &wrong), ("nowhere", &dev.connection())] {
        let sent = ephor(here).args(["send", hub, "x", "--connection", connection]).output().unwrap();
        assert!(!sent.status.success());
    }
    let log = dev.stop_and_read_log();
    assert!(log.contains("InvalidSignature"), "{log}");
    assert!(log.contains("request refused") && log.contains("nowhere"), "{log}");
    assert!(!log.contains("DEBUG"), "{log}");

    for arguments in [&["--help"][..], &["dev", "--help"]] {
        let help = ephor(here).args(arguments).output().unwrap();
        assert!(String::from_utf8(help.stdout).unwrap().contains("RUST_LOG"));
    }
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    // Every write to stderr fails, as on a full disk.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" 2>/dev/full", env!("CARGO_BIN_EXE_ephor")]).current_dir(here);
    let dev = Dev::start_with(&mut shell, &["--memory", "--hub", "homes:1"]);
    let refused = dev.run(here, &["send", "nowhere", "x"], "");
    assert!(!refused.status.success());
    let sent = dev.run(here, &["send", "homes", "x"], "");
    assert!(sent.status.success(), "it had to log a refusal, and is gone: {sent:?}");
    dev.stop();
}

#[test]
fn options_that_are_wrong_leave_no_data_folder() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (arguments, words) in [
        (&["--group", "alarms"][..], "write HUB/GROUP"),
        (&["--group", "homes/a b"], "--group homes/a b: "),
        (&["--group", "homes/$mine"], "--group homes/$mine: "),
        (&["--group", "doors/alarms"], "there is no hub \"doors\""),
        (&["--hub", "doors", "--group", "homes/alarms"], "there is no hub \"homes\""),
        (&["--hub", "doors", "--hub", "doors"], "listed twice"),
        (&["--hub", "doors:0"], "--hub doors:0: "),
    ] {
        let free = ["dev", "--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        let output = ephor(here).args(free).args(arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(words), "{arguments:?}: {text}");
        assert_eq!(std::fs::read_dir(here).unwrap().count(), 0, "{arguments:?}");
    }
    Dev::start(here, &["--group", "Homes/alarms", "--group", "homes/$default"]).stop();
    // An existing hub need not be named again.
    let dev = Dev::start(here, &["--hub", "doors", "--group", "homes/more"]);
    assert!(dev.banner().contains("homes, 4 partitions, groups $Default, alarms, more"), "{}", dev.banner());
}

#[test]
fn what_is_in_the_way_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let dev = Dev::start(folder.path(), &[]);
    let fails = |arguments: &[&str]| {
        let output = ephor(folder.path()).args(arguments).output().unwrap();
        assert!(!output.status.success());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "it must not report that it is ready");
        String::from_utf8(output.stderr).unwrap()
    };
    let text = fails(&["dev", "--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    assert!(text.contains("is in use by process"), "{text}");
    let text = fails(&["dev", "--memory", "--amqp", dev.value("amqp"), "--http", "127.0.0.1:0"]);
    assert!(text.contains("another program listens there"), "{text}");
    let text = fails(&["dev", "--memory", "--hub", "homes:many"]);
    assert!(text.contains("is not a number of partitions"), "{text}");
    let text = fails(&["dev", "--memory", "--config", "nothing.json"]);
    assert!(text.contains("nothing.json"), "{text}");
    let text = fails(&["dev", "--memory", "--amqp", "localhost"]);
    assert!(text.contains("such as 127.0.0.1:5672"), "{text}");
    let nobody = "Endpoint=sb://127.0.0.1:1;UseDevelopmentEmulator=true";
    let text = fails(&["tail", "homes", "--connection", nobody]);
    assert!(text.contains("is ephor dev running there?"), "{text}");
    let text = fails(&["dev", "--memory", "--amqp", "0.0.0.0:0", "--http", "127.0.0.1:0"]);
    assert!(text.contains("use --amqps with --key-file"), "{text}");
}

#[test]
fn over_tls_with_a_certificate_that_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let mut certificates = Vec::new();
    for body in ["one", "two"] {
        let dev = Dev::start(here, &["--amqps", "127.0.0.1:0", "--hub", "homes:1"]);
        let pem = dev.value("trust").split(',').next().unwrap();
        certificates.push(std::fs::read(pem).unwrap());
        let key = std::fs::metadata(pem.replace(".pem", ".key")).unwrap();
        assert_eq!(key.permissions().mode() & 0o777, 0o600);
        let port = dev.value("amqps ").rsplit(':').next().unwrap();
        let secure = |host: &str| {
            format!(
                "Endpoint=sb://{host}:{port};SharedAccessKeyName=RootManageSharedAccessKey;\
                 SharedAccessKey=SAS_KEY_VALUE"
            )
        };
        for host in ["localhost", "127.0.0.1"] {
            let mut send = ephor(here);
            send.args(["send", "homes", body, "--trust", pem]).env("EPHOR_CONNECTION", secure(host));
            let output = send.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let mut tail = ephor(here);
        tail.args(["tail", "homes", "--from-beginning", "-n", "2"]).env("EPHOR_TRUST", pem);
        assert_eq!(
            bodies(&tail.env("EPHOR_CONNECTION", secure("localhost")).output().unwrap()),
            ["one", "one"]
        );
        let untrusted =
            ephor(here).args(["send", "homes", "x", "--connection", &secure("localhost")]).output();
        let untrusted = untrusted.unwrap();
        assert!(!untrusted.status.success());
        let text = String::from_utf8(untrusted.stderr).unwrap();
        assert!(text.contains("--trust") && !text.contains("is ephor dev running"), "{text}");
        dev.stop();
    }
    assert_eq!(certificates[0], certificates[1], "clients continue to trust the certificate");
}

fn secure(host: &str, port: &str) -> String {
    format!(
        "Endpoint=sb://{host}:{port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
    )
}

#[test]
fn a_certificate_for_other_machines_has_a_name_that_they_can_verify() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    write_secret(&here.join("own.key"), "0123456789abcdef0123456789abcdef");
    let everywhere = ["--memory", "--amqps", "0.0.0.0:0", "--key-file", "own.key", "--hub", "homes:1"];
    let free = ["dev", "--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let fails = |more: &[&str], words: &str| {
        let output = ephor(here).args(free).args(everywhere).args(more).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(words), "{more:?}: {text}");
    };
    fails(&[], "add --name HOST with the name or address by which clients reach this machine");
    fails(&["--name", "0.0.0.0"], "such as hub.example or 10.0.0.7");
    fails(&["--name", "../hub"], "such as hub.example or 10.0.0.7");
    fails(&["--name", "localhost."], "add --name HOST with the name or address by which clients reach this");
    fails(&["--cert", "own.pem"], "--cert-key");

    let dev =
        Dev::start(here, &[&everywhere[..], &["--name", "Hub.example.", "--name", "127.0.0.7"]].concat());
    let port = dev.value("amqps ").rsplit(':').next().unwrap();
    assert!(dev.banner().contains(&format!("Endpoint=sb://hub.example:{port};")), "{}", dev.banner());
    let pem = dev.value("trust").split(',').next().unwrap();
    for host in ["127.0.0.7", "localhost"] {
        let string = secure(host, port).replace("SAS_KEY_VALUE", "0123456789abcdef0123456789abcdef");
        let mut send = ephor(here);
        send.args(["send", "homes", "x", "--trust", pem]).env("EPHOR_CONNECTION", string);
        let output = send.output().unwrap();
        assert!(output.status.success(), "{host}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_certificate_of_ones_own_is_served_and_replaced_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let (key, pem) = own_certificate(&here.join("first"));
    let (next_key, next_pem) = own_certificate(&here.join("next"));
    let [first, next] = [&pem, &next_pem].map(|pem| std::fs::read(pem).unwrap());
    std::fs::write(here.join("first.pem"), first).unwrap();
    std::fs::write(here.join("next.pem"), next).unwrap();
    let own = ["--cert", pem.to_str().unwrap(), "--cert-key", key.to_str().unwrap()];
    let dev =
        Dev::start(here, &[&["--memory", "--amqps", "127.0.0.1:0", "--hub", "homes:1"][..], &own].concat());
    assert_eq!(dev.value("cert"), format!("{}, reloaded when it changes", pem.display()));
    let port = dev.value("amqps ").rsplit(':').next().unwrap();
    let trusting = |pem: &str| {
        let mut send = ephor(here);
        send.args(["send", "homes", "x", "--trust", pem]).env("EPHOR_CONNECTION", secure("localhost", port));
        send.output().unwrap().status.success()
    };
    assert!(trusting("first.pem"));
    std::fs::rename(next_key, &key).unwrap();
    std::fs::rename(next_pem, &pem).unwrap();
    // The files are checked every second, and a client retries for longer.
    assert!((0..30).any(|_| trusting("next.pem")), "the new one is not served");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let log = dev.stop_and_read_log();
    assert!(log.contains("the certificate was replaced"), "{log}");

    let refused = ephor(here).args(["dev", "--memory", "--amqps", "127.0.0.1:0"]).args(own).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("--cert-key ") && text.contains("chmod 600"), "{text}");
}

#[test]
fn a_hub_that_is_there_grows_only_if_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let counted = |more: &[&str]| {
        let dev = Dev::start(here, more);
        let (hub, banner) = (dev.value("hub").to_owned(), dev.banner().to_owned());
        dev.stop();
        (hub.split(" partitions").next().unwrap().to_owned(), banner)
    };
    assert_eq!(counted(&["--hub", "meters:8"]).0, "meters, 8");
    let mut refused = ephor(here);
    refused.args(["dev", "--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--hub", "meters:16"]);
    let refused = refused.output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success(), "it must not grow without --grow");
    assert!(text.contains("the hub meters has 8 partitions, but 16 are requested"), "{text}");
    assert!(text.contains("add --grow to do it, or request 8, as in --hub meters:8"), "{text}");
    assert_eq!(counted(&["--hub", "meters"]).0, "meters, 8");
    let (hub, banner) = counted(&["--hub", "meters:4"]);
    assert_eq!(hub, "meters, 8");
    assert!(banner.contains("note       meters keeps its 8 partitions instead of 4"), "{banner}");
    let (hub, banner) = counted(&["--hub", "meters:16", "--grow"]);
    assert_eq!(hub, "meters, 16");
    assert!(
        banner.contains("note       meters grew from 8 to 16 partitions permanently; keys map to other"),
        "{banner}"
    );
}

#[test]
fn who_disagrees_with_the_hub_about_tls_is_told_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let dev = Dev::start(here, &["--memory", "--amqps", "127.0.0.1:0", "--hub", "homes:1"]);
    for (port, emulator, words) in [
        ("amqp ", "", "add UseDevelopmentEmulator=true to the connection string"),
        ("amqps ", ";UseDevelopmentEmulator=true", "the port speaks TLS; leave UseDevelopmentEmulator=true"),
    ] {
        let port = dev.value(port).rsplit(':').next().unwrap();
        for command in [&["send", "homes", "x"][..], &["tail", "homes"]] {
            let mut command_line = ephor(here);
            command_line.args(command).env("EPHOR_CONNECTION", secure("127.0.0.1", port) + emulator);
            let output = command_line.output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(!output.status.success() && text.contains(words), "{text}");
            assert!(!text.contains("attempts"), "it must not retry: {text}");
        }
    }
}

#[test]
fn no_certificate_is_made_for_those_who_do_not_ask_for_one() {
    let folder = tempfile::tempdir().unwrap();
    Dev::start(folder.path(), &[]).stop();
    assert!(!folder.path().join("ephor-data/certificates").exists());
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

#[test]
fn nobody_is_let_in_before_all_hubs_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let hubs =
        |name: &str| (0..60).flat_map(|n| ["--hub".to_owned(), format!("{name}{n}:1")]).collect::<Vec<_>>();
    let strings = hubs("old");
    // These take a while to open, so that a client is waiting before any is served.
    Dev::start(here, &strings.iter().map(String::as_str).collect::<Vec<_>>()).stop();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hubs_folder = here.join("ephor-data/hubs");
    let client = std::thread::spawn(move || {
        loop {
            let Ok(mut stream) = TcpStream::connect(address) else { continue };
            let header = *b"AMQP\x03\x01\x00\x00";
            let mut answer = [0; 8];
            stream.write_all(&header).unwrap();
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, header);
            let names = std::fs::read_dir(hubs_folder).unwrap().map(|entry| entry.unwrap().file_name());
            return names.filter(|name| name.to_string_lossy().starts_with("new")).count();
        }
    });
    let mut command = ephor(here);
    command.args(["dev", "--http", "127.0.0.1:0", "--amqp"]).arg(address.to_string()).args(hubs("new"));
    let mut dev = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let there = client.join();
    dev.kill().unwrap();
    dev.wait().unwrap();
    assert_eq!(there.unwrap(), 60, "the number of hubs when the first client was admitted");
}
