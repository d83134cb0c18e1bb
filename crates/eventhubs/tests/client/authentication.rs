//! Tests of authentication: keys, tokens and TLS, and the errors if it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_core::source::{EventSource, OpenError, SourceError};
use ephor_eventhubs::{ConnectError, Credential, EventHub, SendFailure, SharedKey, Token, TokenError};
use ephor_gateway::{Claims, GatewayConfig, Key, development_key};
use tokio::io::AsyncWriteExt;

use crate::common::{TestHub, quick, receive, request, texts, within};

fn listen_only() -> GatewayConfig {
    let key = ephor_gateway::SharedKey {
        name: "listener".into(),
        key: Key::new("canary-key"),
        claims: Claims::LISTEN,
        hub: None,
    };
    GatewayConfig { keys: vec![key], ..GatewayConfig::default() }
}

#[tokio::test]
async fn a_wrong_key_a_missing_claim_and_an_unknown_hub_each_say_so_and_never_the_key() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve_as(listen_only(), "127.0.0.1:0", false).await;
    let key = |name: &str, key: &str| SharedKey::new(name, Key::new(key));
    let client = |credential: SharedKey| served.builder().credential(credential).build().unwrap();

    let stranger = client(key("listener", "canary-other"));
    let error = stranger.hub_properties().await.unwrap_err();
    assert!(matches!(error, SourceError::Unauthorized { .. }), "{error}");
    let error = stranger.open(request("reader", None)).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Source(SourceError::Unauthorized { .. })), "{error}");
    assert!(!format!("{error:?} {error}").contains("canary"));

    let listener = client(key("listener", "canary-key"));
    listener.hub_properties().await.unwrap();
    listener.open(request("reader", None)).await.unwrap();
    let error = listener.producer().send(NewEvent::new("x")).await.unwrap_err();
    assert!(matches!(error.failure, SendFailure::Refused(_)), "{error}");
    assert!(error.to_string().contains("Send") && !error.to_string().contains("canary"), "{error}");

    let string = format!(
        "Endpoint=amqp://127.0.0.1:{};SharedAccessKeyName=listener;SharedAccessKey=canary-key;EntityPath=nobody",
        served.address.port()
    );
    let lost = EventHub::from_connection_string(&string).unwrap();
    let error = lost.hub_properties().await.unwrap_err();
    assert!(matches!(error, SourceError::NotFound { .. }), "{error}");
    let error = lost.open(request("reader", None)).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Source(SourceError::NotFound { .. })), "{error}");
}

#[tokio::test]
async fn connecting_reports_at_once_whether_address_key_and_hub_are_right() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve_as(listen_only(), "127.0.0.1:0", false).await;
    let port = served.address.port();
    let string = |port: u16, key: &str, hub: &str| {
        format!(
            "Endpoint=amqp://127.0.0.1:{port};SharedAccessKeyName=listener;SharedAccessKey={key};EntityPath={hub}"
        )
    };
    let connect = async |text: String| EventHub::builder(&text).options(quick()).connect().await;
    let hub = connect(string(port, "canary-key", "homes")).await.unwrap();
    hub.open(request("reader", None)).await.unwrap();

    let cause = |error: ConnectError| match error {
        ConnectError::Hub { endpoint, error } => {
            assert!(endpoint.starts_with("127.0.0.1:"), "{endpoint}");
            error
        }
        other => panic!("{other}"),
    };
    let error = cause(connect(string(port, "canary-other", "homes")).await.unwrap_err());
    assert!(matches!(error, SourceError::Unauthorized { .. }), "{error}");
    let error = cause(connect(string(port, "canary-key", "nobody")).await.unwrap_err());
    assert!(matches!(error, SourceError::NotFound { .. }), "{error}");
    // Nobody listens on a port that was just given back.
    let unused = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let error = connect(string(unused, "canary-key", "homes")).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("127.0.0.1:{unused}/homes: ")), "{error}");
    assert!(matches!(cause(error), SourceError::Unavailable(_)));
    let error = EventHub::connect("Endpoint=sb://localhost;EntityPath=homes").await.unwrap_err();
    assert!(matches!(error, ConnectError::Options(_)), "{error}");
}

/// Makes short-lived tokens, and counts those for links that carry events.
#[derive(Clone, Debug)]
struct ShortLived {
    key: SharedKey,
    made: Arc<AtomicUsize>,
}

impl Credential for ShortLived {
    fn token<'a>(&'a self, audience: &'a str) -> BoxFuture<'a, Result<Token, TokenError>> {
        self.made.fetch_add(usize::from(!audience.ends_with("$management")), Ordering::Relaxed);
        self.key.token(audience)
    }
}

#[tokio::test]
async fn tokens_are_renewed_while_a_link_lives_and_not_after_it() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve().await;
    let development = development_key();
    let key = SharedKey::new(development.name, development.key).with_life(Duration::from_secs(2));
    let made = Arc::new(AtomicUsize::new(0));
    let credential = ShortLived { key, made: made.clone() };
    let client = served.builder().credential(credential).build().unwrap();
    let mut receiver = client.open(request("reader", Some(1))).await.unwrap();
    let until = |count| {
        let made = made.clone();
        async move {
            while made.load(Ordering::Relaxed) < count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    // Far beyond the life of the first token.
    within(60, until(4)).await;
    test_hub.hub.producer().send_to(PartitionId(0), NewEvent::new("still here")).await.unwrap();
    assert_eq!(texts(&within(20, receive(&mut receiver, 1)).await), ["still here"]);
    receiver.close().await;
    let after = made.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(made.load(Ordering::Relaxed), after, "what nobody needs is not renewed");
}

/// Reports a life of hours for its tokens, as on a machine that was suspended; all but the first are valid.
#[derive(Debug)]
struct Overtaken(SharedKey, AtomicUsize);

impl Credential for Overtaken {
    fn token<'a>(&'a self, audience: &'a str) -> BoxFuture<'a, Result<Token, TokenError>> {
        Box::pin(async move {
            let life = match self.1.fetch_add(1, Ordering::Relaxed) {
                0 => Duration::from_secs(1),
                _ => Duration::from_secs(3_600),
            };
            let token = self.0.clone().with_life(life).token(audience).await?;
            Ok(Token { expires_at: token.expires_at + Duration::from_secs(7_200), ..token })
        })
    }
}

#[tokio::test]
async fn a_request_that_is_refused_for_an_expired_token_goes_out_again_with_a_new_one() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve().await;
    let key = SharedKey::new(development_key().name, development_key().key);
    let credential = Overtaken(key, AtomicUsize::new(0));
    let options = ephor_eventhubs::EventHubOptions { attempts: 2, ..quick() };
    let client = served.builder().credential(credential).options(options).build().unwrap();
    client.hub_properties().await.unwrap();
    // The hub's clock counts whole seconds.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    within(20, client.hub_properties()).await.unwrap();
}

/// Fails every other time, as a remote service might.
#[derive(Debug)]
struct Flaky(SharedKey, AtomicUsize);

impl Credential for Flaky {
    fn token<'a>(&'a self, audience: &'a str) -> BoxFuture<'a, Result<Token, TokenError>> {
        match self.1.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => Box::pin(async { Err(TokenError::Unavailable("the service of tokens is away".into())) }),
            _ => self.0.token(audience),
        }
    }
}

#[tokio::test]
async fn a_credential_that_fails_is_asked_again_and_its_error_is_returned() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve().await;
    let key = || SharedKey::new(development_key().name, development_key().key);
    let flaky = served.builder().credential(Flaky(key(), AtomicUsize::new(0))).build().unwrap();
    flaky.open(request("reader", None)).await.unwrap();
    let once = ephor_eventhubs::EventHubOptions { attempts: 1, ..quick() };
    let client =
        served.builder().credential(Flaky(key(), AtomicUsize::new(0))).options(once).build().unwrap();
    let error = client.open(request("reader", None)).await.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("the service of tokens is away"), "{error}");
}

#[tokio::test]
async fn a_client_without_extra_roots_does_not_trust_a_self_signed_certificate() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve_as(GatewayConfig::default(), "127.0.0.1:0", true).await;
    served.client().hub_properties().await.unwrap();
    let string = format!(
        "Endpoint=sb://localhost:{};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;\
         EntityPath=homes",
        served.address.port()
    );
    let once = ephor_eventhubs::EventHubOptions { attempts: 1, ..quick() };
    let builder = EventHub::builder(&string).address("127.0.0.1", served.address.port()).options(once);
    let error = builder.build().unwrap().hub_properties().await.unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
}

#[tokio::test]
async fn an_error_of_tls_where_the_hub_has_none_or_the_reverse_says_what_to_write() {
    let test_hub = TestHub::new(1);
    for tls_there in [false, true] {
        let served = test_hub.serve_as(GatewayConfig::default(), "127.0.0.1:0", tls_there).await;
        let port = served.address.port();
        let (emulator, words) = match tls_there {
            true => {
                (";UseDevelopmentEmulator=true", "the port speaks TLS; leave UseDevelopmentEmulator=true")
            }
            false => ("", "the port does not speak TLS; if it is that of plain AMQP"),
        };
        let string = format!(
            "Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=n;SharedAccessKey=canary-key;EntityPath=homes{emulator}"
        );
        let words = format!("cannot connect to 127.0.0.1:{port}: {words}");
        // The host treats it as permanent, and so does the client: it tries twice.
        let patient = ephor_eventhubs::EventHubOptions { attempts: 1_000_000, ..quick() };
        let client = EventHub::builder(&string).options(patient).build().unwrap();
        let error = within(20, client.hub_properties()).await.unwrap_err();
        assert!(matches!(error, SourceError::Misconfigured { .. }), "{error:?}");
        assert!(error.to_string().starts_with(&words), "{error}");
        let error = within(20, client.open(request("reader", None))).await.map(|_| ()).unwrap_err();
        assert!(matches!(error, OpenError::Source(SourceError::Misconfigured { .. })), "{error:?}");
        let error = within(20, client.producer().send(NewEvent::new("x"))).await.unwrap_err();
        assert!(matches!(error.failure, SendFailure::Misconfigured(_)), "{error:?}");
        assert!(error.to_string().starts_with(&words), "{error}");
    }
}

#[tokio::test]
async fn one_protocol_mismatch_is_not_taken_for_a_wrong_setting() {
    let test_hub = TestHub::new(1);
    for tls in [true, false] {
        let served = test_hub.serve_as(GatewayConfig::default(), "127.0.0.1:0", tls).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, hub) = (listener.local_addr().unwrap(), served.address);
        // A proxy answers for the hub, once: in plain text if TLS is expected, or the reverse.
        let between = tokio::spawn(async move {
            for number in 0.. {
                let (mut client, _) = listener.accept().await.unwrap();
                if number == 0 {
                    let unexpected: &[u8] =
                        if tls { b"HTTP/1.1 502 Bad Gateway\r\n\r\n" } else { &[21, 3, 3, 0, 2, 2, 70] };
                    client.write_all(unexpected).await.unwrap();
                    client.shutdown().await.ok();
                    continue;
                }
                tokio::spawn(async move {
                    let mut hub = tokio::net::TcpStream::connect(hub).await.unwrap();
                    tokio::io::copy_bidirectional(&mut client, &mut hub).await.ok();
                });
            }
        });
        let client = served.builder_at(address).build().unwrap();
        within(20, client.hub_properties()).await.unwrap();
        between.abort();
    }
}
