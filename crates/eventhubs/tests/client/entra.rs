//! Tests of Entra ID tokens: the requested scope, the token that is put, its renewal, and failures.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::error::{Error, ErrorKind};
use azure_core::http::StatusCode;
use azure_core::time::OffsetDateTime;
use ephor_core::event::NewEvent;
use ephor_core::source::{EventSource, OpenError, SourceError};
use ephor_eventhubs::{EntraId, EventHubOptions, SendFailure, TokenKind};
use ephor_gateway::GatewayConfig;
use ephor_wire::condition::{Condition, Refusal};

use crate::common::scripted_hub::{Peer, Put, Script};
use crate::common::{TestHub, quick, request, within};

type Answer = dyn FnMut(usize) -> azure_core::Result<AccessToken> + Send;

/// A stub of Entra ID, scripted by the number of the request, which records the requested scopes.
struct Stub {
    answer: Mutex<Box<Answer>>,
    asked: Mutex<Vec<Vec<String>>>,
}

impl std::fmt::Debug for Stub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stub(canary-secret)")
    }
}

#[async_trait::async_trait]
impl TokenCredential for Stub {
    async fn get_token(
        &self,
        scopes: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let mut asked = self.asked.lock().unwrap();
        asked.push(scopes.iter().map(|scope| (*scope).to_owned()).collect());
        (self.answer.lock().unwrap())(asked.len() - 1)
    }
}

fn stub(answer: impl FnMut(usize) -> azure_core::Result<AccessToken> + Send + 'static) -> Arc<Stub> {
    Arc::new(Stub { answer: Mutex::new(Box::new(answer)), asked: Mutex::default() })
}

fn after(life: Duration) -> OffsetDateTime {
    OffsetDateTime::now_utc() + life
}

/// A token with this number and this life.
fn token(number: usize, life: Duration) -> azure_core::Result<AccessToken> {
    Ok(AccessToken::new(format!("canary-token-{number}"), after(life)))
}

fn refused(status: StatusCode) -> azure_core::Result<AccessToken> {
    let kind = ErrorKind::HttpResponse { status, error_code: None, raw_response: None };
    Err(Error::with_error(
        ErrorKind::Credential,
        Error::with_message(kind, "AADSTS7000215"),
        "invalid secret",
    ))
}

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_token_for_event_hubs_is_put_as_jwt_for_each_link() {
    let peer = Peer::start_tls(Script::default()).await;
    let credential = stub(|number| token(number, HOUR));
    let client = peer.builder(quick()).credential(EntraId::new(credential.clone())).build().unwrap();
    client.open(request("reader", None)).await.unwrap();
    client.producer().send(NewEvent::new("x")).await.unwrap();
    let put = |number: usize, path: &str| Put {
        audience: format!("sb://127.0.0.1/{path}"),
        kind: TokenKind::Jwt,
        text: format!("canary-token-{number}"),
    };
    let tokens = peer.seen(|seen| seen.tokens.clone());
    // One of `$management` in between: a receiver asks which log it reads.
    assert_eq!(tokens, [put(0, "homes/ConsumerGroups/$Default/Partitions/0"), put(2, "homes")]);
    let scope = vec!["https://eventhubs.azure.net/.default".to_owned()];
    assert_eq!(*credential.asked.lock().unwrap(), vec![scope; 3]);
}

#[tokio::test]
async fn tokens_are_renewed_while_a_link_lives_also_if_the_credential_keeps_the_old_one_for_long() {
    let peer = Peer::start_tls(Script::default()).await;
    // The same token a second time, for the link and for `$management`: a credential may cache it as long as it
    // likes.
    let first = token(0, Duration::from_secs(2)).unwrap();
    let credential = stub(move |number| match number {
        0..4 => Ok(first.clone()),
        _ => token(number, HOUR),
    });
    let client = peer.builder(quick()).credential(EntraId::new(credential)).build().unwrap();
    let _receiver = client.open(request("reader", None)).await.unwrap();
    within(20, peer.until(|seen| seen.tokens.len() == 3)).await;
    let texts = peer.seen(|seen| seen.tokens.iter().map(|put| put.text.clone()).collect::<Vec<_>>());
    assert_eq!(texts[..2], ["canary-token-0", "canary-token-0"]);
    assert_ne!(texts[2], "canary-token-0");
    assert_eq!(peer.seen(|seen| (seen.connections, seen.detached)), (1, 0));
}

#[tokio::test]
async fn what_entra_id_refuses_is_returned_at_once_and_what_may_pass_is_retried() {
    let peer = Peer::start_tls(Script::default()).await;
    let credential = stub(|_| refused(StatusCode::Unauthorized));
    let client = peer.builder(quick()).credential(EntraId::new(credential.clone())).build().unwrap();
    let error = within(20, client.open(request("reader", None))).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Source(SourceError::Unauthorized { .. })), "{error}");
    assert!(error.to_string().contains("invalid secret"), "{error}");
    assert_eq!(credential.asked.lock().unwrap().len(), 1, "asking again changes nothing");
    let error = within(20, client.producer().send(NewEvent::new("x"))).await.unwrap_err();
    assert!(matches!(error.failure, SendFailure::Refused(_)), "{error}");

    let credential = stub(|number| match number {
        0 => refused(StatusCode::ServiceUnavailable),
        1 => Err(Error::with_message(ErrorKind::Io, "no route")),
        _ => token(number, HOUR),
    });
    let client = peer.builder(quick()).credential(EntraId::new(credential.clone())).build().unwrap();
    within(20, client.open(request("reader", None))).await.unwrap();
    // Three for the link, and one for `$management`.
    assert_eq!(credential.asked.lock().unwrap().len(), 4);

    let credential = stub(|_| Err(Error::with_message(ErrorKind::Io, "no route")));
    let few = EventHubOptions { attempts: 3, ..quick() };
    let client = peer.builder(few).credential(EntraId::new(credential.clone())).build().unwrap();
    let error = within(20, client.open(request("reader", None))).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Source(SourceError::Unavailable(_))), "{error}");
    assert!(error.to_string().contains("no route"), "{error}");
    assert_eq!(credential.asked.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_hub_that_does_not_let_the_owner_of_a_token_in_is_believed_and_no_secret_is_shown() {
    let text = "InvalidAudience: The authorization header contains a token with a wrong audience.";
    let refusal = Refusal::new(Condition::UnauthorizedAccess, text);
    let script = Script { token: Box::new(move |_| Some(Err(refusal.clone()))), ..Script::default() };
    let peer = Peer::start_tls(script).await;
    let credential = EntraId::new(stub(|number| token(number, HOUR)));
    let builder = peer.builder(quick()).credential(credential.clone());
    let client = builder.clone().build().unwrap();
    let error = within(20, client.open(request("reader", None))).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Source(SourceError::Unauthorized { .. })), "{error}");
    assert!(error.to_string().contains("InvalidAudience"), "{error}");
    let shown = format!("{error:?} {error} {credential:?} {builder:?} {client:?}");
    assert!(!shown.contains("canary"), "{shown}");
}

#[tokio::test]
async fn a_hub_of_our_own_knows_keys_only_and_says_so() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve_as(GatewayConfig::default(), "127.0.0.1:0", true).await;
    let credential = stub(|number| token(number, HOUR));
    let client = served.builder().credential(EntraId::new(credential)).build().unwrap();
    let error = within(20, client.hub_properties()).await.unwrap_err();
    assert!(matches!(error, SourceError::Unauthorized { .. }), "{error}");
    assert!(error.to_string().contains("Entra ID") && error.to_string().contains("key"), "{error}");
    assert!(!error.to_string().contains("canary"), "{error}");
}

#[tokio::test]
async fn a_token_of_entra_id_never_goes_out_without_tls() {
    let peer = Peer::start(Script::default()).await;
    let credential = EntraId::new(stub(|number| token(number, HOUR)));
    let client = peer.builder(quick()).credential(credential).allow_insecure().build().unwrap();
    let error = within(20, client.open(request("reader", None))).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Source(SourceError::Unauthorized { .. })), "{error}");
    assert!(error.to_string().contains("never sent without TLS"), "{error}");
    let error = within(20, client.producer().send(NewEvent::new("x"))).await.unwrap_err();
    assert!(error.to_string().contains("never sent without TLS"), "{error}");
    assert_eq!(peer.seen(|seen| seen.tokens.clone()), []);
}
