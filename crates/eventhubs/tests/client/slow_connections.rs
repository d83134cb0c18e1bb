//! Tests of slow connections: they do not count as dead, links take turns, and events are asked for only
//! after the log id is known.

use std::time::Duration;

use ephor_amqp::performative::Outcome;
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_core::source::{EventSource, OpenRequest};
use ephor_eventhubs::{EventHubOptions, SendFailure};
use ephor_hub::HubConfig;
use futures_util::future::{join_all, try_join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::common::scripted_hub::{Fate, Peer, Script};
use crate::common::slow_proxy::{FAST, Rates, Slow};
use crate::common::{TestHub, quick, receive, request, within};

const MB: u64 = 1_000_000;

/// Short enough that whatever waits behind a large event on a slow connection would be late.
fn impatient() -> EventHubOptions {
    EventHubOptions {
        connections: 1,
        connect_time: Duration::from_secs(2),
        answer_time: Duration::from_millis(300),
        ..quick()
    }
}

/// Stores large events in each partition.
async fn fill(test_hub: &TestHub, partitions: u32, events: usize) {
    for partition in 0..partitions {
        for _ in 0..events {
            let event = NewEvent::new(vec![7; 900_000]);
            test_hub.hub.producer().send_to(PartitionId(partition), event).await.unwrap();
        }
    }
}

#[tokio::test]
async fn receivers_on_a_slow_downlink_open_come_back_and_lose_nothing() {
    const PARTITIONS: u32 = 3;
    const EVENTS: usize = 2;
    let test_hub = TestHub::new(PARTITIONS);
    fill(&test_hub, PARTITIONS, EVENTS).await;
    let served = test_hub.serve().await;
    let slow = Slow::start(served.address, Rates { up: FAST, down: 4 * MB }).await;
    let client = served.builder_at(slow.address).options(impatient()).build().unwrap();
    // As a host does.
    client.hub_properties().await.unwrap();
    let open = |partition| {
        let request = OpenRequest {
            partition: PartitionId(partition),
            prefetch_bytes: 8 << 20,
            ..request("reader", Some(1))
        };
        client.open(request)
    };
    let receivers = within(60, try_join_all((0..PARTITIONS).map(open))).await.unwrap();
    slow.cut();
    let read = receivers.into_iter().map(async |mut receiver| receive(&mut receiver, EVENTS).await);
    for events in within(60, join_all(read)).await {
        let numbers: Vec<u64> = events.iter().map(|event| event.sequence.0).collect();
        assert_eq!(numbers, [0, 1]);
    }
}

#[tokio::test]
async fn no_event_is_asked_for_before_the_log_is_known() {
    let test_hub = TestHub::new(1);
    fill(&test_hub, 1, 3).await;
    let served = test_hub.serve().await;
    let slow = Slow::start(served.address, Rates { up: FAST, down: 4 * MB }).await;
    let client = served.builder_at(slow.address).options(quick()).build().unwrap();
    let mut receiver = within(20, client.open(request("reader", Some(1)))).await.unwrap();
    // A host asks this for every partition that it opens.
    let log = receiver.log();
    assert_eq!(log, test_hub.hub.hub_properties().await.unwrap().log);
    let carried = slow.carried_down();
    assert!(carried < 100_000, "{carried} bytes came before it was opened");
    within(20, receive(&mut receiver, 3)).await;
}

#[tokio::test]
async fn links_that_send_on_one_slow_connection_take_turns() {
    const MOST: usize = 100;
    let test_hub = TestHub::new(2);
    let served = test_hub.serve().await;
    let slow = Slow::start(served.address, Rates { up: 8 * MB, down: FAST }).await;
    let options = EventHubOptions { connections: 1, ..quick() };
    let client = served.builder_at(slow.address).options(options).build().unwrap();
    let (busy, other) = (client.producer(), client.producer());
    // Both links are attached, in this order.
    busy.send_to(PartitionId(0), NewEvent::new("first")).await.unwrap();
    other.send_to(PartitionId(1), NewEvent::new("first")).await.unwrap();
    let body = bytes::Bytes::from(vec![7; 200_000]);
    let backlog = async {
        let mut under_way = FuturesUnordered::new();
        // There is always more to send than the link takes.
        for _ in 0..MOST {
            while under_way.len() < 50 {
                under_way.push(busy.send_to(PartitionId(0), NewEvent::new(body.clone())));
            }
            under_way.next().await.unwrap().unwrap();
        }
    };
    let one = async {
        // The backlog fills the connection first.
        tokio::task::yield_now().await;
        other.send_to(PartitionId(1), NewEvent::new("second")).await.unwrap();
    };
    tokio::select! {
        biased;
        () = backlog => panic!("one link sent {MOST} messages, and the other none meanwhile"),
        () = within(60, one) => {}
    }
}

#[tokio::test]
async fn a_link_that_waits_for_its_answer_does_not_end_a_connection_that_answers_others() {
    const ANSWERS: usize = 12;
    const ANSWER_TIME: Duration = Duration::from_secs(2);
    let fate = |number| match number {
        // It waits until the others are answered.
        0 => Fate::SettleAfter(ANSWERS, Outcome::Accepted),
        _ => Fate::SettleLate(ANSWER_TIME / 8, Outcome::Accepted),
    };
    let peer = Peer::start(Script { message: Box::new(fate), ..Script::default() }).await;
    let client = peer.client(EventHubOptions { answer_time: ANSWER_TIME, ..quick() });
    let producer = client.producer();
    let late = producer.send_to(PartitionId(1), NewEvent::new("late"));
    let others = async {
        peer.until(|seen| seen.messages == 1).await;
        for _ in 0..ANSWERS {
            producer.send_to(PartitionId(0), NewEvent::new("other")).await.unwrap();
        }
    };
    let (late, ()) = within(60, async { tokio::join!(late, others) }).await;
    late.unwrap();
    assert_eq!(peer.seen(|seen| (seen.connections, seen.messages)), (1, 1 + ANSWERS));
}

#[tokio::test]
async fn a_message_that_takes_longer_than_an_answer_may_is_sent_once_while_it_moves() {
    let config = HubConfig { max_event_bytes: 4 << 20, ..HubConfig::new("homes", 1).unwrap() };
    let test_hub = TestHub::with(config);
    let served = test_hub.serve().await;
    let slow = Slow::start(served.address, Rates { up: MB, down: FAST }).await;
    let options = EventHubOptions { connections: 1, answer_time: Duration::from_millis(1_200), ..quick() };
    let client = served.builder_at(slow.address).options(options).build().unwrap();
    let event = NewEvent::new(vec![7; 3_000_000]);
    within(60, client.producer().send_to(PartitionId(0), event)).await.unwrap();
    assert_eq!(slow.connections(), 1);
    let stored = test_hub.hub.partition_properties(PartitionId(0)).await.unwrap();
    assert_eq!(stored.last.unwrap().sequence.0, 0, "it is stored once");
}

#[tokio::test]
async fn a_send_that_was_not_answered_says_which_limit_it_was_and_what_helps() {
    let peer = Peer::start(Script { message: Box::new(|_| Fate::Silence), ..Script::default() }).await;
    let options = EventHubOptions { answer_time: Duration::from_millis(50), attempts: 2, ..quick() };
    let error = within(20, peer.client(options).producer().send(NewEvent::new("x"))).await.unwrap_err();
    let SendFailure::Unavailable { last, .. } = &error.failure else { panic!("{error:?}") };
    assert!(last.contains("within 50ms (answer_time)") && last.contains("smaller batches"), "{last}");
}
