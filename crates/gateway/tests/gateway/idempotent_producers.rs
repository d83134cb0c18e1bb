//! Tests of idempotent producers on connections that break while the disk is slow or fails: every
//! acknowledged event is on disk, and stored once.

mod random_runs;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ephor_amqp::connection::{ClientSasl, Event, LinkId};
use ephor_amqp::performative::{Attach, Outcome, Secret};
use ephor_amqp::{Encoded, Value, encode};
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, Receiver};
use ephor_gateway::{Gateway, GatewayConfig};
use ephor_hub::files::Files;
use ephor_hub::{Hub, HubConfig, LocalNamespace, NamespaceConfig, Target};
use ephor_wire::connection_string::{DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME};
use ephor_wire::management::Query;
use tokio::io::DuplexStream;
use tokio::task::JoinSet;

use crate::blocking_files::{Gate, Gated, Gates};
use crate::client::{Client, encoded};
use crate::faulty_files::{Fate, FaultyFiles};
use crate::server::{HUB, within};

/// Capacity of a stream in memory.
const STREAM: usize = 64 << 10;
/// Bytes of sends that may wait for the disk: as much as the largest event.
const QUEUE_BYTES: u64 = 1 << 20;
const PARTITION: PartitionId = PartitionId(0);
/// The producer id of every test.
const PRODUCER: i64 = 7;

/// A gateway over streams in memory, to a hub on files that the test chooses.
struct TestGateway {
    hub: Hub,
    gateway: Gateway,
    _namespace: Arc<LocalNamespace>,
}

/// A client, and the gateway's task for its connection.
struct TestConnection {
    client: Client,
    task: JoinSet<()>,
}

fn namespace(files: Arc<dyn Files>) -> LocalNamespace {
    let config = NamespaceConfig {
        queue_bytes: QUEUE_BYTES,
        // The tests read what is in the files.
        recent_bytes: 0,
        ..NamespaceConfig::default()
    };
    LocalNamespace::on(files, config, Arc::new(ephor_runtime::environment::SystemClock)).unwrap()
}

impl TestGateway {
    async fn on(files: Arc<dyn Files>) -> Self {
        let namespace = Arc::new(namespace(files));
        let hub = namespace.create_hub(HubConfig::new(HUB, 1).unwrap()).unwrap();
        let gateway = Gateway::new(namespace.clone(), GatewayConfig::default()).unwrap();
        let test = Self { hub, gateway, _namespace: namespace };
        // A gateway asks a hub for its properties once, which may wait for the disk.
        test.connect().await.client.sender(HUB).await;
        test
    }

    async fn connect(&self) -> TestConnection {
        let (ours, theirs) = tokio::io::duplex(STREAM);
        let mut task = JoinSet::new();
        task.spawn(serve(self.gateway.clone(), theirs));
        let sasl = ClientSasl::Plain {
            user: DEVELOPMENT_KEY_NAME.to_owned(),
            password: Secret::new(DEVELOPMENT_KEY.as_bytes()),
        };
        TestConnection { client: Client::over(ours, sasl).await.unwrap(), task }
    }
}

async fn serve(gateway: Gateway, stream: DuplexStream) {
    let peer: SocketAddr = (Ipv4Addr::LOCALHOST, 1).into();
    Box::pin(gateway.serve_stream(stream, peer)).await;
}

impl TestConnection {
    /// Attaches as the producer that knows no number after `last` to be stored. Returns the number that the
    /// gateway answers.
    async fn producer(&mut self, last: i32) -> (LinkId, i32) {
        self.producer_with(Value::Int(last)).await
    }

    async fn producer_with(&mut self, last: Value<'_>) -> (LinkId, i32) {
        let mut attach = Attach::sender("numbered", format!("{HUB}/Partitions/0"));
        attach.desired_capabilities = Some(Encoded::symbols(["com.microsoft:idempotent-producer"]));
        attach.properties = Some(Encoded::map([
            ("com.microsoft:producer-id", Value::Long(PRODUCER)),
            ("com.microsoft:producer-epoch", Value::Short(0)),
            ("com.microsoft:producer-sequence-number", last),
        ]));
        let (link, answer) = self.client.attach(attach).await.unwrap();
        while self.client.connection().credit(link) == 0 {
            self.client.wait(|event| matches!(event, Event::Credit { .. }).then_some(())).await;
        }
        let properties = answer.properties.unwrap();
        let Some(Value::Int(last)) = properties.get("com.microsoft:producer-sequence-number") else {
            panic!("{properties:?}")
        };
        (link, last)
    }

    /// Sends events, and returns when the gateway has begun to handle them. Does not wait for their outcomes.
    async fn begin(&mut self, link: LinkId, numbers: std::ops::Range<i32>) {
        for number in numbers {
            let sent = self.client.connection().send(link, 0, false, &[&numbered(number)]);
            assert!(matches!(sent, ephor_amqp::connection::Sent::Sent(_)), "{sent:?}");
        }
        // Frames are read in order, and sends are begun before more is read.
        self.client.attach(Attach::receiver("replies", "$management")).await.unwrap();
    }

    async fn send(&mut self, link: LinkId, number: i32) -> Outcome {
        self.client.send(link, 0, &numbered(number)).await
    }

    /// Drops the client, and waits until the gateway has noticed.
    async fn lose(mut self) {
        drop(self.client);
        within(self.task.join_next()).await.unwrap().unwrap();
    }
}

/// An event with a number, which is also its body.
fn numbered(number: i32) -> Vec<u8> {
    let mut message = Vec::new();
    encode::described(&mut message, 0x72);
    let map = encode::begin(&mut message);
    encode::symbol(&mut message, "com.microsoft:producer-sequence-number");
    encode::int(&mut message, number);
    encode::end_map(&mut message, map, 1);
    message.extend_from_slice(&encoded(&NewEvent::new(number.to_string())));
    message
}

/// The numbers of the events that are stored, in order; other events count as -1.
async fn stored(hub: &Hub) -> Vec<i32> {
    let last = hub.partition_properties(PARTITION).await.unwrap().last.map(|last| last.sequence);
    let mut reader = hub.reader(PARTITION, StartPosition::Earliest).await.unwrap();
    let mut events = Vec::new();
    while events.last().map(|event: &ephor_core::event::Event| event.sequence) != last {
        reader.receive(&mut events, 100).await.unwrap();
    }
    events.iter().map(|event| event.text().and_then(|text| text.parse().ok()).unwrap_or(-1)).collect()
}

/// Waits until an operation waits for the disk.
async fn at(gate: &Arc<Gate>) {
    let gate = gate.clone();
    within(tokio::task::spawn_blocking(move || gate.waiting())).await.unwrap();
}

/// Lets everything happen that does not depend on the disk: another client talks with the gateway for a
/// while.
async fn meanwhile(gateway: &TestGateway) {
    let mut other = gateway.connect().await;
    for _ in 0..10 {
        let query = Query::Hub { hub: HUB.parse().unwrap() };
        assert_eq!(other.client.describe("$management", &query).await.0, 200);
    }
}

/// Opens its gates when it is dropped: a hub whose disk does not answer cannot be closed, and a test that
/// fails would hang.
struct Disk(Gates);

impl Drop for Disk {
    fn drop(&mut self) {
        self.0.syncs.set_shut(false);
    }
}

impl std::ops::Deref for Disk {
    type Target = Gates;

    fn deref(&self) -> &Gates {
        &self.0
    }
}

async fn gated() -> (TestGateway, Disk) {
    let (files, gates) = Gated::new();
    (TestGateway::on(files).await, Disk(gates))
}

#[tokio::test]
async fn a_repeat_is_not_acknowledged_before_the_first_is_on_disk() {
    let (gateway, gates) = gated().await;
    gates.syncs.set_shut(true);
    let mut first = gateway.connect().await;
    let (link, _) = first.producer(-1).await;
    first.begin(link, 0..1).await;
    at(&gates.syncs).await;
    first.lose().await;
    let mut second = gateway.connect().await;
    let (link, last) = second.producer(-1).await;
    assert_eq!(last, -1, "what is on its way may fail");
    let mut repeat = JoinSet::new();
    repeat.spawn(async move { second.send(link, 0).await });
    meanwhile(&gateway).await;
    assert!(repeat.try_join_next().is_none(), "acknowledged before it is on disk");
    gates.syncs.set_shut(false);
    assert_eq!(within(repeat.join_next()).await.unwrap().unwrap(), Outcome::Accepted);
    assert_eq!(stored(&gateway.hub).await, [0]);
}

#[tokio::test]
async fn a_restarted_producer_does_not_get_a_number_that_is_in_flight() {
    let (gateway, gates) = gated().await;
    gates.syncs.set_shut(true);
    let mut first = gateway.connect().await;
    let (link, _) = first.producer(-1).await;
    first.begin(link, 0..1).await;
    at(&gates.syncs).await;
    first.lose().await;
    let mut second = gateway.connect().await;
    let mut attaching = JoinSet::new();
    attaching.spawn(async move {
        let (link, last) = second.producer_with(Value::Null).await;
        (second.send(link, last + 1).await, last)
    });
    meanwhile(&gateway).await;
    assert!(attaching.try_join_next().is_none(), "nobody knows yet which number is the last");
    gates.syncs.set_shut(false);
    assert_eq!(within(attaching.join_next()).await.unwrap().unwrap(), (Outcome::Accepted, 0));
    assert_eq!(stored(&gateway.hub).await, [0, 1]);
}

#[tokio::test]
async fn what_waited_for_room_when_its_connection_was_lost_is_stored_when_it_is_sent_again() {
    let (gateway, gates) = gated().await;
    gates.syncs.set_shut(true);
    // More than the queue holds: it takes all the room until it is on disk.
    let large = NewEvent::new(vec![0; 600_000]);
    let producer = gateway.hub.producer();
    let mut filling = JoinSet::new();
    filling.spawn(async move {
        producer.send_batch(Target::Partition(PARTITION), [large.clone(), large]).await.unwrap();
    });
    at(&gates.syncs).await;
    let mut first = gateway.connect().await;
    let (link, _) = first.producer(-1).await;
    first.begin(link, 0..3).await;
    first.lose().await;
    let mut second = gateway.connect().await;
    let (link, last) = second.producer(-1).await;
    assert_eq!(last, -1);
    let mut repeats = JoinSet::new();
    repeats.spawn(async move {
        let mut outcomes = Vec::new();
        for number in 0..3 {
            outcomes.push(second.send(link, number).await);
        }
        outcomes
    });
    meanwhile(&gateway).await;
    gates.syncs.set_shut(false);
    let outcomes = within(repeats.join_next()).await.unwrap().unwrap();
    assert_eq!(outcomes, [Outcome::Accepted, Outcome::Accepted, Outcome::Accepted]);
    within(filling.join_next()).await.unwrap().unwrap();
    assert_eq!(stored(&gateway.hub).await, [-1, -1, 0, 1, 2]);
}

#[tokio::test]
async fn a_repeat_takes_over_from_a_connection_that_is_lost_while_it_waits() {
    let (gateway, gates) = gated().await;
    gates.syncs.set_shut(true);
    let large = NewEvent::new(vec![0; 600_000]);
    let producer = gateway.hub.producer();
    let mut filling = JoinSet::new();
    filling.spawn(async move {
        producer.send_batch(Target::Partition(PARTITION), [large.clone(), large]).await.unwrap();
    });
    at(&gates.syncs).await;
    let mut first = gateway.connect().await;
    let (link, _) = first.producer(-1).await;
    first.begin(link, 0..3).await;
    // All three are repeated at once while the first connection is still open.
    let mut second = gateway.connect().await;
    let (link, _) = second.producer(-1).await;
    second.begin(link, 0..3).await;
    first.lose().await;
    gates.syncs.set_shut(false);
    let mut accepted = 0;
    while accepted < 3 {
        let (count, outcome) = second.client.outcome().await;
        assert_eq!(outcome, Some(Outcome::Accepted));
        accepted += count;
    }
    within(filling.join_next()).await.unwrap().unwrap();
    assert_eq!(stored(&gateway.hub).await, [-1, -1, 0, 1, 2], "once each, in order");
}

#[tokio::test]
async fn what_failed_after_its_connection_was_lost_is_stored_when_it_is_sent_again() {
    let (gateway, gates) = gated().await;
    gates.syncs.set_shut(true);
    let mut first = gateway.connect().await;
    let (link, _) = first.producer(-1).await;
    first.begin(link, 0..1).await;
    at(&gates.syncs).await;
    first.lose().await;
    gates.syncs.fail_next();
    gates.syncs.set_shut(false);
    let mut second = gateway.connect().await;
    let (link, _) = second.producer(-1).await;
    // A delivery that comes while the first one fails is rejected.
    if second.send(link, 0).await != Outcome::Accepted {
        assert_eq!(second.send(link, 0).await, Outcome::Accepted);
    }
    assert_eq!(stored(&gateway.hub).await, [0]);
}

#[tokio::test]
async fn a_repeat_of_a_send_that_fails_learns_that_it_failed() {
    let (gateway, gates) = gated().await;
    gates.syncs.set_shut(true);
    let mut first = gateway.connect().await;
    let (link, _) = first.producer(-1).await;
    first.begin(link, 0..1).await;
    at(&gates.syncs).await;
    let mut second = gateway.connect().await;
    let (repeating, _) = second.producer(-1).await;
    second.begin(repeating, 0..1).await;
    gates.syncs.fail_next();
    gates.syncs.set_shut(false);
    for connection in [&mut first, &mut second] {
        assert!(matches!(connection.client.outcome().await, (1, Some(Outcome::Rejected(_)))));
    }
    assert!(stored(&gateway.hub).await.is_empty());
    assert_eq!(second.send(repeating, 0).await, Outcome::Accepted);
    assert_eq!(first.send(link, 0).await, Outcome::Accepted);
    assert_eq!(stored(&gateway.hub).await, [0]);
}

#[tokio::test]
async fn what_was_queued_behind_a_batch_that_failed_is_not_stored_before_it() {
    let (gateway, gates) = gated().await;
    gates.syncs.set_shut(true);
    let mut connection = gateway.connect().await;
    let (link, _) = connection.producer(-1).await;
    connection.begin(link, 0..1).await;
    at(&gates.syncs).await;
    let (other, _) = connection.producer(-1).await;
    connection.begin(other, 1..3).await;
    // Senders without numbers are not affected.
    let producer = gateway.hub.producer();
    let mut unnumbered = JoinSet::new();
    unnumbered.spawn(async move { producer.send_to(PARTITION, NewEvent::new("-1")).await });
    gates.syncs.fail_next();
    gates.syncs.set_shut(false);
    let mut failed = 0;
    while failed < 3 {
        let (count, outcome) = connection.client.outcome().await;
        assert!(matches!(outcome, Some(Outcome::Rejected(_))), "{outcome:?}");
        failed += count;
    }
    unnumbered.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(stored(&gateway.hub).await, [-1]);
    for number in 0..3 {
        assert_eq!(connection.send(link, number).await, Outcome::Accepted);
    }
    assert_eq!(stored(&gateway.hub).await, [-1, 0, 1, 2]);
}

#[tokio::test]
async fn what_is_stored_after_its_connection_was_lost_is_not_stored_again() {
    let (gateway, gates) = gated().await;
    gates.syncs.set_shut(true);
    let mut first = gateway.connect().await;
    let (link, _) = first.producer(-1).await;
    first.begin(link, 0..2).await;
    at(&gates.syncs).await;
    first.lose().await;
    gates.syncs.set_shut(false);
    let mut second = gateway.connect().await;
    let (link, _) = second.producer(-1).await;
    for number in 0..3 {
        assert_eq!(second.send(link, number).await, Outcome::Accepted);
    }
    assert_eq!(stored(&gateway.hub).await, [0, 1, 2]);
}
