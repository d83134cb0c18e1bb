//! Tests of authentication: keys, tokens and TLS, and which addresses may be served without them.

use std::sync::Arc;
use std::time::Duration;

use ephor_amqp::connection::{ClientSasl, Closed};
use ephor_amqp::performative::{Attach, Secret};
use ephor_core::event::NewEvent;
use ephor_core::time::Timestamp;
use ephor_gateway::{Claims, Gateway, GatewayConfig, Key, ServeError, SharedKey, Tls};
use ephor_hub::{LocalNamespace, NamespaceConfig};
use ephor_wire::management::Query;
use ephor_wire::sas::sign;
use ephor_wire::selector::Start;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls;

use crate::client::{Client, encoded, receiver, token};
use crate::server::{HUB, JumpingClock, Server, within};

const FIRST: &str = "homes/ConsumerGroups/$Default/Partitions/0";
const HOUR: Duration = Duration::from_secs(3600);

fn key(name: &str, key: &str, claims: Claims, hub: Option<&str>) -> SharedKey {
    let hub = hub.map(|hub| hub.parse().unwrap());
    SharedKey { name: name.into(), key: Key::new(key), claims, hub }
}

fn keys() -> Vec<SharedKey> {
    vec![key("send", "one", Claims::SEND, None), key("listen", "two", Claims::LISTEN, Some(HUB))]
}

async fn guarded() -> Server {
    Server::with(GatewayConfig { keys: keys(), ..GatewayConfig::default() }).await
}

#[tokio::test]
async fn without_a_token_nothing_is_permitted() {
    let server = guarded().await;
    let mut client = Client::unauthenticated(server.address).await;
    for address in [HUB, "homes/Partitions/0", "nowhere"] {
        let error = client.attach(Attach::sender("s", address)).await.unwrap_err();
        assert_eq!(error.condition, "amqp:unauthorized-access");
        assert!(
            error.description().starts_with("Unauthorized access. 'Send' claim(s) are required"),
            "{error}"
        );
    }
    let error = client.attach(receiver(FIRST, &Start::Earliest, None, &[])).await.unwrap_err();
    assert!(
        error.description().starts_with("Unauthorized access. 'Listen' claim(s) are required"),
        "{error}"
    );
    let query = Query::Hub { hub: HUB.parse().unwrap() };
    assert_eq!(client.describe("$management", &query).await.0, 401);
}

#[tokio::test]
async fn a_token_permits_what_its_key_does() {
    let server = guarded().await;
    let mut client = Client::unauthenticated(server.address).await;
    assert_eq!(client.put_token("sb://localhost/homes", &token("send", "one", HOUR)).await.0, 202);
    client.sender(HUB).await;
    client.attach(receiver(FIRST, &Start::Earliest, None, &[])).await.unwrap_err();
    let query = Query::Hub { hub: HUB.parse().unwrap() };
    assert_eq!(client.describe("$management", &query).await.0, 200);
    let audience = "amqps://localhost:5671/homes/ConsumerGroups/$Default";
    assert_eq!(client.put_token(audience, &token("listen", "two", HOUR)).await.0, 202);
    client.attach(receiver(FIRST, &Start::Earliest, None, &[])).await.unwrap();
}

#[tokio::test]
async fn an_invalid_token_is_refused_with_the_words_of_the_service() {
    let server = guarded().await;
    let mut client = Client::unauthenticated(server.address).await;
    let expired = sign("sb://localhost/", "send", &Key::new("one"), Timestamp(0));
    for (token, text) in [
        (token("send", "wrong", HOUR), "InvalidSignature: The token has an invalid signature."),
        (token("nobody", "one", HOUR), "InvalidSignature: The token has an invalid signature."),
        (expired, "ExpiredToken: The token is expired."),
        ("nonsense".to_owned(), "MalformedToken"),
    ] {
        let (status, said) = client.put_token("sb://localhost/homes", &token).await;
        assert_eq!(status, 401);
        assert!(said.starts_with(text), "{said}");
    }
}

#[tokio::test]
async fn a_link_ends_with_its_token_unless_a_new_one_was_put() {
    let clock = Arc::new(JumpingClock::default());
    let config = GatewayConfig { keys: keys(), ..GatewayConfig::default() };
    let server = Server::on(config, clock.clone()).await;
    let (mut one, mut other) =
        (Client::unauthenticated(server.address).await, Client::unauthenticated(server.address).await);
    let audience = "sb://localhost/homes";
    assert_eq!(one.put_token(audience, &token("send", "one", HOUR)).await.0, 202);
    assert_eq!(other.put_token(audience, &token("send", "one", HOUR)).await.0, 202);
    let (sender, renewed) = (one.sender(HUB).await, other.sender(HUB).await);
    assert_eq!(other.put_token(audience, &token("send", "one", 3 * HOUR)).await.0, 202);
    // Some clients renew a token a moment after it expired.
    clock.forward(HOUR + Duration::from_secs(15));
    let outcome = one.send(sender, 0, &encoded(&NewEvent::new("late"))).await;
    assert_eq!(outcome, ephor_amqp::performative::Outcome::Accepted);
    assert!(one.attach(Attach::sender("another", HUB)).await.is_ok());
    clock.forward(HOUR);
    let error = one.detached(sender).await;
    assert_eq!(error.condition, "amqp:unauthorized-access");
    assert!(error.description().starts_with("ExpiredToken: The token is expired."), "{error}");
    let outcome = other.send(renewed, 0, &encoded(&NewEvent::new("x"))).await;
    assert_eq!(outcome, ephor_amqp::performative::Outcome::Accepted);
    let error = one.attach(Attach::sender("again", HUB)).await.unwrap_err();
    assert!(error.description().starts_with("ExpiredToken"), "{error}");
}

#[tokio::test]
async fn a_clock_that_jumps_by_years_and_back_ends_links_and_they_come_again() {
    const YEARS: Duration = Duration::from_secs(10 * 365 * 86_400);
    let clock = Arc::new(JumpingClock::default());
    let config = GatewayConfig { keys: keys(), ..GatewayConfig::default() };
    let server = Server::on(config, clock.clone()).await;
    let audience = "sb://localhost/homes";
    let mut client = Client::unauthenticated(server.address).await;
    assert_eq!(client.put_token(audience, &token("send", "one", HOUR)).await.0, 202);
    let sender = client.sender(HUB).await;
    clock.forward(YEARS);
    assert!(client.detached(sender).await.description().starts_with("ExpiredToken"));
    clock.back(YEARS);
    assert_eq!(client.put_token(audience, &token("send", "one", HOUR)).await.0, 202);
    let sender = client.sender(HUB).await;
    clock.back(YEARS);
    // Existing links go on, and new connections are served.
    let outcome = client.send(sender, 0, &encoded(&NewEvent::new("x"))).await;
    assert_eq!(outcome, ephor_amqp::performative::Outcome::Accepted);
    let mut other = Client::unauthenticated(server.address).await;
    assert_eq!(other.put_token(audience, &token("send", "one", HOUR)).await.0, 202);
    other.sender(HUB).await;
    clock.forward(YEARS);
    let outcome = client.send(sender, 1, &encoded(&NewEvent::new("x"))).await;
    assert_eq!(outcome, ephor_amqp::performative::Outcome::Accepted);
}

#[tokio::test]
async fn a_name_and_a_key_are_enough_for_clients_that_know_no_tokens() {
    let server = guarded().await;
    let plain =
        |user: &str, password: &str| ClientSasl::Plain { user: user.into(), password: Secret::new(password) };
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut client = Client::over(stream, plain("send", "one")).await.unwrap();
    let sender = client.sender(HUB).await;
    client.send(sender, 0, &encoded(&NewEvent::new("x"))).await;
    client.attach(receiver(FIRST, &Start::Earliest, None, &[])).await.unwrap_err();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let Err(closed) = Client::over(stream, plain("send", "two")).await else { panic!("let in") };
    assert!(matches!(closed, Closed::Failed(_)), "{closed:?}");
}

#[tokio::test]
async fn without_keys_everything_is_permitted() {
    let server = Server::with(GatewayConfig { keys: Vec::new(), ..GatewayConfig::default() }).await;
    let mut client = Client::unauthenticated(server.address).await;
    client.sender(HUB).await;
    assert_eq!(client.put_token("sb://localhost/homes", "whatever").await.0, 202);
}

#[tokio::test]
async fn an_address_that_others_can_reach_is_served_with_tls_and_keys_only() {
    let namespace = Arc::new(LocalNamespace::in_memory(NamespaceConfig::default()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (tls, _) = Tls::for_development(folder.path(), &["localhost"]).unwrap();
    let own = vec![key("send", "one", Claims::SEND, None)];
    for (keys, with_tls, allow_insecure, served) in [
        (GatewayConfig::default().keys, false, false, false),
        (GatewayConfig::default().keys, true, false, false),
        (Vec::new(), true, false, false),
        (own.clone(), false, false, false),
        (own, true, false, true),
        (GatewayConfig::default().keys, false, true, true),
    ] {
        let config = GatewayConfig { keys, allow_insecure, ..GatewayConfig::default() };
        let gateway = Gateway::new(namespace.clone(), config).unwrap();
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let ended = match with_tls {
            true => gateway.serve_tls(listener, &tls, std::future::ready(())).await,
            false => gateway.serve(listener, std::future::ready(())).await,
        };
        assert_eq!(ended.is_ok(), served, "{ended:?}");
        assert!(matches!(ended, Ok(()) | Err(ServeError::Insecure { .. })));
    }
}

#[tokio::test]
async fn the_certificate_for_development_is_made_once_and_can_be_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["localhost", "127.0.0.1"];
    let (_, path) = Tls::for_development(folder.path(), &names).unwrap();
    let made = std::fs::read(&path).unwrap();
    let (tls, path) = Tls::for_development(folder.path(), &names).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), made);
    let namespace = Arc::new(LocalNamespace::in_memory(NamespaceConfig::default()).unwrap());
    namespace.create_hub(ephor_hub::HubConfig::new(HUB, 1).unwrap()).unwrap();
    let gateway = Gateway::new(namespace, GatewayConfig::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = async {
        use rustls::pki_types::pem::PemObject;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(rustls::pki_types::CertificateDer::from_pem_file(&path).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(address).await.unwrap();
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let mut client = Client::over(stream, ClientSasl::Anonymous).await.unwrap();
        assert_eq!(client.put_development_token().await.0, 202);
        let sender = client.sender(HUB).await;
        client.send(sender, 0, &encoded(&NewEvent::new(vec![7; 300_000]))).await
    };
    let mut outcome = None;
    let shutdown = async { outcome = Some(within(client).await) };
    Box::pin(gateway.serve_tls(listener, &tls, shutdown)).await.unwrap();
    assert_eq!(outcome, Some(ephor_amqp::performative::Outcome::Accepted));
}
