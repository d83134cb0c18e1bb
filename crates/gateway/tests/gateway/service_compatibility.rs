//! Tests that the gateway gives the same answers and errors as Azure Event Hubs: for tokens, invalid
//! partitions, links and `$management`.

use std::time::Duration;

use ephor_amqp::Encoded;
use ephor_amqp::connection::Event;
use ephor_amqp::performative::{Attach, Error, Outcome, ReceiverSettles, SenderSettles};
use ephor_core::event::NewEvent;
use ephor_core::ids::{HubName, PartitionId};
use ephor_wire::cbs::{PutToken, TokenKind};
use ephor_wire::management::{HubDescription, Query};
use ephor_wire::request_response::Response;
use ephor_wire::sas::{Key, sign};
use ephor_wire::selector::Start;

use crate::client::{Client, encoded, now, receiver, rejection, token};
use crate::server::{HUB, Server};

const HOUR: Duration = Duration::from_secs(3600);
const NAME: &str = "RootManageSharedAccessKey";
const KEY: &str = "SAS_KEY_VALUE";
const OUT_OF_RANGE: &str = "com.microsoft:argument-out-of-range";
const INVALID_SIGNATURE: &str = "InvalidSignature: The token has an invalid signature.";
const WRONG_PARTITION: &str = "The specified partition is invalid for an EventHub partition sender or receiver. It should be between 0 and 3.";

/// The status, the condition and the text of the answer to a token.
async fn put(client: &mut Client, audience: &str, token: &str) -> (i32, Option<String>, String) {
    let put = PutToken { audience, kind: TokenKind::Sas, token, expires_at: None };
    let (status, text, answer) = client.ask("$cbs", |id, into| put.write(id, "replies", into)).await;
    (status, Response::read(&answer).unwrap().condition.map(str::to_owned), text)
}

fn told(error: &Error) -> (&str, &str) {
    (&error.condition, error.description())
}

#[tokio::test]
async fn a_token_for_a_hub_that_does_not_exist_is_refused() {
    let server = Server::start().await;
    let mut client = Client::unauthenticated(server.address).await;
    let good = token(NAME, KEY, HOUR);
    for audience in ["sb://localhost/nowhere", "sb://localhost/nowhere/Partitions/0"] {
        let (status, condition, text) = put(&mut client, audience, &good).await;
        assert_eq!((status, condition.as_deref()), (404, Some("amqp:not-found")), "{text}");
        let expected = format!(
            "The messaging entity '{audience}' could not be found. To know more visit \
             https://aka.ms/sbResourceMgrExceptions.  TrackingId:"
        );
        assert!(text.starts_with(&expected) && text.contains(":nowhere, Timestamp:"), "{text}");
    }
    for audience in ["sb://localhost/", "sb://localhost/HOMES", "sb://localhost/homes/Partitions/99"] {
        assert_eq!(put(&mut client, audience, &good).await.0, 202, "{audience}");
    }
    // Whether a hub exists is nobody's business without a key.
    let forged = token(NAME, "forged", HOUR);
    let (status, condition, text) = put(&mut client, "sb://localhost/nowhere", &forged).await;
    assert_eq!((status, condition.as_deref()), (401, Some("com.microsoft:auth-failed")));
    assert_eq!(text, INVALID_SIGNATURE);
}

#[tokio::test]
async fn a_refused_token_names_its_request_only_if_no_key_has_its_name() {
    let server = Server::start().await;
    let mut client = Client::unauthenticated(server.address).await;
    for (name, key, named) in [(NAME, "forged", false), ("nobody", KEY, true)] {
        let (status, condition, text) =
            put(&mut client, "sb://localhost/homes", &token(name, key, HOUR)).await;
        assert_eq!((status, condition.as_deref()), (401, Some("com.microsoft:auth-failed")), "{name}");
        let tail = text.strip_prefix(INVALID_SIGNATURE).unwrap_or_else(|| panic!("{text}"));
        let parts = [" TrackingId:", ", SystemTracker:NoSystemTracker, Timestamp:"];
        assert_eq!((tail.is_empty(), parts.map(|part| tail.contains(part))), (!named, [named; 2]), "{text}");
    }
}

#[tokio::test]
async fn a_token_for_a_partition_that_no_hub_has_is_taken_and_the_link_says_what_is_wrong() {
    let server = Server::start().await;
    for id in ["XYZ", "-1", "-", "00", "+1", " 0", "4294967296", "99999999999"] {
        // A client that puts one token for each address.
        let mut client = Client::unauthenticated(server.address).await;
        let sender = format!("{HUB}/Partitions/{id}");
        let reader = format!("{HUB}/ConsumerGroups/$Default/Partitions/{id}");
        for address in [&sender, &reader] {
            let audience = format!("sb://localhost/{address}");
            let own = sign(&audience, NAME, &Key::new(KEY), now() + HOUR);
            assert_eq!(put(&mut client, &audience, &own).await.0, 202, "{audience}");
        }
        let refused = client.attach(Attach::sender("sender", &sender)).await.unwrap_err();
        assert_eq!(refused.condition, OUT_OF_RANGE, "{id}");
        assert!(refused.description().starts_with(WRONG_PARTITION), "{refused}");
        let refused = client.attach(receiver(&reader, &Start::Earliest, None, &[])).await.unwrap_err();
        assert!(
            told(&refused).0 == OUT_OF_RANGE && told(&refused).1.starts_with(WRONG_PARTITION),
            "{refused}"
        );
        // The token is for nothing else.
        let refused =
            client.attach(Attach::sender("sender", format!("{HUB}/Partitions/0"))).await.unwrap_err();
        assert_eq!(refused.condition, "amqp:unauthorized-access", "{id}");
    }
    for id in ["", " "] {
        let mut client = Client::unauthenticated(server.address).await;
        let address = format!("{HUB}/Partitions/{id}");
        let audience = format!("sb://localhost/{address}");
        let own = sign(&audience, NAME, &Key::new(KEY), now() + HOUR);
        assert_eq!(put(&mut client, &audience, &own).await.0, 202, "{audience}");
        let refused = client.attach(Attach::sender("sender", address)).await.unwrap_err();
        let text = "Invalid EventHub address. It must be either of the following";
        assert!(refused.description().starts_with(text), "{refused}");
    }
    // Without a token nothing is told about the hub.
    let mut client = Client::unauthenticated(server.address).await;
    let refused = client.attach(Attach::sender("sender", format!("{HUB}/Partitions/XYZ"))).await.unwrap_err();
    assert_eq!(refused.condition, "amqp:unauthorized-access");
}

/// Asks `$management` with these properties, and returns the outcome and the answer, if there is one.
async fn asked(client: &mut Client, pairs: &[(&str, &str)]) -> Result<(i32, String), Outcome> {
    let (replies, _) = client.attach(Attach::receiver("replies", "$management")).await.unwrap();
    client.connection().grant(replies, 1);
    let (requests, _) = client.attach(Attach::sender("requests", "$management")).await.unwrap();
    while client.connection().credit(requests) == 0 {
        client.wait(|event| matches!(event, Event::Credit { .. }).then_some(())).await;
    }
    let mut message = b"\x00\x53\x73\xc0\x04\x01\xa1\x01i\x00\x53\x74".to_vec();
    let map = ephor_amqp::encode::begin(&mut message);
    for (name, text) in pairs {
        ephor_amqp::encode::string(&mut message, name);
        ephor_amqp::encode::string(&mut message, text);
    }
    ephor_amqp::encode::end_map(&mut message, map, pairs.len());
    let outcome = client.send(requests, 0, &message).await;
    if outcome != Outcome::Accepted {
        return Err(outcome);
    }
    let (_, answer) = client.delivery().await;
    let response = Response::read(&answer).unwrap();
    Ok((response.status, response.description.unwrap_or_default().to_owned()))
}

const HUB_TYPE: (&str, &str) = ("type", "com.microsoft:eventhub");
const READ: (&str, &str) = ("operation", "READ");
const HOMES: (&str, &str) = ("name", HUB);

#[tokio::test]
async fn management_refuses_odd_partitions_and_rejects_unknown_operations() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let partition = ("type", "com.microsoft:partition");
    for id in ["XYZ", "-1", "-", "4"] {
        let (status, text) = asked(&mut client, &[READ, HOMES, partition, ("partition", id)]).await.unwrap();
        assert_eq!((status, &*text), (400, WRONG_PARTITION), "{id}");
    }
    let unknown = asked(&mut client, &[("operation", "RE1AD"), HOMES, HUB_TYPE]).await.unwrap_err();
    let (condition, text) = rejection(unknown);
    assert_eq!(condition, "amqp:not-allowed");
    assert!(text.starts_with("Invalid command 'RE1AD'. TrackingId:"), "{text}");
}

#[tokio::test]
async fn a_wrong_key_in_a_request_to_management_is_named() {
    let server = Server::start().await;
    let mut client = Client::unauthenticated(server.address).await;
    let forged = token(NAME, "forged", HOUR);
    let told = asked(&mut client, &[READ, HOMES, HUB_TYPE, ("security_token", &forged)]).await.unwrap();
    assert_eq!(told, (401, INVALID_SIGNATURE.into()));
    // Also beside a valid token that was put, as when a key is replaced.
    let mut client = Client::of(&server).await;
    assert_eq!(asked(&mut client, &[READ, HOMES, HUB_TYPE]).await.unwrap().0, 200);
    for (token, status) in [
        (forged, 401),
        ("SharedAccessSignature sr=fake&sig=foo&se=1.5&skn=FakeKey".to_owned(), 401),
        (sign("sb://localhost/other", NAME, &Key::new(KEY), now() + HOUR), 200),
        (crate::client::token(NAME, KEY, HOUR), 200),
    ] {
        let told = asked(&mut client, &[READ, HOMES, HUB_TYPE, ("security_token", &token)]).await.unwrap();
        assert_eq!(told.0, status, "{token}: {told:?}");
    }
}

#[tokio::test]
async fn our_client_alone_is_told_the_id_of_the_log() {
    let server = Server::start().await;
    let hub: HubName = HUB.parse().unwrap();
    let query = Query::Hub { hub };
    for (product, knows) in [("ephor", true), ("azsdk-python-eventhubs", false), ("", false)] {
        let mut client = Client::of_product(&server, product).await;
        let (_, _, answer) = client.describe("$management", &query).await;
        let described = HubDescription::read(&Response::read(&answer).unwrap()).unwrap();
        assert_eq!(described.log.is_some(), knows, "{product}");
        assert_eq!(answer.windows(5).any(|bytes| bytes == b"ephor"), knows, "{product}");
    }
}

#[tokio::test]
async fn events_are_sent_settled_and_outcomes_are_final_whatever_was_asked() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let address = format!("{HUB}/ConsumerGroups/$Default/Partitions/0");
    for asked in
        [None, Some(SenderSettles::Unsettled), Some(SenderSettles::Settled), Some(SenderSettles::Mixed)]
    {
        let attach = receiver(&address, &Start::Earliest, None, &[]);
        let (link, answer) = client.attach(Attach { sender_settles: asked, ..attach }).await.unwrap();
        assert_eq!(answer.sender_settles, Some(SenderSettles::Settled), "{asked:?}");
        client.connection().detach(link, None);
    }
    for asked in [None, Some(ReceiverSettles::First), Some(ReceiverSettles::Second)] {
        let attach = Attach { receiver_settles: asked, ..Attach::sender(format!("{asked:?}"), HUB) };
        let (_, answer) = client.attach(attach).await.unwrap();
        assert_eq!(answer.receiver_settles, Some(ReceiverSettles::First), "{asked:?}");
    }
}

#[tokio::test]
async fn every_receiver_gets_the_epoch_of_the_number_and_that_of_the_last_if_it_asked() {
    let server = Server::start().await;
    server.hub().producer().send_to(PartitionId(0), NewEvent::new("x")).await.unwrap();
    let mut client = Client::of(&server).await;
    let address = format!("{HUB}/ConsumerGroups/$Default/Partitions/0");
    let metric = "com.microsoft:enable-receiver-runtime-metric";
    for (desired, last) in [
        (&[][..], false),
        (&["com.microsoft:georeplication"], false),
        (&[metric], false),
        (&[metric, "com.microsoft:georeplication"], true),
    ] {
        let attach = receiver(&address, &Start::Earliest, None, desired);
        let (link, _) = client.attach(attach).await.unwrap();
        client.connection().grant(link, 1);
        let (_, payload) = client.delivery().await;
        let has = |name: &[u8]| payload.windows(name.len()).any(|bytes| bytes == name);
        assert!(has(b"\xa3\x1bx-opt-sequence-number-epoch\x54\xff"), "{desired:?}");
        assert_eq!(has(b"\xa3\x23last_enqueued_sequence_number_epoch\x54\xff"), last, "{desired:?}");
        client.connection().detach(link, None);
        client.wait(|event| matches!(event, Event::Detached { .. }).then_some(())).await;
    }
}

#[tokio::test]
async fn an_idempotent_sender_on_the_hub_is_attached_and_takes_nothing() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let idempotent = Encoded::symbols(["com.microsoft:idempotent-producer"]);
    let attach = Attach { desired_capabilities: Some(idempotent), ..Attach::sender("sender", HUB) };
    let (link, answer) = client.attach(attach).await.unwrap();
    assert!(answer.max_message_size.is_some_and(|size| size >= 1 << 20), "{answer:?}");
    client.wait(|event| matches!(event, Event::Credit { .. }).then_some(())).await;
    let (condition, text) = rejection(client.send(link, 0, &encoded(&NewEvent::new("x"))).await);
    assert_eq!(condition, "amqp:not-allowed");
    assert!(text.contains("numbers its events for one partition"), "{text}");
}

#[tokio::test]
async fn a_coordinator_of_transactions_costs_the_link_and_nothing_else() {
    let server = Server::start().await;
    let mut raw = crate::raw_peer::Raw::opened(server.address).await;
    let mut asked = crate::raw_peer::attach(crate::raw_peer::CHANNEL, 0, Attach::sender("transactions", "x"));
    // A target becomes a coordinator.
    let at = asked.windows(3).position(|three| three == [0x00, 0x53, 0x29]).unwrap();
    asked[at + 2] = 0x30;
    raw.write(&asked).await;
    let said = raw.read_until("Detach").await;
    assert!(said.contains("amqp:not-implemented") && said.contains("Transactions"), "{said}");
    raw.attach(1, Attach::sender("requests", "$cbs")).await;
}

#[tokio::test]
async fn a_token_may_name_its_host_without_a_scheme() {
    let server = Server::start().await;
    for (resource, status) in [
        ("localhost", 202),
        ("localhost:5672", 202),
        ("localhost/homes", 202),
        ("localhost/other", 401),
        ("homes", 202),
        ("other", 401),
        ("homes.example/homes", 401),
    ] {
        let mut client = Client::unauthenticated(server.address).await;
        let signed = sign(resource, NAME, &Key::new(KEY), now() + HOUR);
        let (told, _, text) = put(&mut client, "amqps://localhost/homes", &signed).await;
        assert_eq!(told, status, "{resource}: {text}");
    }
}

#[tokio::test]
async fn a_token_that_expired_a_moment_ago_is_taken() {
    let server = Server::start().await;
    let mut client = Client::unauthenticated(server.address).await;
    let expired = |ago: u64| {
        let at = ephor_core::time::Timestamp(now().0 - 1_000 * ago as i64);
        sign("sb://localhost/", NAME, &Key::new(KEY), at)
    };
    assert_eq!(put(&mut client, "sb://localhost/homes", &expired(10)).await.0, 202);
    client.sender(HUB).await;
    let (status, _, text) = put(&mut client, "sb://localhost/homes", &expired(60)).await;
    assert!(status == 401 && text.starts_with("ExpiredToken"), "{text}");
}

#[tokio::test]
async fn a_stolen_receiver_without_an_epoch_is_told_no_epoch() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let address = format!("{HUB}/ConsumerGroups/$Default/Partitions/0");
    let link = client.receiver(0, Start::Earliest).await;
    let mut other = Client::of(&server).await;
    other.attach(receiver(&address, &Start::Earliest, Some(1), &[])).await.unwrap();
    let stolen = client.detached(link).await;
    assert!(stolen.description().contains("current receiver 'tester' with epoch '' is getting"), "{stolen}");
}
