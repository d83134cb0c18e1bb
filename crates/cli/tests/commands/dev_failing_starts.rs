//! Tests of `ephor dev`: starts that fail change no hub, broken hubs stop no others, keys and certificates in
//! files, and the lines of its banner. Also tests of errors and closed pipes of other commands.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ephor_hub::{LocalNamespace, NamespaceConfig};

use crate::common::{Dev, ephor, own_certificate, write_secret};

/// The folder of a hub.
fn hub_folder(here: &Path, name: &str) -> PathBuf {
    let hubs = std::fs::read_dir(here.join("ephor-data/hubs")).unwrap();
    let mut hubs = hubs.map(|hub| hub.unwrap().path());
    hubs.find(|hub| hub.file_name().unwrap().to_str().unwrap().starts_with(name)).unwrap()
}

fn stderr(command: &mut Command) -> String {
    String::from_utf8(command.output().unwrap().stderr).unwrap()
}

#[test]
fn a_hub_that_is_only_named_keeps_the_retention_that_a_file_gave_it() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let file = r#"{ "hubs": [{ "name": "homes", "partitions": 2, "retention": { "age": "30d" } }] }"#;
    std::fs::write(here.join("hubs.json"), file).unwrap();
    Dev::start(here, &["--config", "hubs.json"]).stop();
    Dev::start(here, &["--hub", "homes", "--hub", "doors:1"]).stop();
    let namespace = LocalNamespace::open(here.join("ephor-data"), NamespaceConfig::default()).unwrap();
    let days = |hub: &str| namespace.hub(hub).unwrap().describe().retention.age.unwrap().as_secs() / 86_400;
    assert_eq!((days("homes"), days("doors")), (30, 7));
}

#[test]
fn a_start_that_is_refused_changes_no_hub() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    Dev::start(here, &["--hub", "homes:2"]).stop();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let more = ["--hub", "homes:4", "--grow", "--hub", "doors:1", "--group", "homes/alarms"];
    for refused in [
        &["--amqp", &taken, "--http", "127.0.0.1:0"][..],
        &["--amqp", "127.0.0.1:0", "--http", &taken],
        &["--amqp", "0.0.0.0:0", "--http", "127.0.0.1:0"],
        &["--amqp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--keys", "none"],
    ] {
        let output = ephor(here).arg("dev").args(refused).args(more).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{refused:?}");
        let namespace = LocalNamespace::open(here.join("ephor-data"), NamespaceConfig::default()).unwrap();
        let hub = namespace.hub("homes").unwrap().describe();
        assert_eq!((hub.partitions, hub.groups.len()), (2, 1), "{refused:?}");
        assert!(namespace.hub("doors").is_err(), "{refused:?}");
    }
}

#[test]
fn keys_that_are_named_come_before_a_key_of_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    write_secret(&here.join("keys"), "ops manage c2VjcmV0LW9mLW9wcy0xMjM0NTY3ODkw\n");
    write_secret(&here.join("key"), "c2VjcmV0LW9mLXRoZS1lbnZpcm9ubWVudA==\n");
    let mut command = ephor(here);
    let dev = Dev::start_with(command.env("EPHOR_KEY_FILE", "key"), &["--memory", "--keys", "keys"]);
    assert_eq!(dev.value("key "), "ops: Send, Listen, Manage, for all hubs");
    dev.stop();
    let dev = Dev::start_with(ephor(here).env("EPHOR_KEY_FILE", "key"), &["--memory"]);
    assert!(dev.banner().contains("replace the word hidden with the key in key"), "{}", dev.banner());
    dev.stop();
    let both = stderr(ephor(here).args(["dev", "--memory", "--keys", "keys", "--key-file", "key"]));
    assert!(both.contains("cannot be used with"), "{both}");
}

#[test]
fn a_connection_that_fails_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let string = format!(
        "Endpoint=sb://{free};SharedAccessKeyName=x;SharedAccessKey=eA==;UseDevelopmentEmulator=true"
    );
    for arguments in [&["send", "homes", "x"][..], &["tail", "homes"]] {
        let text = stderr(ephor(folder.path()).args(arguments).env("EPHOR_CONNECTION", &string));
        assert_eq!(text.matches("refused").count(), 1, "{text}");
        assert!(text.starts_with("ephor: ") && text.contains("is ephor dev running there?"), "{text}");
    }
}

#[test]
fn who_has_read_enough_ends_no_command_with_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    Dev::start(here, &["--hub", "homes:1"]).stop();
    for (arguments, succeeds) in [
        (&["verify", "ephor-data"][..], true),
        (&["verify", "ephor-data", "-o", "json"], true),
        (&["--help"], true),
    ] {
        let mut command = ephor(here);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.args(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!text.contains("panicked") && output.status.success() == succeeds, "{arguments:?}: {text}");
    }
    // A hub continues without the process that started it.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = ephor(here);
    let http = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    command.args(["dev", "--memory", "--amqp", "127.0.0.1:0", "--http", &http]);
    let mut child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    // The health check answers after the banner is printed.
    let health = || {
        let mut stream = TcpStream::connect(&http)?;
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
        std::io::read_to_string(stream)
    };
    while !health().is_ok_and(|answer| answer.contains("200 OK")) {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_group_of_a_hub_that_is_broken_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    Dev::start(here, &["--hub", "homes:1", "--hub", "mills:1"]).stop();
    std::fs::write(hub_folder(here, "mills").join("hub.json"), "nonsense").unwrap();
    let dev = Dev::start(here, &["--group", "mills/grain", "--group", "homes/alarms"]);
    assert_eq!(dev.value("hub "), "homes, 1 partition, groups $Default, alarms");
    assert!(dev.value("note").contains("--group mills/grain"), "{}", dev.banner());
    assert!(dev.value("BROKEN").starts_with("mills"), "{}", dev.banner());
}

#[test]
fn what_the_banner_says_to_try_works_when_it_is_pasted() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let list = "# who\nold send b2xkLXNlY3JldC1vZi1vdGhlcnM= doors\nboard listen Ym9hcmQtc2VjcmV0LTEyMzQ1Ng==\n\
                ops  manage\tb3BzLXNlY3JldC0xMjM0NTY3ODk=  \n";
    write_secret(&here.join("my keys"), list);
    write_secret(&here.join("key"), "c2VjcmV0LW9mLXRoZS1lbnZpcm9ubWVudA==\n");
    let (key, pem) = own_certificate(&here.join("own"));
    let own =
        ["--amqps", "127.0.0.1:0", "--cert", pem.to_str().unwrap(), "--cert-key", key.to_str().unwrap()];
    for more in [&["--keys", "my keys"][..], &["--key-file", "key"], &[], &own] {
        let dev = Dev::start(here, &[&["--memory", "--hub", "homes:1"][..], more].concat());
        let export = dev.value("after ");
        let tried = dev.value("try ").to_owned();
        let (send, tail) = tried.split_once('·').unwrap();
        let bin = Path::new(env!("CARGO_BIN_EXE_ephor")).parent().unwrap().display();
        let script = format!("PATH={bin}:$PATH\n{export}\n{send}\n{tail} --from-beginning -n 1\n");
        let mut shell = Command::new("sh");
        shell.arg("-s").current_dir(here).env_remove("EPHOR_CONNECTION").env_remove("RUST_LOG");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let output = shell.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && text.contains("hello"), "{more:?}: {script}\n{text}\n{errors}");
    }
}

#[test]
fn a_new_key_of_a_certificate_that_others_can_read_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let (key, pem) = own_certificate(&here.join("first"));
    let (next_key, next_pem) = own_certificate(&here.join("next"));
    let own = ["--cert", pem.to_str().unwrap(), "--cert-key", key.to_str().unwrap()];
    let dev = Dev::start(here, &[&["--memory", "--amqps", "127.0.0.1:0"][..], &own].concat());
    std::fs::set_permissions(&next_key, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::rename(next_key, &key).unwrap();
    std::fs::rename(next_pem, &pem).unwrap();
    // The files are checked every second.
    let health = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let said = (0..1_000_000).any(|_| dev.log().contains("certificate") || dev.ask(health).is_empty());
    assert!(said, "nothing is said");
    let log = dev.stop_and_read_log();
    assert!(!log.contains("was replaced"), "{log}");
    assert_eq!(log.matches("chmod 600").count(), 1, "{log}");
}
