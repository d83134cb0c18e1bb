//! No secret is shown: a canary key goes through every error, every `Debug` and every log that it can reach, and
//! is looked for.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail right there")]

mod common;

use std::fmt::Debug;
use std::path::Path;

use ephor_core::time::Timestamp;
use ephor_eventhubs::{EventHubs, Options};
use ephor_gateway::{Gateway, GatewayConfig, SharedKey, development_key};
use ephor_hub::{LocalNamespace, NamespaceConfig};
use ephor_wire::connection_string::ConnectionString;
use ephor_wire::sas::{Key, KeyRing, Token, sign};

use common::{Dev, ephor};

const CANARY: &str = "canary+key/of+the+tests0123456789abcdef=";

/// Fails if the canary is in a text, as it is or as it would be written by something careless.
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
        let builder = EventHubs::builder(&given).hub("homes");
        assert_debug_hides(&builder);
        let hub = builder.build().unwrap();
        assert_debug_hides((hub.producer(), hub, Options::default()));
    }
}

/// What a command says, with the finest logs.
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
    for (text, words) in [(CANARY.repeat(40), "no key"), (format!("{CANARY} {CANARY}"), "one line")] {
        std::fs::write(folder.path().join("bad.key"), &text).unwrap();
        assert_fails(folder.path(), &["dev", "--memory", "--key-file", "bad.key"], "", words);
    }
}

#[test]
fn a_hub_with_a_key_of_its_own_shows_it_to_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("own.key"), format!("{CANARY}\n")).unwrap();
    let dev = Dev::start_with(
        ephor(here).env("RUST_LOG", "trace"),
        &["--key-file", "own.key", "--amqps", "127.0.0.1:0", "--hub", "homes:1"],
    );
    assert_hidden(dev.banner(), "the banner");
    assert!(dev.banner().contains("SharedAccessKey=hidden"), "{}", dev.banner());
    assert!(dev.banner().contains("chmod 600 own.key"), "{}", dev.banner());
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
