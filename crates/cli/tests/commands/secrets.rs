//! Tests that no secret is shown: a canary key is passed to every error, `Debug` and log that it can reach,
//! and their output is searched for the key. Also tests of key files, their modes, and keys without TLS.

use std::fmt::Debug;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ephor_core::time::Timestamp;
use ephor_eventhubs::{EventHub, EventHubOptions};
use ephor_gateway::{Gateway, GatewayConfig, SharedKey, development_key};
use ephor_hub::{LocalNamespace, NamespaceConfig};
use ephor_wire::connection_string::ConnectionString;
use ephor_wire::sas::{Key, KeyRing, Token, sign};

use crate::common::{Dev, ephor, write_secret};

const CANARY: &str = "canary+key/of+the+tests0123456789abcdef=";

/// Fails if a text contains the canary, plain or encoded.
fn assert_hidden(text: &str, what: &str) {
    let quoted = CANARY.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let numbers: Vec<String> = CANARY.bytes().map(|byte| byte.to_string()).collect();
    let hexadecimal: String = CANARY.bytes().map(|byte| format!("{byte:02x}")).collect();
    for form in [CANARY, CANARY.trim_end_matches('='), &quoted, &numbers.join(", "), &hexadecimal] {
        assert!(!text.contains(form), "the key is in {what}:\n{text}");
    }
    let signed = text.split("sig=").skip(1).any(|rest| {
        rest.chars().take_while(|letter| letter.is_ascii_alphanumeric() || "%+/".contains(*letter)).count()
            > 20
    });
    assert!(!signed, "a signature is in {what}:\n{text}");
}

fn assert_debug_hides(value: impl Debug) {
    assert_hidden(&format!("{value:?} {value:#?}"), std::any::type_name_of_val(&value));
}

fn string(endpoint: &str) -> String {
    format!("Endpoint=sb://{endpoint};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={CANARY}")
}

fn token(expires_at: Timestamp) -> String {
    sign("sb://localhost/homes", "RootManageSharedAccessKey", &Key::new(CANARY), expires_at)
}

#[test]
fn the_search_finds_what_it_looks_for() {
    let token = token(Timestamp(1_800_000_000_000));
    for shown in [CANARY, &format!("{:?}", CANARY.as_bytes()), &token] {
        assert!(std::panic::catch_unwind(|| assert_hidden(shown, "a test")).is_err(), "{shown}");
    }
    assert_hidden("sr=…&sig=…&se=…&skn=…", "an explanation");
}

#[tokio::test]
async fn debug_shows_no_key_and_no_token() {
    let parsed = ConnectionString::parse(&string("localhost")).unwrap();
    assert_hidden(&parsed.to_string(), "a connection string that is printed");
    assert_debug_hides(&parsed);
    assert_debug_hides(&parsed.credential);
    let signed = token(Timestamp(1_800_000_000_000));
    let by_token = format!("Endpoint=sb://localhost;SharedAccessSignature={signed}");
    assert_debug_hides(ConnectionString::parse(&by_token).unwrap());
    assert_debug_hides(ConnectionString::parse(&by_token).unwrap().credential);
    assert_debug_hides(Token::parse(&signed));

    let shared = SharedKey { key: Key::new(CANARY), ..development_key() };
    let ring = KeyRing::new([shared.clone()]);
    assert_debug_hides(ring.authorize(&signed, "sb://localhost/homes", Timestamp(0)));
    assert_debug_hides(ring.authorize(&signed, "sb://localhost/homes", Timestamp(i64::MAX)));
    let config = GatewayConfig { keys: vec![shared.clone()], ..GatewayConfig::default() };
    let namespace = LocalNamespace::in_memory(NamespaceConfig::default()).unwrap();
    assert_debug_hides((&shared, &shared.key, ring, &config));
    assert_debug_hides(Gateway::new(namespace.into(), config).unwrap());

    for given in [string("localhost"), by_token] {
        let builder = EventHub::builder(&given).hub("homes");
        assert_debug_hides(&builder);
        let hub = builder.build().unwrap();
        assert_debug_hides((hub.producer(), hub, EventHubOptions::default()));
    }
}

/// The output of a command, with the most detailed logs.
fn said(folder: &Path, arguments: &[&str], connection: &str) -> (bool, String) {
    let mut command = ephor(folder);
    command.args(arguments).env("EPHOR_CONNECTION", connection).env("RUST_LOG", "trace");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_hidden(&text, &format!("ephor {}", arguments.join(" ")));
    (output.status.success(), text)
}

fn assert_fails(folder: &Path, arguments: &[&str], connection: &str, words: &str) {
    let (succeeded, text) = said(folder, arguments, connection);
    assert!(!succeeded && text.contains(words), "{arguments:?}:\n{text}");
}

#[test]
fn a_connection_string_that_is_wrong_is_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let good = string("127.0.0.1:1");
    for bad in [
        CANARY.to_owned(),
        format!("Endpoint={CANARY};SharedAccessKeyName=x;SharedAccessKey={CANARY}"),
        format!("Endpoint=sb://{CANARY}@localhost;SharedAccessKeyName=x;SharedAccessKey=y"),
        format!("Endpoint=sb://localhost:{CANARY};SharedAccessKeyName=x;SharedAccessKey=y"),
        format!("{good};EntityPath={CANARY} {CANARY}"),
        format!("{good};UseDevelopmentEmulator={CANARY}"),
        format!("{good};{CANARY}={CANARY}"),
        format!("{good};{good}"),
        good.replace("SharedAccessKeyName", "Name"),
        good.replace("SharedAccessKey=", "SharedAccessSignature="),
    ] {
        assert_fails(folder.path(), &["send", "homes", "x"], &bad, "the connection string");
    }
}

#[test]
fn a_configuration_that_is_wrong_does_not_show_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    for (text, words) in [
        (format!(r#"{{"keys": [{{"name": "x", "key": "{CANARY}"}}], "hubs": []}}"#), "keys"),
        (format!(r#"{{"hubs": [], "key": "{CANARY}" oops}}"#), "line 1"),
        (CANARY.to_owned(), "line 1"),
    ] {
        std::fs::write(folder.path().join("bad.json"), &text).unwrap();
        let arguments = ["dev", "--memory", "--config", "bad.json", "--amqp", "127.0.0.1:0"];
        assert_fails(folder.path(), &arguments, "", words);
    }
    for (text, words) in [(CANARY.repeat(40), "longer than"), (format!("{CANARY} {CANARY}"), "one line")] {
        write_secret(&folder.path().join("bad.key"), &text);
        assert_fails(folder.path(), &["dev", "--memory", "--key-file", "bad.key"], "", words);
    }
}

#[test]
fn a_hub_with_a_key_of_its_own_shows_it_to_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    write_secret(&here.join("own.key"), &format!("{CANARY}\n"));
    let dev = Dev::start_with(
        ephor(here).env("RUST_LOG", "trace"),
        &["--key-file", "own.key", "--amqps", "127.0.0.1:0", "--hub", "homes:1"],
    );
    assert_hidden(dev.banner(), "the banner");
    assert!(dev.banner().contains("SharedAccessKey=hidden"), "{}", dev.banner());
    let certificate = dev.value("trust").split(',').next().unwrap().to_owned();
    let plain = format!("{};UseDevelopmentEmulator=true", string(dev.value("amqp ")));
    let secure = string(dev.value("amqps ")).replace("127.0.0.1", "localhost");

    let send = ["send", "homes", "hello"];
    assert!(said(here, &send, &plain).0);
    assert!(said(here, &["send", "homes", "hello", "--trust", &certificate], &secure).0);
    assert!(said(here, &["tail", "homes", "--from-beginning", "-n", "2"], &plain).1.contains("hello"));
    assert_fails(here, &send, &secure, "certificate");
    assert_fails(here, &["send", "nowhere", "x"], &plain, "could not be found");
    assert_fails(here, &send, &plain.replace("RootManage", "No"), "InvalidSignature");
    assert_fails(here, &send, &plain.replace(CANARY, "SAS_KEY_VALUE"), "InvalidSignature");
    let old = format!("SharedAccessSignature={}", token(Timestamp(1_600_000_000_000)));
    let expired = plain.replace(&format!("SharedAccessKey={CANARY}"), &old);
    let expired = expired.replace("SharedAccessKeyName=RootManageSharedAccessKey;", "");
    assert_fails(here, &send, &expired, "xpired");
    for request in [format!("GET /{CANARY} HTTP/1.1\r\n\r\n"), format!("{CANARY}\r\n\r\n")] {
        assert_hidden(&dev.ask(&request), "an answer over HTTP");
    }
    assert_hidden(&dev.stop_and_read_log(), "the log");
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.key");
    for (option, text) in [("--key-file", CANARY.to_owned()), ("--keys", format!("ops manage {CANARY}"))] {
        write_secret(&file, &text);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let arguments = ["dev", "--memory", option, "own.key"];
        assert_fails(folder.path(), &arguments, "", &format!("ephor: {option} own.key contains a secret"));
        assert_fails(folder.path(), &arguments, "", "(mode 0644); run chmod 600 own.key");
    }
}

#[test]
fn a_secret_in_an_argument_is_warned_of_with_the_other_ways_and_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    // All of them fail immediately: only the warnings before matter.
    let connection = format!("{};oops", string("127.0.0.1:1"));
    let database = format!("mysql://ada:{CANARY}@127.0.0.1:1/fleet");
    let account = format!("AccountName=a;AccountKey={CANARY};BlobEndpoint=http://127.0.0.1:1/a");
    let send = |value| ["send", "homes", "x", "--connection", value];
    for (arguments, option, variable) in [
        (&send(&connection)[..], "--connection", "EPHOR_CONNECTION"),
        (&["group", "list", "--store", &database], "--store", "EPHOR_STORE"),
        (&["checkpoint", "export", "homes/$Default", "--store", &database], "--store", "EPHOR_STORE"),
        (&["group", "list", "--store", "sqlite:none.db"], "", ""),
        (&["demo", "--page", "0.0.0.0:0", "--hub", &connection], "--hub", "EPHOR_DEMO_HUB"),
        (&["demo", "--page", "0.0.0.0:0", "--results", &account], "--results", "EPHOR_DEMO_RESULTS"),
        (&send(&connection.replace(CANARY, "SAS_KEY_VALUE")), "", ""),
    ] {
        let output = ephor(here).args(arguments).output().unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_hidden(&text, &arguments.join(" "));
        match option {
            "" => assert!(!text.contains("contains a secret"), "{text}"),
            _ => {
                let words = format!(
                    "{option} contains a secret, and everybody on this machine can read the arguments of a \
                     process; set {variable} instead, or put it into a file and use {option}-file FILE"
                );
                assert!(text.contains(&words), "{arguments:?}: {text}");
            }
        }
    }
    let (_, text) = said(here, &["send", "homes", "x"], &connection);
    assert!(!text.contains("contains a secret"), "{text}");
}

#[test]
fn a_connection_and_a_store_come_from_files_that_nobody_else_reads() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let dev = Dev::start(here, &["--memory", "--hub", "homes:1"]);
    let run = |arguments: &[&str]| {
        let mut command = ephor(here);
        // The command line takes precedence over the environment.
        command
            .args(arguments)
            .env("EPHOR_CONNECTION", "Endpoint=sb://nowhere")
            .env("EPHOR_STORE", "nonsense");
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    write_secret(&here.join("connection"), &format!("{}\n", dev.connection()));
    write_secret(&here.join("store"), "sqlite:none.db\n");
    let send = ["send", "homes", "x", "--connection-file", "connection"];
    assert_eq!(run(&send), (Some(0), "1 event sent to homes\n".to_owned()));
    let list = ["group", "list", "--store-file", "store"];
    let (code, text) = run(&list);
    assert!(code == Some(1) && text.contains("there is no store at sqlite:none.db"), "{text}");

    let (code, text) = run(&[&list[..], &["--store", "sqlite:other.db"]].concat());
    assert!(code == Some(2) && text.contains("cannot be used together"), "{text}");
    let output = ephor(here).args(["group", "list"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(2) && text.contains("--store-file FILE, or set EPHOR_STORE"),
        "{text}"
    );

    for (file, arguments) in [("connection", &send[..]), ("store", &list)] {
        std::fs::set_permissions(here.join(file), std::fs::Permissions::from_mode(0o640)).unwrap();
        let (code, text) = run(arguments);
        assert!(code == Some(1) && text.contains(&format!("chmod 600 {file}")), "{text}");
    }
}

#[test]
fn a_list_of_keys_permits_what_each_line_says_and_shows_none() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    write_secret(
        &here.join("keys"),
        &format!(
            "# who may do what\nsensors send {CANARY}1 homes\nboard listen {CANARY}2\nold send {CANARY}3 gone\n"
        ),
    );
    let dev = Dev::start_with(
        ephor(here).env("RUST_LOG", "trace"),
        &["--memory", "--keys", "keys", "--hub", "homes:1", "--hub", "doors:1"],
    );
    assert_hidden(dev.banner(), "the banner");
    for words in [
        "key        sensors: Send, for homes",
        "key        board: Listen, for all hubs",
        "the key \"old\" is for the hub \"gone\", which does not exist",
        "SharedAccessKeyName=sensors;SharedAccessKey=hidden;",
    ] {
        assert!(dev.banner().contains(words), "{words}: {}", dev.banner());
    }
    let by = |name: &str, number: u32| {
        let string = format!("{}{number};UseDevelopmentEmulator=true", string(dev.value("amqp ")));
        string.replace("RootManageSharedAccessKey", name)
    };
    assert!(said(here, &["send", "homes", "hello"], &by("sensors", 1)).0);
    assert_fails(here, &["send", "doors", "hello"], &by("sensors", 1), "InvalidSignature");
    assert_fails(here, &["send", "homes", "hello"], &by("board", 2), "'Send' claim(s) are required");
    let tail = ["tail", "homes", "--from-beginning", "-n", "1"];
    assert!(said(here, &tail, &by("board", 2)).1.contains("hello"));
    assert_fails(here, &tail, &by("sensors", 1), "'Listen' claim(s) are required");
    assert_fails(here, &tail, &by("board", 1), "InvalidSignature");
    assert_hidden(&dev.stop_and_read_log(), "the log");

    for (text, words) in [
        (format!("ops manage {CANARY}\n{CANARY} ops manage"), "--keys keys: line 2: the name (column 1)"),
        (format!("ops {CANARY}"), "--keys keys: line 1: it has 2 columns"),
        (String::new(), "--keys keys: it contains no key"),
    ] {
        write_secret(&here.join("keys"), &text);
        assert_fails(here, &["dev", "--memory", "--keys", "keys"], "", words);
    }
}

#[test]
fn a_key_goes_in_plaintext_to_another_machine_only_if_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let dev = Dev::start(here, &["--memory", "--hub", "homes:1"]);
    let send = ["send", "homes", "x"];
    let elsewhere = format!("{};UseDevelopmentEmulator=true", string("eventhubs-emulator"));
    assert_fails(here, &send, &elsewhere, "eventhubs-emulator is not this machine");
    assert_fails(here, &send, &elsewhere, "allow it: --allow-insecure on the command line");
    // An address that reaches this machine but is not recognized as such.
    let unnamed = dev.connection().replace("127.0.0.1", "0.0.0.0");
    assert_fails(here, &send, &unnamed, "0.0.0.0 is not this machine");
    let (sent, text) = said(here, &[&send[..], &["--allow-insecure"]].concat(), &unnamed);
    assert!(sent, "{text}");
}
