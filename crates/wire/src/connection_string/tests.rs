//! Tests that all common forms of connection strings are parsed, and that no secret is shown.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> ConnectionString {
    ConnectionString::parse(text).unwrap()
}

fn refused(text: &str) -> String {
    ConnectionString::parse(text).unwrap_err().to_string()
}

#[test]
fn the_string_of_the_emulator_is_plain_amqp_on_its_port() {
    let string = parse(
        "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;\
         UseDevelopmentEmulator=true;",
    );
    assert_eq!((string.host().as_str(), string.port(), string.tls()), ("localhost", 5672, false));
    assert!(string.is_development());
    let Some(Credential::Key { name, key }) = &string.credential else { panic!("there is a key") };
    assert_eq!((&**name, key.reveal()), ("RootManageSharedAccessKey", "SAS_KEY_VALUE"));
    assert_eq!(string.hub, None);
    let other = parse("Endpoint=sb://host.docker.internal:7777;UseDevelopmentEmulator=True");
    assert_eq!((other.host().as_str(), other.port()), ("host.docker.internal", 7777));
}

#[test]
fn all_names_of_this_machine_are_one() {
    for name in ["localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "[::1]", "::1"] {
        assert!(is_loopback(name), "{name}");
    }
    for name in
        ["contoso", "10.0.0.1", "localhost.example.net", "127.0.0.1.example.net", "0.0.0.0", "[::]", ""]
    {
        assert!(!is_loopback(name), "{name}");
    }
}

#[test]
fn the_string_of_the_service_is_tls() {
    let string = parse(
        "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a+b/c=;EntityPath=homes",
    );
    let Some(Credential::Key { key, .. }) = &string.credential else { panic!("there is a key") };
    assert_eq!(key.reveal(), "a+b/c=", "a key may end with equals signs");
    assert_eq!(string.hub.as_ref().map(HubName::as_str), Some("homes"));
    assert_eq!(
        (string.host().as_str(), string.port(), string.tls()),
        ("ns.servicebus.windows.net", 5671, true)
    );
}

#[test]
fn names_come_in_any_case_and_order_with_spaces_and_empty_parts() {
    let string = parse(" entitypath = a/b ;; SHAREDACCESSKEY=k;ENDPOINT=[::1]:5672/;sharedaccesskeyname=n;");
    assert_eq!((string.host().as_str(), string.port()), ("[::1]", 5672));
    assert_eq!(string.hub.as_ref().map(HubName::as_str), Some("a/b"));
    let token = "SharedAccessSignature sr=sb%3A%2F%2Fh&sig=x%3D&se=1&skn=n";
    let string = parse(&format!("Endpoint=amqp://h;SharedAccessSignature={token}"));
    let Some(Credential::Signature(held)) = &string.credential else { panic!("there is a token") };
    assert_eq!(held.expose_secret(), token);
    assert_eq!((string.tls(), string.port()), (false, 5672));
}

#[test]
fn what_is_not_used_is_noted_and_what_is_not_known_is_refused() {
    let string = parse("Endpoint=sb://h;TransportType=Amqp;OperationTimeout=00:01:00");
    assert_eq!(string.notes, ["TransportType is not used", "OperationTimeout is not used"]);
    assert_eq!(
        refused("Endpoint=sb://h;EntityPth=homes"),
        "the connection string has a part 2, \"EntityPth\", that is not known; known are Endpoint, \
         SharedAccessKeyName, SharedAccessKey, SharedAccessSignature, EntityPath and UseDevelopmentEmulator"
    );
}

#[test]
fn each_mistake_says_what_it_is() {
    for (text, why) in [
        ("", "has no Endpoint; it begins with Endpoint=sb://…"),
        ("Endpoint=sb://h;nonsense", "has no '=' in its part 2; each part is Name=value"),
        ("Endpoint=", "has no value for Endpoint"),
        ("Endpoint=sb://h;Endpoint=sb://h", "has Endpoint twice"),
        ("Endpoint=sb://h;SharedAccessKeyName=n", "has SharedAccessKeyName without SharedAccessKey"),
        ("Endpoint=sb://h;SharedAccessKey=k", "has SharedAccessKey without SharedAccessKeyName"),
        (
            "Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=k;SharedAccessSignature=s",
            "has both SharedAccessKey and SharedAccessSignature; one of them is enough",
        ),
        (
            "Endpoint=sb://h;UseDevelopmentEmulator=yes",
            "has a UseDevelopmentEmulator that is neither true nor false",
        ),
        ("Endpoint=ftp://h", "has an Endpoint whose scheme is not known; write sb://host"),
        (
            "Endpoint=sb://h/hub",
            "has an Endpoint with more than a host and a port; the hub belongs in EntityPath",
        ),
        ("Endpoint=sb://h:x", "has an Endpoint whose port is not a number up to 65535"),
        ("Endpoint=sb://h:0", "has an Endpoint whose port is not a number up to 65535"),
        ("Endpoint=sb://", "has an Endpoint without the name of a host; write sb://host or sb://host:port"),
        (
            "Endpoint=sb://a:b:1",
            "has an Endpoint without the name of a host; write sb://host or sb://host:port",
        ),
    ] {
        assert_eq!(refused(text), format!("the connection string {why}"), "{text}");
    }
    assert!(refused(&"x".repeat(MAX_CONNECTION_STRING_LENGTH + 1)).contains("longer"));
}

#[test]
fn nothing_shows_a_secret_but_the_one_function_that_says_so() {
    let key = parse("Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=canary;EntityPath=e");
    let token = parse("Endpoint=sb://h;SharedAccessSignature=canary");
    for string in [&key, &token] {
        let shown = format!("{string} {string:?} {:?}", string.credential);
        assert!(!shown.contains("canary"), "{shown}");
        assert!(string.reveal().contains("canary"));
    }
    assert_eq!(key.to_string(), "Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=hidden;EntityPath=e;");
    for mixed_up in [
        "canary",
        "Endpoint=canary canary",
        "Endpoint=sb://canary@h",
        "Endpoint=sb://h;EntityPath=h SharedAccessKey=canary",
        "Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=a;canary0=",
        "Endpoint=sb://h;UseDevelopmentEmulator=canary",
    ] {
        assert!(!refused(mixed_up).contains("canary"), "{mixed_up}");
    }
}

#[test]
fn the_development_string_is_the_one_that_people_know() {
    let host = "localhost".parse().unwrap();
    let string = ConnectionString::development(&host, 5672, None);
    assert_eq!(
        string.reveal(),
        "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;\
         SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    );
    let string =
        ConnectionString::development(&host, 1, Some("e".parse().unwrap())).with_key("n", Key::new("k"));
    assert_eq!(
        string.reveal(),
        "Endpoint=sb://localhost:1;SharedAccessKeyName=n;SharedAccessKey=k;EntityPath=e;UseDevelopmentEmulator=true;"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_string_reads_back_as_it_was_written(
        scheme in proptest::sample::select(vec!["sb", "amqp"]),
        host in "[a-z0-9.-]{1,20}",
        port in proptest::option::of(1u16..),
        key in proptest::option::of("[ -:<-~]{0,10}[!-:<-~]"),
        hub in proptest::option::of("[a-z0-9/._-]{1,20}"),
        development in any::<bool>(),
    ) {
        let part = |name: &str, value: Option<String>| value.map_or(String::new(), |value| format!("{name}={value};"));
        let text = format!(
            "Endpoint={scheme}://{host}{};{}{}{}",
            port.map_or(String::new(), |port| format!(":{port}")),
            part("SharedAccessKeyName=n;SharedAccessKey", key),
            part("EntityPath", hub),
            part("UseDevelopmentEmulator", development.then(|| "true".into())),
        );
        let once = ConnectionString::parse(&text).unwrap();
        let twice = ConnectionString::parse(&once.reveal()).unwrap();
        prop_assert_eq!(once.reveal(), twice.reveal());
        prop_assert_eq!((once.port(), once.tls()), (twice.port(), twice.tls()));
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), value in any::<String>()) {
        let _ = ConnectionString::parse(&text);
        let _ = ConnectionString::parse(&format!("Endpoint={value};EntityPath={text}"));
    }
}
