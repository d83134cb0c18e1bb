//! Tests that shared access signatures (SAS tokens) of the SDKs are verified, and grant exactly the rights
//! of their key and their scope.

use ephor_core::ids::HubName;
use proptest::prelude::*;

use super::*;
use crate::address::Address;

const NAME: &str = "RootManageSharedAccessKey";
const EXPIRY: Timestamp = Timestamp(1_800_000_000_000);
const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn key() -> Key {
    Key::new("SAS_KEY_VALUE")
}

fn ring() -> KeyRing {
    let shared = |name: &str, key: &str, claims, hub: Option<&str>| SharedKey {
        name: name.into(),
        key: Key::new(key),
        claims,
        hub: hub.map(|hub| hub.parse().unwrap()),
    };
    KeyRing::new([
        shared(NAME, "old", Claims::MANAGE, None),
        shared(NAME, "SAS_KEY_VALUE", Claims::MANAGE, None),
        shared("send", "one", Claims::SEND, Some("eh1")),
        shared("send", "two", Claims::SEND, Some("eh2")),
        shared("listen", "three", Claims::LISTEN, None),
    ])
}

#[test]
fn a_token_is_what_the_python_and_javascript_sdks_make() {
    assert_eq!(
        sign("sb://localhost/eh1", NAME, &key(), EXPIRY),
        "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%2Feh1\
         &sig=dq29V0C57wb3EwQv9oplkXTqEIRvE7qglWZ1n5mM2rs%3D&se=1800000000&skn=RootManageSharedAccessKey"
    );
}

#[test]
fn a_token_of_the_go_and_rust_sdks_is_verified_over_its_own_text() {
    let token = "SharedAccessSignature sr=amqps%3a%2f%2flocalhost%2feh1\
                 &sig=xoLKUP%2BeZI8jFV%2BVaA%2Bg5QXmVNewrsvXAsaoZU6Yi4k%3D&se=1800000000&skn=RootManageSharedAccessKey";
    for token in [token.to_owned(), token.replace("%2B", "+").replace("%3D", "=")] {
        let audience = "amqps://localhost/eh1/ConsumerGroups/$Default/Partitions/0";
        let grant = ring().authorize(&token, audience, NOW).unwrap();
        assert_eq!((grant.claims, grant.expires_at, &*grant.key_name), (Claims::MANAGE, EXPIRY, NAME));
        for node in ["$management", "ConsumerGroups/$Default/$management"] {
            let grant = ring().authorize(&token, &format!("amqps://localhost/eh1/{node}"), NOW).unwrap();
            assert!(grant.covers_hub(&"eh1".parse().unwrap()), "{node}");
        }
    }
}

#[test]
fn the_fields_may_stand_in_any_order() {
    let token = sign("sb://localhost/eh1", NAME, &key(), EXPIRY);
    let mut fields: Vec<&str> = token.split_once(' ').unwrap().1.split('&').collect();
    fields.reverse();
    let token = format!("sharedaccesssignature {}", fields.join("&"));
    assert!(ring().authorize(&token, "sb://localhost/eh1", NOW).is_ok());
}

#[test]
fn each_way_of_being_wrong_has_its_text() {
    let refused = |token: &str, audience| ring().authorize(token, audience, NOW).unwrap_err();
    let hub = "sb://localhost/eh1";
    let good = sign(hub, NAME, &key(), EXPIRY);
    assert_eq!(refused(&sign(hub, NAME, &Key::new("other"), EXPIRY), hub), InvalidToken::Signature);
    assert_eq!(refused(&sign(hub, "unknown", &key(), EXPIRY), hub), InvalidToken::UnknownKey);
    assert_eq!(refused(&good.replace("eh1", "eh2"), hub), InvalidToken::Signature);
    assert_eq!(refused(&good.replace("se=18", "se=19"), hub), InvalidToken::Signature);
    let ended = Timestamp(NOW.0 - EXPIRY_GRACE.as_millis() as i64);
    assert_eq!(refused(&sign(hub, NAME, &key(), ended), hub), InvalidToken::Expired);
    assert!(ring().authorize(&sign(hub, NAME, &key(), ended + Duration::from_secs(1)), hub, NOW).is_ok());
    for audience in ["sb://localhost/eh2", "sb://localhost/eh10", "sb://elsewhere/eh1", "sb://localhost"] {
        assert_eq!(refused(&good, audience), InvalidToken::Audience, "{audience}");
    }
    let long = format!("SharedAccessSignature {}", "x".repeat(MAX_TOKEN_LENGTH));
    for malformed in [
        "",
        "jwt",
        "SharedAccessSignature",
        "SharedAccessSignature sr=a&sig=%&se=x&skn=n",
        "SharedAccessSignature sr=a&sig=YQ==&se=-1&skn=n",
        "SharedAccessSignature sr=a&sig=YQ==&se=1",
        "SharedAccessSignature sr=a&sr=b&sig=YQ==&se=1&skn=n",
        "SharedAccessSignature sr=a&sig=YQ==&se=99999999999999999999&skn=n",
        &long,
    ] {
        assert_eq!(refused(malformed, hub), InvalidToken::Malformed, "{malformed}");
    }
    for invalid in [InvalidToken::Signature, InvalidToken::UnknownKey] {
        assert_eq!(invalid.to_string(), "InvalidSignature: The token has an invalid signature.");
    }
}

#[test]
fn a_key_of_a_hub_counts_for_that_hub_only() {
    let one = sign("sb://localhost/eh1", "send", &Key::new("one"), EXPIRY);
    let grant = ring().authorize(&one, "sb://localhost/EH1", NOW).unwrap();
    assert_eq!(grant.claims, Claims::SEND);
    let hub = |name: &str| name.parse::<HubName>().unwrap();
    assert!(grant.covers(&Address::parse("eh1/Partitions/3").unwrap()));
    assert!(grant.covers(&Address::parse("$management").unwrap()));
    assert!(!grant.covers(&Address::parse("eh2").unwrap()));
    assert!(!grant.covers(&Address::parse("eh1/b").unwrap()), "a hub whose name goes on is another");
    assert!(grant.covers_hub(&hub("Eh1")) && !grant.covers_hub(&hub("eh2")));
    assert!(!grant.is_expired(EXPIRY), "clocks differ, and some clients renew late");
    assert!(grant.is_expired(EXPIRY + EXPIRY_GRACE));
    let everywhere = sign("sb://localhost/", "send", &Key::new("one"), EXPIRY);
    for (audience, reason) in [
        ("sb://localhost/eh2", InvalidToken::Signature), // it has another key of this name
        ("sb://localhost/", InvalidToken::UnknownKey),
        ("sb://localhost/eh1/b", InvalidToken::UnknownKey),
    ] {
        let refused = ring().authorize(&everywhere, audience, NOW).unwrap_err();
        assert_eq!(refused, reason, "{audience}");
    }
}

#[test]
fn a_key_of_the_namespace_counts_where_its_token_was_put() {
    let token = sign("sb://localhost/", "listen", &Key::new("three"), EXPIRY);
    let hub = |name: &str| name.parse::<HubName>().unwrap();
    let grant = ring().authorize(&token, "sb://localhost/eh1/consumergroups/$default", NOW).unwrap();
    assert!(grant.covers(&Address::parse("eh1/ConsumerGroups/$Default/Partitions/0").unwrap()));
    assert!(!grant.covers(&Address::parse("eh1/ConsumerGroups/other/Partitions/0").unwrap()));
    assert!(!grant.covers(&Address::parse("eh1").unwrap()));
    assert!(grant.covers_hub(&hub("eh1")) && !grant.covers_hub(&hub("eh2")));
    let everywhere = ring().authorize(&token, "sb://localhost/", NOW).unwrap();
    assert!(everywhere.covers(&Address::parse("eh2/Partitions/0").unwrap()));
    assert!(everywhere.covers_hub(&hub("eh2")));
}

#[test]
fn no_key_and_no_signature_shows_itself() {
    let key = Key::new("canary");
    let token = sign("sb://h/e", "n", &key, EXPIRY);
    let parsed = Token::parse(&token).unwrap();
    let shared = SharedKey { name: "n".into(), key: key.clone(), claims: Claims::SEND, hub: None };
    let shown = format!("{key:?} {parsed:?} {shared:?} {:?}", KeyRing::new([shared.clone()]));
    assert!(!shown.contains("canary"), "{shown}");
    let signature = token.split("sig=").nth(1).unwrap().split('%').next().unwrap();
    assert!(!shown.contains(signature), "{shown}");
    assert_eq!(key.reveal(), "canary");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_signed_is_verified_and_what_is_changed_is_not(
        secret in any::<String>(),
        name in "[a-zA-Z &=%é]{1,20}",
        index in any::<proptest::sample::Index>(),
        byte in 0x21u8..0x7f,
    ) {
        let ring = KeyRing::new([SharedKey {
            name: name.clone(), key: Key::new(&secret), claims: Claims::SEND, hub: None,
        }]);
        let token = sign("sb://localhost/hub", &name, &Key::new(&secret), EXPIRY);
        prop_assert!(ring.authorize(&token, "sb://localhost/hub", NOW).is_ok());
        let mut changed = token.clone().into_bytes();
        let at = index.index(changed.len());
        changed[at] = byte;
        let changed = String::from_utf8(changed).unwrap();
        if let Ok(grant) = ring.authorize(&changed, "sb://localhost/hub", NOW) {
            // The prefix in another case, or a character that was replaced by itself.
            prop_assert_eq!(grant.expires_at, EXPIRY);
        }
    }

    #[test]
    fn any_text_is_refused(text in any::<String>(), audience in any::<String>()) {
        let _ = ring().authorize(&text, &audience, NOW);
        let _ = ring().authorize(&format!("SharedAccessSignature sr={text}&sig={text}&se=1&skn={NAME}"), &audience, NOW);
    }
}
