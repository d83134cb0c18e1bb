//! Tests of clients whose connections are cut and whose hubs restart or are silent: no event is lost, and
//! none is returned twice. Faults at frame boundaries are in `faults/boundaries.rs`.

mod boundaries;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ephor_core::event::NewEvent;
use ephor_core::failure_policy::Backoff;
use ephor_core::ids::PartitionId;
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::{EventSource, OpenRequest, ReceiveError};
use ephor_eventhubs::{EventHubOptions, Target};

use crate::common::cutting_proxy::Proxy;
use crate::common::faulty_proxy::FaultyProxy;
use crate::common::{TestHub, quick, receive, request, texts, within};

/// The number of messages in a run with random cuts.
const MESSAGES: u64 = 120;

/// For connections that are cut so often that waiting would be most of the test.
const QUICK_BACKOFF: Backoff = Backoff { first: Duration::from_millis(1), max: Duration::from_millis(4) };

fn cuts() -> u64 {
    std::env::var("EPHOR_CUT_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// Runs a producer and a receiver through a proxy that cuts every connection after a random number of bytes.
async fn run_with_cuts(seed: u64, connections: usize, tls: bool) {
    let test_hub = TestHub::new(2);
    let served = test_hub.serve_as(ephor_gateway::GatewayConfig::default(), "127.0.0.1:0", tls).await;
    let plan = move |number: u64| {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number));
        // Some cuts are in the middle of the handshake, others after much data.
        let mut bytes = || 1 << random.u64(7..18);
        let (up, down): (u64, u64) = (bytes(), bytes());
        (random.u64(1..=up), random.u64(1..=down))
    };
    let proxy = Proxy::start(served.address, Arc::new(plan)).await;
    let options = EventHubOptions { attempts: 1_000, connections, backoff: QUICK_BACKOFF, ..quick() };
    let client = served.builder_at(proxy.address).options(options).build().unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let sending = {
        let (producer, done) = (client.producer(), done.clone());
        tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            for number in 0..MESSAGES {
                let mut body = format!("{number} ");
                body.extend(std::iter::repeat_n('x', random.usize(0..3_000)));
                let events = [NewEvent::new(body), NewEvent::new(format!("{number}b"))];
                producer.send_batch(Target::Partition(PartitionId(0)), events).await.unwrap();
            }
            done.store(true, Ordering::Release);
        })
    };
    let mut receiver = client.open(request("reader", Some(7))).await.unwrap();
    let mut events = Vec::new();
    let mut healed = false;
    loop {
        // Some calls are dropped, ready or not.
        let received =
            tokio::time::timeout(Duration::from_millis(20), receiver.receive(&mut events, 50)).await;
        if let Ok(received) = received {
            received.unwrap();
        }
        if done.load(Ordering::Acquire) {
            if !healed {
                proxy.heal();
                proxy.cut();
                healed = true;
            }
            let last = test_hub.hub.partition_properties(PartitionId(0)).await.unwrap().last.unwrap();
            if events.last().is_some_and(|event| event.sequence == last.sequence) {
                break;
            }
        }
    }
    sending.await.unwrap();
    let numbers: Vec<u64> = events.iter().map(|event| event.sequence.0).collect();
    assert_eq!(
        numbers,
        Vec::from_iter(0..numbers.len() as u64),
        "seed {seed}: none lost, none twice, in order"
    );
    // A message that was sent again because its answer was lost may be stored twice; the first copies are in
    // order.
    let mut seen = BTreeSet::new();
    let firsts: Vec<&str> = texts(&events)
        .iter()
        .map(|text| text.split(' ').next().unwrap())
        .filter(|text| seen.insert(text.to_string()))
        .map(|text| text as &str)
        .collect();
    let sent: Vec<String> = (0..MESSAGES).flat_map(|n| [n.to_string(), format!("{n}b")]).collect();
    assert_eq!(firsts, sent, "seed {seed}: everything that was acknowledged is there, in order");
    let count = proxy.connections.load(Ordering::Relaxed);
    assert!(count > 3, "seed {seed}: connections were cut, {count} in all");
}

#[tokio::test]
async fn nothing_is_lost_and_nothing_handed_out_twice_while_connections_are_cut() {
    for seed in 0..cuts() {
        within(120, run_with_cuts(seed, 1, false)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_do_no_harm_to_several_connections_on_several_threads() {
    for seed in 100..100 + cuts() {
        within(120, run_with_cuts(seed, 2, false)).await;
    }
}

#[tokio::test]
async fn cuts_in_the_middle_of_tls_do_no_harm() {
    for seed in 200..200 + cuts() {
        within(120, run_with_cuts(seed, 1, true)).await;
    }
}

/// Cuts once after every byte of the conversation, in both directions.
#[tokio::test]
async fn a_cut_behind_any_byte_loses_nothing() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve().await;
    for number in 0..5 {
        test_hub.hub.producer().send_to(PartitionId(0), NewEvent::new(number.to_string())).await.unwrap();
    }
    let step: usize = if std::env::var_os("EPHOR_CUT_RUNS").is_some() { 1 } else { 11 };
    let mut lasting = 0;
    for bytes in (1..4_000).step_by(step) {
        for upwards in [true, false] {
            let plan = move |number| match (number, upwards) {
                (0, true) => (bytes, u64::MAX),
                (0, false) => (u64::MAX, bytes),
                _ => (u64::MAX, u64::MAX),
            };
            let proxy = Proxy::start(served.address, Arc::new(plan)).await;
            let client = served.builder_at(proxy.address).build().unwrap();
            let mut receiver = within(20, client.open(request("reader", Some(bytes)))).await.unwrap();
            let events = within(20, receive(&mut receiver, 5)).await;
            assert_eq!(texts(&events), ["0", "1", "2", "3", "4"], "cut behind byte {bytes}");
            lasting += u64::from(proxy.connections.load(Ordering::Relaxed) == 1);
        }
    }
    assert!(lasting > 0, "at last the cut came behind everything");
}

#[tokio::test]
async fn the_end_of_the_log_is_where_it_was_when_the_receiver_was_opened() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve().await;
    let producer = test_hub.hub.producer();
    producer.send_to(PartitionId(0), NewEvent::new("before")).await.unwrap();
    let proxy = Proxy::reliable(served.address).await;
    let client = served.builder_at(proxy.address).build().unwrap();
    let latest = OpenRequest { start: StartPosition::Latest, ..request("reader", None) };
    let mut receiver = client.open(latest).await.unwrap();
    proxy.cut();
    producer.send_to(PartitionId(0), NewEvent::new("meanwhile")).await.unwrap();
    assert_eq!(texts(&within(20, receive(&mut receiver, 1)).await), ["meanwhile"]);
}

#[tokio::test]
async fn a_receiver_goes_on_with_its_epoch_after_the_hub_was_restarted() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve().await;
    let address = served.address.to_string();
    let producer = test_hub.hub.producer();
    let client = served.client();
    let mut receiver = client.open(request("owner", Some(5))).await.unwrap();
    producer.send_to(PartitionId(0), NewEvent::new("one")).await.unwrap();
    assert_eq!(texts(&receive(&mut receiver, 1).await), ["one"]);
    // Once gracefully, once not.
    served.stop().await;
    for text in ["two", "three"] {
        producer.send_to(PartitionId(0), NewEvent::new(text)).await.unwrap();
    }
    let served = test_hub.serve_as(ephor_gateway::GatewayConfig::default(), &address, false).await;
    assert_eq!(texts(&within(20, receive(&mut receiver, 2)).await), ["two", "three"]);
    let attached = test_hub.hub.receivers();
    assert_eq!(attached.len(), 1);
    assert_eq!(attached[0].epoch.map(ephor_core::epoch::Epoch::get), Some(5));
    served.kill();
    // The listening task ends a little later.
    while tokio::net::TcpListener::bind(&address).await.is_err() {
        tokio::task::yield_now().await;
    }
    let _served = test_hub.serve_as(ephor_gateway::GatewayConfig::default(), &address, false).await;
    producer.send_to(PartitionId(0), NewEvent::new("four")).await.unwrap();
    assert_eq!(texts(&within(20, receive(&mut receiver, 1)).await), ["four"]);
}

#[tokio::test]
async fn a_receiver_whose_hub_is_gone_says_so_and_goes_on_when_it_is_asked_again() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve().await;
    let address = served.address.to_string();
    let client = served.builder().options(EventHubOptions { attempts: 3, ..quick() }).build().unwrap();
    let mut receiver = client.open(request("owner", Some(1))).await.unwrap();
    served.stop().await;
    let error = within(20, receiver.receive(&mut Vec::new(), 1)).await.unwrap_err();
    assert!(matches!(error, ReceiveError::Source(_)), "{error}");
    assert!(error.to_string().contains("cannot connect to 127.0.0.1"), "{error}");
    let _served = test_hub.serve_as(ephor_gateway::GatewayConfig::default(), &address, false).await;
    test_hub.hub.producer().send_to(PartitionId(0), NewEvent::new("back")).await.unwrap();
    let mut events = Vec::new();
    within(20, async { while receiver.receive(&mut events, 1).await.is_err() {} }).await;
    assert_eq!(texts(&events), ["back"]);
}

#[tokio::test]
async fn an_owner_that_was_replaced_while_it_was_cut_off_learns_by_whom() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve().await;
    let proxy = Proxy::reliable(served.address).await;
    let client = served.builder_at(proxy.address).build().unwrap();
    let mut old = client.open(request("old", Some(3))).await.unwrap();
    let new = served.client().open(request("new", Some(4))).await;
    proxy.cut();
    for _ in 0..3 {
        match within(20, old.receive(&mut Vec::new(), 1)).await.unwrap_err() {
            ReceiveError::Disconnected { epoch, by, .. } => {
                assert_eq!((epoch.map(|e| e.get()), by.as_deref()), (Some(4), Some("new")));
            }
            other => panic!("{other}"),
        }
    }
    drop(new);
}

#[tokio::test]
async fn a_receiver_in_the_middle_of_a_log_goes_on_where_it_was() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve().await;
    for number in 0..200 {
        test_hub.hub.producer().send_to(PartitionId(0), NewEvent::new(number.to_string())).await.unwrap();
    }
    let proxy = Proxy::reliable(served.address).await;
    let options = EventHubOptions { backoff: QUICK_BACKOFF, ..quick() };
    let client = served.builder_at(proxy.address).options(options).build().unwrap();
    let start = StartPosition::after(SequenceNumber(49));
    let small = OpenRequest { start, prefetch_events: 7, ..request("reader", Some(1)) };
    let mut receiver = client.open(small).await.unwrap();
    let mut numbers = Vec::new();
    for _ in 0..50 {
        let events = within(20, receive(&mut receiver, 3)).await;
        numbers.extend(events.iter().map(|event| event.sequence.0));
        proxy.cut();
    }
    assert_eq!(numbers, Vec::from_iter(50..200));
}

#[tokio::test]
async fn a_silent_hub_is_not_waited_for_to_close() {
    let test_hub = TestHub::new(1);
    let served = test_hub.serve().await;
    let proxy = FaultyProxy::start(served.address, None).await;
    let timeout = Duration::from_millis(1_500);
    let options = EventHubOptions {
        // The graceful close takes longer than that: a caller that had to wait for it would give up.
        connect_time: timeout,
        answer_time: timeout,
        attempts: 1,
        idle_time: Duration::from_millis(300),
        ..quick()
    };
    let client = served.builder_at(proxy.address).options(options).build().unwrap();
    let mut receiver = client.open(request("owner", Some(1))).await.unwrap();
    proxy.silence();
    test_hub.hub.producer().send_to(PartitionId(0), NewEvent::new("unheard")).await.unwrap();
    assert_eq!(texts(&within(20, receive(&mut receiver, 1)).await), ["unheard"]);
    assert_eq!(proxy.connections(), 2);
}
