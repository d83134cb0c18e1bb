//! Tests of producers: they store the events that they acknowledge, in order, and report the others; batches,
//! retries, time limits, and sends over a new connection.

use std::error::Error as _;
use std::time::Duration;

use ephor_amqp::performative::{Error, Outcome};
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::producer::{ProducerError, SendCause};
use ephor_core::source::{EventSource, OpenRequest};
use ephor_eventhubs::{EventHubOptions, ProducerOptions, SendFailure, Target};

use crate::common::scripted_hub::{Fate, Peer, Script};
use crate::common::{TestHub, quick, receive, request, texts, within};

async fn hub(message: impl FnMut(usize) -> Fate + Send + 'static) -> Peer {
    Peer::start(Script { message: Box::new(message), ..Script::default() }).await
}

fn busy() -> Fate {
    Fate::Settle(Outcome::rejected(Error::new("com.microsoft:server-busy", "wait")))
}

fn accepted() -> Fate {
    Fate::Settle(Outcome::Accepted)
}

fn event(number: usize) -> NewEvent {
    NewEvent::new(number.to_string())
}

#[tokio::test]
async fn batches_are_packed_to_the_size_that_the_hub_takes_and_keep_their_order() {
    let peer = hub(|_| accepted()).await;
    let producer = peer.client(quick()).producer();
    let sent = within(20, producer.send_batch(Target::Any, (0..5_000).map(event))).await.unwrap();
    assert_eq!(sent, 5_000);
    let expected: Vec<String> = (0..5_000).map(|number| number.to_string()).collect();
    assert_eq!(peer.seen(|seen| seen.stored.clone()), expected);
    // 5,000 events of about 13 bytes, in messages of 10,000.
    let messages = peer.seen(|seen| seen.messages);
    assert!((6..=9).contains(&messages), "{messages}");
}

#[tokio::test]
async fn events_with_different_keys_by_turns_share_few_messages_and_keep_their_order_by_key() {
    let peer = hub(|_| accepted()).await;
    let producer = peer.client(quick()).producer();
    let events = (0..1_000).map(|number| {
        let key = (number % 10 != 0).then(|| (number % 10).to_string().into());
        NewEvent { partition_key: key, ..event(number) }
    });
    assert_eq!(within(20, producer.send_batch(Target::Any, events)).await.unwrap(), 1_000);
    // 100 events of about 35 bytes for each of 10 keys, in messages of 10,000.
    assert_eq!(peer.seen(|seen| seen.messages), 10);
    let stored: Vec<usize> = peer.seen(|seen| seen.stored.iter().map(|body| body.parse().unwrap()).collect());
    for key in 0..10 {
        let of_key: Vec<usize> = stored.iter().copied().filter(|number| number % 10 == key).collect();
        assert_eq!(of_key, Vec::from_iter((key..1_000).step_by(10)));
    }
}

#[tokio::test]
async fn after_a_failure_everything_before_the_number_that_is_returned_is_stored() {
    let refused = || Fate::Settle(Outcome::rejected(Error::new("amqp:not-allowed", "not this one")));
    for failing in 0..5 {
        let peer = hub(move |number| if number == failing { refused() } else { accepted() }).await;
        let producer = peer.client(quick()).producer();
        // A message of one key fills slowly, while others are sent.
        let keyed = |number: usize| NewEvent {
            partition_key: Some(if number % 6 == 1 { "seldom" } else { "often" }.into()),
            ..NewEvent::new(format!("{number} {}", "x".repeat(3_000)))
        };
        let error = within(20, producer.send_batch(Target::Any, (0..18).map(keyed))).await.unwrap_err();
        let stored: Vec<usize> = peer.seen(|seen| {
            seen.stored.iter().map(|body| body.split(' ').next().unwrap().parse().unwrap()).collect()
        });
        assert!((0..error.sent).all(|number| stored.contains(&number)), "{} of {stored:?}", error.sent);
        assert!(!stored.contains(&error.sent), "{} is the first that is missing: {stored:?}", error.sent);
        // The interface of all hubs says the same.
        let sent = error.sent;
        let error = ProducerError::from(error);
        assert_eq!(error.stored, sent);
        assert!(matches!(error.cause, SendCause::Refused(_)), "{error:?}");
        assert!(error.source().unwrap().to_string().contains("not this one"), "{error:?}");
    }
}

#[tokio::test]
async fn the_first_sends_of_a_producer_are_stored_in_the_order_in_which_they_began() {
    let peer = hub(|_| accepted()).await;
    // A new producer does not know the maximum message size yet.
    let producer = peer.client(quick()).producer_with(ProducerOptions { in_flight: 3 });
    let mut sends: Vec<_> = (0..8).map(|number| Box::pin(producer.send(event(number)))).collect();
    for send in &mut sends {
        assert!(futures_util::poll!(send.as_mut()).is_pending());
    }
    // From here on the last send is always polled first.
    sends.reverse();
    within(20, futures_util::future::try_join_all(sends)).await.unwrap();
    let expected: Vec<String> = (0..8).map(|number| number.to_string()).collect();
    assert_eq!(peer.seen(|seen| seen.stored.clone()), expected);
}

#[tokio::test]
async fn a_busy_hub_is_asked_again_and_waiting_sends_keep_their_order() {
    let peer = hub(|number| if number % 3 == 2 { accepted() } else { busy() }).await;
    let producer = peer.client(quick()).producer();
    for number in 0..10 {
        within(20, producer.send(event(number))).await.unwrap();
    }
    let expected: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    assert_eq!(peer.seen(|seen| seen.stored.clone()), expected);
    assert_eq!(peer.seen(|seen| seen.messages), 30);
}

#[tokio::test]
async fn with_one_message_in_flight_not_even_sends_at_the_same_time_overtake_each_other() {
    let mut random = fastrand::Rng::with_seed(4);
    let peer = hub(move |_| if random.bool() { accepted() } else { busy() }).await;
    let producer = peer.client(quick()).producer_with(ProducerOptions { in_flight: 1 });
    let sends = (0..30).map(|number| producer.send(event(number)));
    within(20, futures_util::future::try_join_all(sends)).await.unwrap();
    let expected: Vec<String> = (0..30).map(|number| number.to_string()).collect();
    assert_eq!(peer.seen(|seen| seen.stored.clone()), expected);
}

#[tokio::test]
async fn what_was_on_its_way_when_the_connection_was_lost_is_sent_again_in_order() {
    let peer = hub(|number| if number % 7 == 6 { Fate::StoreAndCut } else { accepted() }).await;
    let producer = peer.client(quick()).producer();
    let sends = (0..40).map(|number| producer.send(event(number)));
    within(20, futures_util::future::try_join_all(sends)).await.unwrap();
    let stored = peer.seen(|seen| seen.stored.clone());
    let mut seen = std::collections::BTreeSet::new();
    let firsts: Vec<String> = stored.into_iter().filter(|body| seen.insert(body.clone())).collect();
    assert_eq!(firsts, (0..40).map(|number| number.to_string()).collect::<Vec<_>>());
    assert!(peer.seen(|seen| seen.connections) > 2);
}

#[tokio::test]
async fn attempts_are_bounded_and_the_last_reason_is_returned() {
    let peer = hub(|_| busy()).await;
    let producer = peer.client(EventHubOptions { attempts: 3, ..quick() }).producer();
    let error = within(20, producer.send(event(0))).await.unwrap_err();
    let SendFailure::Unavailable { attempts: 3, last, .. } = &error.failure else { panic!("{error:?}") };
    assert!(last.contains("server-busy"), "{last}");
    assert_eq!(peer.seen(|seen| seen.messages), 3);
}

#[tokio::test]
async fn a_hub_that_never_settles_is_given_up() {
    let peer = hub(|number| if number == 0 { Fate::Silence } else { accepted() }).await;
    let options = EventHubOptions { answer_time: Duration::from_millis(100), ..quick() };
    let producer = peer.client(options).producer();
    within(20, producer.send(event(0))).await.unwrap();
    assert_eq!(peer.seen(|seen| seen.connections), 2);
}

#[tokio::test]
async fn one_message_that_is_refused_for_good_does_not_hold_up_the_others() {
    let refused = || Fate::Settle(Outcome::rejected(Error::new("amqp:not-allowed", "not this one")));
    let peer = hub(move |number| if number == 1 { refused() } else { accepted() }).await;
    let producer = peer.client(quick()).producer();
    let sends = (0..4).map(|number| producer.send(event(number)));
    let outcomes = within(20, futures_util::future::join_all(sends)).await;
    let failed: Vec<usize> = (0..4).filter(|number| outcomes[*number].is_err()).collect();
    assert_eq!(failed, [1]);
    assert_eq!(peer.seen(|seen| seen.stored.clone()), ["0", "2", "3"]);
    let error = outcomes[1].as_ref().unwrap_err();
    assert!(matches!(&error.failure, SendFailure::Refused(_)), "{error}");
    assert_eq!(error.to_string(), "the hub refused it: amqp:not-allowed: not this one");
}

#[tokio::test]
async fn whatever_a_hub_rejects_the_first_message_for_the_others_are_stored_once_and_in_order() {
    const MESSAGES: usize = 32;
    const FOR_GOOD: [&str; 2] = ["amqp:not-allowed", "amqp:link:message-size-exceeded"];
    let passing = [
        "amqp:internal-error",
        "amqp:link:detach-forced",
        "amqp:connection:forced",
        "amqp:not-implemented",
        "com.microsoft:server-busy",
        "com.microsoft:timeout",
        "com.microsoft:operation-cancelled",
        "x:never-heard-of",
    ];
    for condition in passing.into_iter().chain(FOR_GOOD) {
        let rejected = Outcome::rejected(Error::new(condition, "not now"));
        // The answers to the others arrive after the sender has had time to act on the first.
        let late = || Fate::SettleLate(Duration::from_millis(3), Outcome::Accepted);
        let peer = hub(move |number| if number == 0 { Fate::Settle(rejected.clone()) } else { late() }).await;
        let producer = peer.client(quick()).producer();
        let sends = (0..MESSAGES).map(|number| producer.send(event(number)));
        let outcomes = within(20, futures_util::future::join_all(sends)).await;
        let stored = peer.seen(|seen| seen.stored.clone());
        let first = stored.iter().position(|body| body == "0");
        assert_eq!(first.is_some(), outcomes[0].is_ok(), "{condition}: {:?}", outcomes[0]);
        assert!(outcomes[1..].iter().all(Result::is_ok), "{condition}: {outcomes:?}");
        let others: Vec<&String> = stored.iter().filter(|body| *body != "0").collect();
        let expected: Vec<String> = (1..MESSAGES).map(|number| number.to_string()).collect();
        assert_eq!(others, expected.iter().collect::<Vec<_>>(), "{condition}");
        assert!(first.is_none_or(|first| first == MESSAGES - 1), "{condition}: {stored:?}");
    }
}

#[tokio::test]
async fn a_hub_that_goes_on_answering_is_not_given_up_however_much_is_on_its_way() {
    const MESSAGES: usize = 10;
    const ANSWER_TIME: Duration = Duration::from_secs(2);
    let options = EventHubOptions { answer_time: ANSWER_TIME, ..quick() };
    // All of them together take longer than the limit for one.
    let peer = hub(|_| Fate::SettleLate(ANSWER_TIME / 6, Outcome::Accepted)).await;
    let producer = peer.client(options).producer();
    let sends = (0..MESSAGES).map(|number| producer.send(event(number)));
    within(60, futures_util::future::try_join_all(sends)).await.unwrap();
    assert_eq!(peer.seen(|seen| (seen.connections, seen.messages)), (1, MESSAGES));
}

#[tokio::test]
async fn a_producer_whose_connection_was_closed_for_good_sends_over_a_new_one() {
    let closed = || Fate::Close(Error::new("amqp:resource-limit-exceeded", "no more of this"));
    let peer = hub(move |number| if number == 0 { closed() } else { accepted() }).await;
    let producer = peer.client(quick()).producer();
    let error = within(20, producer.send(event(0))).await.unwrap_err();
    assert!(matches!(&error.failure, SendFailure::Refused(_)), "{error}");
    within(20, producer.send(event(1))).await.unwrap();
    assert_eq!(peer.seen(|seen| seen.stored.clone()), ["1"]);
    assert_eq!(peer.seen(|seen| seen.connections), 2);
}

#[test]
fn a_client_that_outlives_its_runtime_connects_again() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let elsewhere = tokio::runtime::Runtime::new().unwrap();
    let peer = elsewhere.block_on(hub(|_| accepted()));
    let first = runtime();
    let client = first.block_on(async {
        let client = peer.client(quick());
        within(20, client.producer().send(event(0))).await.unwrap();
        client
    });
    drop(first);
    runtime().block_on(async { within(20, client.producer().send(event(1))).await.unwrap() });
    assert_eq!(peer.seen(|seen| seen.stored.clone()), ["0", "1"]);
}

#[tokio::test]
async fn an_event_that_is_too_large_is_named_and_what_came_before_is_counted() {
    let peer = hub(|_| accepted()).await;
    let producer = peer.client(quick()).producer();
    let events = (0..10).map(|number| match number {
        7 => NewEvent::new("x".repeat(20_000)),
        _ => NewEvent::new("y".repeat(4_000)),
    });
    let error = within(20, producer.send_batch(Target::Any, events)).await.unwrap_err();
    assert!(matches!(error.failure, SendFailure::Event { index: 7, .. }), "{error}");
    assert_eq!(error.sent, 6);
    assert_eq!(peer.seen(|seen| seen.stored.len()), 6);
    assert!(error.to_string().contains("at most 10000"), "{error}");
}

#[tokio::test]
async fn an_error_of_a_dial_names_the_address() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let string = ephor_eventhubs::ConnectionString::development(&"127.0.0.1".parse().unwrap(), port, None);
    let options = EventHubOptions { attempts: 2, ..quick() };
    let client =
        ephor_eventhubs::EventHub::builder_for(string).hub("homes").options(options).build().unwrap();
    let error = within(20, client.producer().send(event(0))).await.unwrap_err();
    assert!(error.to_string().contains(&format!("cannot connect to 127.0.0.1:{port}")), "{error}");
    assert!(client.hub_properties().await.is_err());
}

#[tokio::test]
async fn keys_partitions_and_large_events_reach_the_hub() {
    let test_hub = TestHub::new(4);
    let served = test_hub.serve().await;
    let client = served.client();
    let producer = client.producer();
    let keyed = |number: usize, key: &str| NewEvent { partition_key: Some(key.into()), ..event(number) };
    // "a" chooses partition 0 of 4, "ab" partition 1, "131" partition 2.
    let mixed = [keyed(0, "a"), keyed(1, "a"), keyed(2, "ab"), keyed(3, "a"), keyed(4, "131")];
    assert_eq!(producer.send_batch(Target::Any, mixed).await.unwrap(), 5);
    producer.send_batch(Target::Key("ab"), (5..7).map(event)).await.unwrap();
    producer.send_batch(Target::Partition(PartitionId(3)), [keyed(7, "a")]).await.unwrap();
    let largest = NewEvent::new(vec![7; 1_000_000]);
    producer.send_to(PartitionId(3), largest.clone()).await.unwrap();
    for (id, expected) in [(0, vec!["0", "1", "3"]), (1, vec!["2", "5", "6"]), (2, vec!["4"])] {
        let request = OpenRequest { partition: PartitionId(id), ..request("reader", None) };
        let mut receiver = client.open(request).await.unwrap();
        assert_eq!(texts(&within(20, receive(&mut receiver, expected.len())).await), expected, "{id}");
    }
    let request = OpenRequest { partition: PartitionId(3), ..request("reader", None) };
    let events = within(20, receive(&mut client.open(request).await.unwrap(), 2)).await;
    assert_eq!(events[0].partition_key.as_deref(), Some("a"));
    assert_eq!(events[1].body, largest.body);
    assert_eq!(producer.send_batch(Target::Any, []).await.unwrap(), 0);
    let error = producer.send_to(PartitionId(9), event(0)).await.unwrap_err();
    assert!(matches!(error.failure, SendFailure::Refused(_)), "{error}");
}

#[tokio::test]
async fn what_a_producer_began_is_stored_even_if_nobody_waits_for_it() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve().await;
    let client = served.client();
    let producer = client.producer();
    producer.send(event(0)).await.unwrap();
    {
        let mut send = Box::pin(producer.send(event(1)));
        // Polled until the message is with the sender task.
        for _ in 0..3 {
            let _ = futures_util::poll!(&mut send);
        }
    }
    let request = OpenRequest { start: StartPosition::Earliest, ..request("reader", None) };
    let mut receiver = client.open(request).await.unwrap();
    assert_eq!(texts(&within(20, receive(&mut receiver, 2)).await), ["0", "1"]);
}
