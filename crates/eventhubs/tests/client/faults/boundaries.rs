//! Tests of faults at every frame boundary, in both directions: cut, reset, half close, and delays shorter
//! and longer than the client's timeout.
//!
//! The guarantees, checked in each run:
//!
//! - a receiver returns every event of its partition once, in order;
//! - an acknowledged send is stored; messages are stored whole, and the first copies in the order in which
//!   they were sent; a message may be stored again only if its answer was lost with a connection, so with
//!   each lost connection at most as many as were in flight on a link.

use std::collections::BTreeSet;
use std::time::Duration;

use ephor_core::event::{Event, NewEvent};
use ephor_core::failure_policy::Backoff;
use ephor_core::ids::PartitionId;
use ephor_core::source::{EventSource, OpenRequest, Receiver};
use ephor_eventhubs::{EventHub, EventHubOptions, EventHubProducer, ProducerOptions, Target};
use futures_util::StreamExt;
use futures_util::future::{join, join_all};

use crate::common::faulty_proxy::{Direction, Fault, FaultyProxy, Plan};
use crate::common::{TestHub, quick, receive, request, texts, within};

/// The client's timeouts.
const TIMEOUT: Duration = Duration::from_millis(150);
/// A hold after which a client has long reconnected.
const LONG: Duration = Duration::from_millis(800);
/// A hold that a client hardly notices.
const SHORT: Duration = Duration::from_millis(30);

const FAULTS: [Fault; 9] = [
    Fault::Cut,
    Fault::Reset,
    Fault::HalfClose(Direction::Up),
    Fault::HalfClose(Direction::Down),
    Fault::Silence,
    Fault::Hold(SHORT),
    Fault::Hold(LONG),
    Fault::HoldOneWay(Direction::Up, LONG),
    Fault::HoldOneWay(Direction::Down, LONG),
];

/// The number of runs of each conversation without `EPHOR_CUT_RUNS`, which runs all of them.
const SAMPLE: usize = 200;
/// The number of concurrent runs: most of them wait.
const MAX_CONCURRENT: usize = 12;

/// The number of events to a partition in each of three rounds: before the receiver attaches, while it reads,
/// and after the fault.
const EVENTS: usize = 5;
/// The number of messages to each partition.
const MESSAGES: usize = 6;
/// The number of concurrent messages to the second partition.
const IN_FLIGHT: usize = 3;

/// Without a fault, a slow machine must not cause timeouts.
fn options(plan: Option<Plan>) -> EventHubOptions {
    if plan.is_none() {
        return quick();
    }
    EventHubOptions {
        attempts: 1_000,
        backoff: Backoff { first: Duration::from_millis(2), max: Duration::from_millis(20) },
        connect_time: TIMEOUT,
        answer_time: TIMEOUT,
        idle_time: 2 * TIMEOUT,
        ..EventHubOptions::default()
    }
}

/// The result of one conversation.
struct Outcome {
    /// The number of frames that the first connection carried, up and down.
    frames: [usize; 2],
    injected: bool,
    connections: usize,
    received: usize,
    /// The number of messages that were stored more than once.
    repeated: usize,
}

async fn outcome(proxy: &FaultyProxy, client: EventHub, received: usize, repeated: usize) -> Outcome {
    drop(client);
    // The client closes gracefully by itself, and that can be disturbed as well.
    proxy.first_ended().await;
    Outcome {
        frames: proxy.carried(),
        injected: proxy.was_injected(),
        connections: proxy.connections(),
        received,
        repeated,
    }
}

/// Waits until held frames have arrived, and, if another connection replaced the first, until the first has
/// ended.
async fn settle(proxy: &FaultyProxy) {
    proxy.hold_ended().await;
    if proxy.connections() > 1 {
        proxy.first_ended().await;
    }
}

async fn store(test_hub: &TestHub, partitions: u32, numbers: std::ops::Range<usize>) {
    for number in numbers {
        for partition in 0..partitions {
            let event = NewEvent::new(format!("{partition}/{number}"));
            test_hub.hub.producer().send_to(PartitionId(partition), event).await.unwrap();
        }
    }
}

/// Reads `EVENTS` events from each, in small steps.
async fn read_each(receivers: &mut [Box<dyn Receiver>], events: &mut [Vec<Event>]) {
    let reads = receivers.iter_mut().zip(events).map(|(receiver, into)| async move {
        let before = into.len();
        while into.len() < before + EVENTS {
            let left = before + EVENTS - into.len();
            receiver.receive(into, left.min(2)).await.unwrap();
        }
    });
    join_all(reads).await;
}

/// Receivers of all partitions on one connection.
async fn receiving(partitions: u32, plan: Option<Plan>) -> Outcome {
    let test_hub = TestHub::new(partitions);
    let served = test_hub.serve().await;
    store(&test_hub, partitions, 0..EVENTS).await;
    let proxy = FaultyProxy::start(served.address, plan).await;
    let client = served.builder_at(proxy.address).options(options(plan)).build().unwrap();
    if partitions > 1 {
        assert_eq!(client.hub_properties().await.unwrap().partitions.len(), partitions as usize);
    }
    let open = |partition| {
        let few = OpenRequest { prefetch_events: 4, ..request("reader", Some(3)) };
        client.open(OpenRequest { partition: PartitionId(partition), ..few })
    };
    let mut receivers = Vec::new();
    for opened in join_all((0..partitions).map(open)).await {
        receivers.push(opened.unwrap());
    }
    let mut events = vec![Vec::new(); partitions as usize];
    read_each(&mut receivers, &mut events).await;
    let more = store(&test_hub, partitions, EVENTS..2 * EVENTS);
    join(more, read_each(&mut receivers, &mut events)).await;
    settle(&proxy).await;
    store(&test_hub, partitions, 2 * EVENTS..3 * EVENTS).await;
    read_each(&mut receivers, &mut events).await;
    join_all(receivers.into_iter().map(|receiver| receiver.close())).await;
    for (partition, events) in events.iter().enumerate() {
        let expected: Vec<String> = (0..3 * EVENTS).map(|number| format!("{partition}/{number}")).collect();
        assert_eq!(texts(events), expected, "{plan:?}: none lost, none twice, in order");
    }
    outcome(&proxy, client, events.iter().map(Vec::len).sum(), 0).await
}

/// Sends one message of two events.
async fn send(producer: &EventHubProducer, partition: u32, number: usize) {
    let events = ["a", "b"].map(|half| NewEvent::new(format!("{number}{half}")));
    let target = Target::Partition(PartitionId(partition));
    assert_eq!(producer.send_batch(target, events).await.unwrap(), 2);
}

/// One sender that waits for each answer, and one that does not, on one connection.
async fn sending(plan: Option<Plan>) -> Outcome {
    let test_hub = TestHub::new(2);
    let served = test_hub.serve().await;
    let proxy = FaultyProxy::start(served.address, plan).await;
    let client = served.builder_at(proxy.address).options(options(plan)).build().unwrap();
    let producer = client.producer_with(ProducerOptions { in_flight: IN_FLIGHT });
    let one_by_one = async {
        for number in 0..MESSAGES {
            send(&producer, 0, number).await;
        }
    };
    join(one_by_one, join_all((0..MESSAGES).map(|number| send(&producer, 1, number)))).await;
    settle(&proxy).await;
    join(send(&producer, 0, MESSAGES), send(&producer, 1, MESSAGES)).await;
    let lost = proxy.connections() - 1;
    let (mut received, mut repeated) = (0, 0);
    for (partition, in_flight) in [(0, 1), (1, IN_FLIGHT)] {
        let stored = stored(&test_hub, partition).await;
        let mut seen = BTreeSet::new();
        let firsts: Vec<usize> = stored.iter().copied().filter(|number| seen.insert(*number)).collect();
        assert_eq!(firsts, Vec::from_iter(0..=MESSAGES), "{plan:?}: all of them, in order: {stored:?}");
        let again = stored.len() - firsts.len();
        assert!(again <= in_flight * lost, "{plan:?}: {lost} connections lost, stored {stored:?}");
        received += 2 * firsts.len();
        repeated += again;
    }
    drop(producer);
    outcome(&proxy, client, received, repeated).await
}

/// The messages of a partition, each of which must be whole.
async fn stored(test_hub: &TestHub, partition: u32) -> Vec<usize> {
    let partition = PartitionId(partition);
    let last = test_hub.hub.partition_properties(partition).await.unwrap().last.unwrap();
    let mut receiver = test_hub.hub.open(OpenRequest { partition, ..request("judge", None) }).await.unwrap();
    let events = receive(&mut receiver, usize::try_from(last.sequence.0).unwrap() + 1).await;
    let messages = texts(&events);
    let whole = messages.chunks(2).map(|halves| match halves {
        [a, b] if a.strip_suffix('a') == b.strip_suffix('b') => a.strip_suffix('a').unwrap(),
        other => panic!("half a message: {other:?} in {messages:?}"),
    });
    whole.map(|number| number.parse().unwrap()).collect()
}

/// Every boundary of the conversation with every fault, or a sample of them.
fn plans(frames: [usize; 2]) -> Vec<Plan> {
    let mut plans = Vec::new();
    for direction in Direction::BOTH {
        for frames in 0..=frames[direction as usize] {
            plans.extend(FAULTS.map(|fault| Plan { direction, frames, fault }));
        }
    }
    if std::env::var_os("EPHOR_CUT_RUNS").is_none() {
        let seed = std::env::var("EPHOR_SEED").ok().and_then(|text| text.parse().ok());
        fastrand::Rng::with_seed(seed.unwrap_or(1)).shuffle(&mut plans);
        plans.truncate(SAMPLE);
    }
    plans
}

/// Runs a conversation undisturbed, and then with a fault at each of its boundaries.
#[allow(clippy::print_stdout, reason = "how much was tried belongs to the result")]
async fn everywhere<F: Future<Output = Outcome>>(name: &str, converse: impl Fn(Option<Plan>) -> F) {
    let undisturbed = within(20, converse(None)).await;
    assert_eq!(
        (undisturbed.connections, undisturbed.repeated),
        (1, 0),
        "{name}: nothing happens where nobody harms"
    );
    let plans = plans(undisturbed.frames);
    let runs = plans.iter().map(|plan| {
        let run = converse(Some(*plan));
        async move {
            match tokio::time::timeout(Duration::from_secs(60), run).await {
                Ok(outcome) => outcome,
                Err(_) => panic!("{name} hangs with {plan:?}"),
            }
        }
    });
    let outcomes: Vec<Outcome> =
        futures_util::stream::iter(runs).buffer_unordered(MAX_CONCURRENT).collect().await;
    let sum = |count: fn(&Outcome) -> usize| outcomes.iter().map(count).sum::<usize>();
    let injected = sum(|outcome| usize::from(outcome.injected));
    // The last boundaries of a conversation are not always reached: frames may be combined differently in
    // each run.
    assert!(injected * 2 >= plans.len(), "{name}: only {injected} of {} were harmed", plans.len());
    println!(
        "{name}: {} boundaries x {} faults, {} runs, {injected} harmed, {} connections, {} events received, 0 lost, \
         0 repeated, {} messages stored again for want of an answer",
        undisturbed.frames[0] + undisturbed.frames[1] + 2,
        FAULTS.len(),
        plans.len(),
        sum(|outcome| outcome.connections),
        sum(|outcome| outcome.received),
        sum(|outcome| outcome.repeated),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn harm_at_a_frame_boundary_costs_a_receiver_nothing() {
    everywhere("one receiver", |plan| receiving(1, plan)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn harm_at_a_frame_boundary_costs_receivers_of_one_connection_nothing() {
    everywhere("three receivers", |plan| receiving(3, plan)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn harm_at_a_frame_boundary_repeats_at_most_what_was_in_flight() {
    everywhere("two senders", sending).await;
}
