//! Tests of authentication tokens: permissions, limits and expiry.

use ephor_wire::sas::EXPIRY_GRACE;

use super::*;

const MINUTE: Monotonic = Monotonic(60_000_000_000);
const NOW: Moment = Moment { wall: Timestamp(1_700_000_000_000), now: Monotonic(0) };
const LATER: Moment = Moment { wall: Timestamp(1_700_000_060_000), now: MINUTE };

/// The expiry of tokens that are accepted until [`LATER`].
const EXPIRY: Timestamp = Timestamp(LATER.wall.0 - EXPIRY_GRACE.as_millis() as i64);

fn access() -> Access {
    let key = |name: &str, key, claims, hub: Option<&str>| SharedKey {
        name: name.into(),
        key: Key::new(key),
        claims,
        hub: hub.map(|hub| hub.parse().unwrap()),
    };
    let policy = Policy::new(vec![
        key("send", "one", Claims::SEND, None),
        key("listen", "two", Claims::LISTEN, Some("homes")),
    ]);
    Access::new(Arc::new(policy), 2, SharedLimit::default())
}

fn namespace() -> Namespace {
    "localhost".parse().unwrap()
}

fn put(access: &mut Access, name: &str, key: &str, audience: &str) -> Result<(), Refusal> {
    let token = sign("sb://localhost/", name, &Key::new(key), EXPIRY);
    let token = PutToken { audience, kind: TokenKind::Sas, token: &token, expires_at: None };
    Ok(access.put(&token, NOW, |_| Ok(()))?)
}

#[test]
fn tokens_of_all_connections_have_one_limit_and_renewals_are_taken() {
    let total = SharedLimit::new(1);
    let limited = || Access { total: total.clone(), ..access() };
    let (mut one, mut other) = (limited(), limited());
    put(&mut one, "send", "one", "sb://localhost/homes").unwrap();
    let refusal = put(&mut other, "send", "one", "sb://localhost/homes").unwrap_err();
    assert_eq!(refusal.condition, Condition::ResourceLimitExceeded);
    assert!(refusal.text.contains("the 1 tokens that the server allows"), "{refusal}");
    assert!(one.is_authenticated(NOW) && !other.is_authenticated(NOW));
    put(&mut one, "send", "one", "sb://localhost/homes").unwrap();
    assert_eq!(total.used(), 1);
    // An expired token is remembered for a while, and then makes room.
    one.forget_expired(LATER);
    assert!(put(&mut other, "send", "one", "sb://localhost/homes").is_err());
    one.forget_expired(Moment { now: LATER.now + KEPT_WHEN_EXPIRED, ..LATER });
    put(&mut other, "send", "one", "sb://localhost/homes").unwrap();
    drop(other);
    assert_eq!(total.used(), 0);
}

#[test]
fn a_token_permits_what_its_key_does_until_it_runs_out() {
    let mut access = access();
    let hub = Address::parse("homes").unwrap();
    let check =
        |access: &Access, claims, now| access.check(claims, &hub, GrantRef::default(), &namespace(), now);
    assert!(!access.is_authenticated(NOW));
    assert!(check(&access, Claims::SEND, NOW).is_err());
    put(&mut access, "send", "one", "sb://localhost/homes").unwrap();
    assert!(access.is_authenticated(NOW) && !access.is_authenticated(LATER));
    assert_eq!(check(&access, Claims::SEND, NOW), Ok(GrantRef(Some(1))));
    let refusal = check(&access, Claims::LISTEN, NOW).unwrap_err();
    assert!(refusal.text.starts_with("Unauthorized access. 'Listen' claim(s) are required"), "{refusal}");
    assert_eq!(access.next_expiry(NOW), Some(MINUTE));
    assert!(check(&access, Claims::SEND, LATER).unwrap_err().text.starts_with("ExpiredToken"));
    assert_eq!(access.next_expiry(LATER), None);
}

#[test]
fn a_token_lasts_as_long_as_it_was_good_for_however_the_wall_clock_is_set() {
    const YEARS: i64 = 10 * 365 * 86_400_000;
    let mut access = access();
    put(&mut access, "send", "one", "sb://localhost/homes").unwrap();
    let at = |off, seconds: u64| Moment {
        wall: Timestamp(NOW.wall.0 + seconds as i64 * 1_000 + off),
        now: Monotonic(seconds * 1_000_000_000),
    };
    assert!(access.is_authenticated(at(-YEARS, 59)));
    assert_eq!(access.next_expiry(at(-YEARS, 59)), Some(MINUTE));
    assert!(!access.is_authenticated(at(-YEARS, 60)), "set back, it lasts no longer");
    assert_eq!(access.next_expiry(at(-YEARS, 60)), None);
    assert!(!access.is_authenticated(at(YEARS, 1)), "set ahead, it is over");
    assert!(access.is_authenticated(at(0, 2)), "set right, it counts again");
    // A token that is put while the clock is behind is judged by that clock, and by the right one afterwards.
    access.grants.clear();
    let token = sign("sb://localhost/", "send", &Key::new("one"), EXPIRY);
    let audience = "sb://localhost/homes";
    let token = PutToken { audience, kind: TokenKind::Sas, token: &token, expires_at: None };
    access.put(&token, at(-YEARS, 3_600), |_| Ok(())).unwrap();
    assert!(access.is_authenticated(at(-YEARS, 3_601)) && !access.is_authenticated(at(0, 3_602)));
}

#[test]
fn tokens_are_bounded_and_a_newer_one_replaces_the_older() {
    let mut access = access();
    for _ in 0..3 {
        put(&mut access, "send", "one", "sb://localhost/a").unwrap();
        put(&mut access, "send", "one", "sb://localhost/b").unwrap();
    }
    let refusal = put(&mut access, "send", "one", "sb://localhost/c").unwrap_err();
    assert_eq!(refusal.condition, Condition::ResourceLimitExceeded);
}

#[test]
fn a_link_asks_the_grant_that_covered_it_before_and_then_the_others() {
    let mut access = access();
    let hub = Address::parse("homes").unwrap();
    put(&mut access, "send", "one", "sb://localhost/").unwrap();
    put(&mut access, "send", "one", "sb://localhost/homes").unwrap();
    let check = |access: &Access, before| {
        access.check(Claims::SEND, &hub, before, &namespace(), NOW).map_err(|refusal| refusal.condition)
    };
    let (first, second) = (GrantRef(Some(1)), GrantRef(Some(2)));
    assert_eq!(check(&access, GrantRef::default()), Ok(first));
    assert_eq!(check(&access, second), Ok(second));
    // A renewed grant keeps its number.
    put(&mut access, "send", "one", "sb://localhost/homes").unwrap();
    assert_eq!(check(&access, second), Ok(second));
    access.grants.get_mut(&2).unwrap().until = NOW.now;
    assert_eq!(check(&access, second), Ok(first));
    // A grant that permits less now is not used for what it permitted before.
    access.grants.get_mut(&1).unwrap().grant.claims = Claims::LISTEN;
    assert_eq!(check(&access, first), Err(Condition::UnauthorizedAccess));
    access.grants.remove(&2);
    assert_eq!(check(&access, second), Err(Condition::UnauthorizedAccess));
}

#[test]
fn plain_takes_the_name_and_the_key_and_nothing_else() {
    for (response, accepted) in [
        (&b"\0send\0one"[..], true),
        (b"somebody\0send\0one", true),
        (b"\0send\0two", false),
        (b"\0nobody\0one", false),
        (b"\0send\0one\0", false),
        (b"send", false),
        (b"", false),
        (b"\0\xff\0one", false),
    ] {
        let mut access = access();
        assert_eq!(access.plain(response), accepted);
        assert_eq!(access.is_authenticated(NOW), accepted);
    }
    let mut access = access();
    assert!(access.plain(b"\0listen\0two"));
    let at = |path| Address::parse(path).unwrap();
    let check = |path| access.check(Claims::LISTEN, &at(path), GrantRef::default(), &namespace(), NOW);
    assert!(check("homes/ConsumerGroups/$Default/Partitions/0").is_ok());
    assert!(check("others/ConsumerGroups/$Default/Partitions/0").is_err());
}

#[test]
fn a_hub_is_described_to_those_that_may_use_it_by_a_token_put_or_given() {
    let mut access = access();
    let hub: HubName = "homes".parse().unwrap();
    let token = sign("sb://localhost/homes", "listen", &Key::new("two"), EXPIRY);
    let mut describe = |token: Option<&str>| access.check_description(&hub, token, &namespace(), NOW);
    assert!(describe(None).unwrap_err().text.starts_with("Unauthorized access. 'Listen' claim(s)"));
    assert!(describe(Some("nonsense")).unwrap_err().text.starts_with("MalformedToken"));
    let wrong = sign("sb://localhost/homes", "listen", &Key::new("three"), EXPIRY);
    assert!(describe(Some(&wrong)).unwrap_err().text.starts_with("InvalidSignature"));
    assert!(describe(Some(&*token)).is_ok());
    // It authenticates the connection until it expires, and permits no link.
    assert!(access.is_authenticated(NOW) && !access.is_authenticated(LATER));
    assert_eq!(access.next_expiry(NOW), Some(MINUTE));
    let receiver = Address::parse("homes/ConsumerGroups/$Default/Partitions/0").unwrap();
    assert!(access.check(Claims::LISTEN, &receiver, GrantRef::default(), &namespace(), NOW).is_err());
    access.forget_expired(LATER);
    assert!(access.shown.is_none());
    let mut open = Access::new(Arc::new(Policy::new(Vec::new())), 1, SharedLimit::default());
    assert!(open.check_description(&hub, None, &namespace(), NOW).is_ok());
}

#[test]
fn whether_a_hub_exists_is_told_to_those_with_a_valid_token_only() {
    let mut access = access();
    let missing = |hub: &HubName| Err(texts::not_found(hub.as_str()));
    let mut put = |key, audience| {
        let token = sign("sb://localhost/", "send", &Key::new(key), EXPIRY);
        let token = PutToken { audience, kind: TokenKind::Sas, token: &token, expires_at: None };
        access.put(&token, NOW, missing).map_err(|reason| Refusal::from(reason).condition)
    };
    assert_eq!(put("one", "sb://localhost/nowhere"), Err(Condition::NotFound));
    assert_eq!(put("one", "sb://localhost/nowhere/Partitions/XYZ"), Err(Condition::NotFound));
    assert_eq!(put("wrong", "sb://localhost/nowhere"), Err(Condition::UnauthorizedAccess));
    assert_eq!(put("one", "sb://localhost/"), Ok(()));
    assert_eq!(access.grants.len(), 1, "nothing is kept of a token for nothing");
}
