//! Fuzzes SAS tokens, connection strings and lists of keys: no secret is shown, and no forged token is
//! accepted.

use ephor_core::time::Timestamp;
use ephor_gateway::{parse_key, parse_keys};
use ephor_wire::connection_string::{ConnectionString, Credential, is_loopback};
use ephor_wire::sas::{Claims, Key, KeyRing, SharedKey, Token, sign};

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const LATER: Timestamp = Timestamp(1_700_000_060_000);
/// Shorter secrets may occur in any text by chance.
const LONG_ENOUGH: usize = 8;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    token(text);
    connection_string(text);
    keys(text);
    signed(text);
}

/// A key that has never signed anything authorizes no token.
fn token(text: &str) {
    let Ok(token) = Token::parse(text) else { return };
    let key = Key::new("a key that is in no corpus, and signs nothing here");
    assert!(!token.is_signed_by(&key));
    let shared = SharedKey { name: token.key_name().to_owned(), key, claims: Claims::MANAGE, hub: None };
    let ring = KeyRing::new([shared]);
    assert!(ring.authorize(text, "", NOW).is_err());
    let _ = (token.scope(), token.expires_at());
    if let Some(signature) = text.split('&').find_map(|field| field.strip_prefix("sig="))
        && signature.len() > LONG_ENOUGH
        && text.matches(signature).count() == 1
    {
        assert!(!format!("{token:?}").contains(signature), "a signature is shown");
    }
}

/// A connection string can be written and parsed again, with its secret and without it.
fn connection_string(text: &str) {
    let parsed = match ConnectionString::parse(text) {
        Ok(parsed) => parsed,
        Err(refused) => return assert!(refused.to_string().len() < 512, "{refused}"),
    };
    let again = |text: &str| ConnectionString::parse(text).expect("a written value can be read");
    let (whole, shown) = (parsed.reveal(), parsed.to_string());
    assert_eq!(again(&whole).reveal(), whole);
    assert_eq!(again(&shown).to_string(), shown);
    assert_eq!(again(&whole).port(), parsed.port());
    assert_eq!((again(&whole).tls(), again(&whole).hub), (parsed.tls(), parsed.hub.clone()));
    // The decision about plaintext is the same before and after, in any case.
    let host = parsed.host().as_str();
    assert_eq!(is_loopback(again(&whole).host().as_str()), is_loopback(host));
    assert_eq!(is_loopback(&host.to_ascii_uppercase()), is_loopback(host));
    if let Some(Credential::Key { key, .. }) = &parsed.credential
        && key.reveal().len() > LONG_ENOUGH
        && text.matches(key.reveal()).count() == 1
    {
        assert!(!format!("{parsed:?} {shown}").contains(key.reveal()), "a key is shown");
    }
}

/// Parsed keys have claims and can be written again; an error does not repeat its input.
fn keys(text: &str) {
    if let Ok(key) = parse_key(text) {
        assert_eq!(key.reveal(), text.trim());
    }
    let keys = match parse_keys(text) {
        Ok(keys) => keys,
        Err(refused) => return assert!(refused.to_string().len() < 256, "{refused}"),
    };
    assert!(!keys.is_empty());
    let mut written = String::new();
    for key in &keys {
        assert!(key.claims != Claims::NONE && parse_key(key.key.reveal()).is_ok());
        let shown = format!("{key:?}");
        let secret = key.key.reveal();
        assert!(text.matches(secret).count() > 1 || !shown.contains(secret), "a key is shown");
        let claims = key.claims.to_string().replace(", ", ",");
        let hub = key.hub.as_ref().map(ToString::to_string).unwrap_or_default();
        written += &format!("{} {claims} {secret} {hub}\n", key.name);
    }
    let again = parse_keys(&written).expect("a written value can be read");
    let told = |keys: &[SharedKey]| -> Vec<_> {
        keys.iter()
            .map(|key| (key.name.clone(), key.key.reveal().to_owned(), key.claims, key.hub.clone()))
            .collect()
    };
    assert_eq!(told(&again), told(&keys));
}

/// Any key name can be signed with, and only the whole signature of the right key is valid.
fn signed(name: &str) {
    let key = Key::new("key");
    let text = sign("sb://localhost/", name, &key, LATER);
    let Ok(token) = Token::parse(&text) else {
        return assert!(text.len() > ephor_wire::sas::MAX_TOKEN_LENGTH, "{text}");
    };
    assert_eq!((token.key_name(), token.expires_at()), (name, LATER));
    assert!(token.is_signed_by(&key) && !token.is_signed_by(&Key::new("another")));
    let (before, signature) = text.split_once("&sig=").expect("a signature");
    let (signature, behind) = signature.split_once('&').expect("more fields");
    for length in 1..signature.len() {
        let cut = format!("{before}&sig={}&{behind}", &signature[..length]);
        assert!(
            !Token::parse(&cut).is_ok_and(|token| token.is_signed_by(&key)),
            "a truncated signature is refused"
        );
    }
}
