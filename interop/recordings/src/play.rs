//! Replays the conversations of one test against a gateway with a hub in memory, on virtual time.
//!
//! Frames go in the recorded order, at the recorded times: waiting costs nothing. Where the service answered, the answer
//! of the gateway is awaited for [`GRACE`] longer, and compared.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ephor_amqp::frame::{HEARTBEAT, Protocol};
use ephor_core::time::Clock;
use ephor_gateway::{Gateway, GatewayConfig};
use ephor_hub::files::MemoryFiles;
use ephor_hub::{Durability, HubConfig, LocalNamespace, NamespaceConfig};
use ephor_runtime::environment::SystemClock;
use ephor_testkit::VirtualEnvironment;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::client::{self, Signature};
use crate::compare::{self, Pairs};
use crate::connection::{Answer, Connection};
use crate::conversation_state::Playing;
use crate::initial_state::{Index, Place, Preparation, prepare, whole};
use crate::recording::{Conversation, Direction, Frame, Group};
use crate::report::{Difference, Outcome};
use crate::schema;

/// The longest time for which the conversations of one test are played, on the machine's own clock.
const MAX_TIME: Duration = Duration::from_secs(120);
/// The time by which an answer may come later than the service's.
const GRACE: Duration = Duration::from_secs(2);
/// The time for which a conversation has to go on after an answer that the service did not give: the service may only
/// have been slower than the client's end.
const SETTLED: Duration = Duration::from_secs(1);
/// The time between two looks at all connections.
const READING_INTERVAL: Duration = Duration::from_millis(100);
/// The buffer of a stream, in bytes: more than any conversation has under way.
const STREAM_BYTES: usize = 16 << 20;
/// Links that the recording does not have; see [`Player::partition_link`].
const OWN_LINK: &str = "own-link-to-partition-";
const FIRST_OWN_HANDLE: u32 = 100;

/// Plays a group. Must be called in a runtime with paused time.
pub(crate) async fn play(group: &Group) -> Result<Outcome, String> {
    let mut player = Player::new(group)?;
    let began = SystemClock.now();
    for index in player.order() {
        player.step(index).await;
        if SystemClock.now().since(began) > MAX_TIME {
            let name = &player.conversation(index).name;
            return Err(format!("{name}: not finished after {} s", MAX_TIME.as_secs()));
        }
    }
    Ok(player.outcome)
}

struct Player<'a> {
    group: &'a Group,
    prepared: Preparation,
    environment: VirtualEnvironment,
    gateway: Gateway,
    tasks: JoinSet<()>,
    started: Instant,
    first_time: i128,
    connections: BTreeMap<usize, Playing>,
    /// The messages of the service, by the first frame of each.
    messages: BTreeMap<Index, Vec<u8>>,
    pairs: Pairs,
    outcome: Outcome,
}

impl<'a> Player<'a> {
    fn new(group: &'a Group) -> Result<Self, String> {
        let prepared = prepare(group);
        let environment = VirtualEnvironment::new();
        let config = NamespaceConfig { durability: Durability::Memory, ..NamespaceConfig::default() };
        let files = Arc::new(MemoryFiles::default());
        let namespace = LocalNamespace::on(files, config, Arc::new(environment.clone())).map_err(text)?;
        for (name, hub) in &prepared.hubs {
            let mut config = HubConfig::new(name, hub.partitions).map_err(text)?;
            for group in &hub.groups {
                config.groups.push(group.parse().map_err(text)?);
            }
            namespace.create_hub(config).map_err(text)?;
        }
        let gateway = Gateway::with_environment(
            Arc::new(namespace),
            GatewayConfig::default(),
            Arc::new(environment.clone()),
        )
        .map_err(text)?;
        let times = group.conversations.iter().flat_map(|conversation| &conversation.frames);
        let first_time = times.map(|frame| frame.time).min().unwrap_or(0);
        let empty = group.conversations.iter().filter(|conversation| conversation.frames.is_empty());
        let empty = empty.map(|conversation| conversation.name.clone()).collect();
        let mut messages = BTreeMap::new();
        for (conversation, recorded) in group.conversations.iter().enumerate() {
            for (number, _, message) in whole(&recorded.frames, Direction::Service) {
                messages.insert((conversation, number), message);
            }
        }
        Ok(Self {
            group,
            prepared,
            pairs: Pairs::starting(first_time, environment.wall()),
            environment,
            gateway,
            tasks: JoinSet::new(),
            started: Instant::now(),
            first_time,
            connections: BTreeMap::new(),
            messages,
            outcome: Outcome { empty, ..Outcome::default() },
        })
    }

    /// All frames of the group in the order of time.
    fn order(&self) -> Vec<Index> {
        let mut order: Vec<_> = (0..self.group.conversations.len())
            .flat_map(|conversation| {
                let frames = &self.group.conversations[conversation].frames;
                frames.iter().enumerate().map(move |(number, frame)| (frame.time, (conversation, number)))
            })
            .collect();
        // Frames of one conversation keep their order even where their times are equal.
        order.sort();
        order.into_iter().map(|(_, index)| index).collect()
    }

    fn conversation(&self, index: Index) -> &'a Conversation {
        &self.group.conversations[index.0]
    }

    fn time_of(&self, frame: &Frame) -> Instant {
        let since = u64::try_from(frame.time - self.first_time).unwrap_or(0);
        self.started + Duration::from_nanos(since)
    }

    async fn step(&mut self, index: Index) {
        let conversation = self.conversation(index);
        let frame = &conversation.frames[index.1];
        self.advance(self.time_of(frame)).await;
        if !self.connections.contains_key(&index.0) {
            let playing = self.connect(index.0, conversation).await;
            self.connections.insert(index.0, playing);
            self.outcome.conversations += 1;
        }
        let Some(mut playing) = self.connections.remove(&index.0) else { return };
        match frame.direction {
            Direction::Client => self.send(index, frame, &mut playing).await,
            Direction::Service => self.expect(index, frame, &mut playing).await,
        }
        if index.1 + 1 == conversation.frames.len() {
            self.finish(conversation, frame, &mut playing).await;
        }
        self.connections.insert(index.0, playing);
    }

    /// Lets time pass until then, and reads what comes meanwhile, so that every answer is known with its time.
    async fn advance(&mut self, until: Instant) {
        loop {
            for playing in self.connections.values_mut() {
                playing.connection.drain().await;
            }
            let now = Instant::now();
            if now >= until {
                return;
            }
            sleep_until(until.min(now + READING_INTERVAL)).await;
        }
    }

    async fn connect(&mut self, index: usize, conversation: &Conversation) -> Playing {
        let (ours, theirs) = tokio::io::duplex(STREAM_BYTES);
        let gateway = self.gateway.clone();
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        self.tasks.spawn(async move { Box::pin(gateway.serve_stream(theirs, peer)).await });
        let mut connection = Connection::new(ours);
        connection.write(&Protocol::Sasl.header()).await;
        Playing::new(connection, conversation, self.prepared.elsewhere.contains(&index))
    }

    async fn send(&mut self, index: Index, frame: &Frame, playing: &mut Playing) {
        let bytes = match frame.kind.as_str() {
            "SASLInit" => client::sasl_init(&frame.body),
            "Open" => {
                playing.connection.write(&Protocol::Amqp.header()).await;
                client::open(&frame.body)
            }
            "Begin" => {
                playing.channel = frame.channel;
                client::begin(frame)
            }
            "Attach" => client::attach(frame, |selector| self.pairs.translate(&frame.address, selector)),
            "Flow" => {
                let received = playing.connection.received.get(&frame.link).copied().unwrap_or(0);
                let count = frame.client_receives.then_some(received);
                client::flow(frame, playing.connection.next_incoming, count)
            }
            "Transfer" => self.transfer(index, frame, playing).await,
            "Empty" => HEARTBEAT.to_vec(),
            _ => match client::ending(frame) {
                Some(bytes) => bytes,
                None => return,
            },
        };
        playing.connection.write(&bytes).await;
    }

    async fn transfer(&mut self, index: Index, frame: &Frame, playing: &mut Playing) -> Vec<u8> {
        let number = u32::try_from(playing.sent.len()).unwrap_or(u32::MAX);
        let mut handle = playing.handles.get(&frame.link).copied().unwrap_or(0);
        if frame.body.is_null() {
            playing.sent.insert(number, frame.link.clone());
            let signature = self.prepared.signatures.get(&index).copied().unwrap_or(Signature::Valid);
            let message = client::request(frame, &playing.host, self.environment.wall(), signature);
            return client::transfer(frame, playing.channel, handle, number, &message);
        }
        let number =
            frame.body["DeliveryID"].as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or(number);
        playing.sent.insert(number, frame.link.clone());
        if let Some(partition) = self.prepared.partitions.get(&index).cloned() {
            handle = self.partition_link(frame, &partition, playing).await;
            playing.going_to.insert(frame.link.clone(), handle);
        } else if let Some(same) = playing.going_to.get(&frame.link) {
            handle = *same;
        }
        if frame.body["More"] != serde_json::Value::Bool(true) {
            playing.going_to.remove(&frame.link);
        }
        client::transfer(frame, frame.channel, handle, number, &client::payload(frame))
    }

    /// The handle of a link to the partition that the service chose for an event without a key. The event goes there
    /// instead of to the hub, because the hub would choose by itself; its outcome is compared all the same.
    async fn partition_link(&self, frame: &Frame, partition: &str, playing: &mut Playing) -> u32 {
        let hub = Place::of(&frame.address).map(|place| place.hub).unwrap_or_default();
        let name = format!("{OWN_LINK}{partition}");
        if let Some(handle) = playing.own_links.get(&name) {
            return *handle;
        }
        let handle = FIRST_OWN_HANDLE + u32::try_from(playing.own_links.len()).unwrap_or(0);
        let address = format!("amqps://{}/{hub}/Partitions/{partition}", playing.host);
        let bytes = client::partition_sender(frame.channel, &name, handle, &address);
        playing.connection.write(&bytes).await;
        let until = Instant::now() + GRACE;
        let credit = |answer: &Answer| answer.performative.name == "flow" && answer.link == name;
        playing.connection.wait(until, credit).await;
        playing.own_links.insert(name, handle);
        handle
    }

    async fn expect(&mut self, index: Index, frame: &Frame, playing: &mut Playing) {
        // Heartbeats have no field.
        let Some(performative) = schema::recorded(&frame.kind) else { return };
        let conversation = self.conversation(index);
        if playing.connection.ended && playing.connection.inbox.is_empty() && !playing.missing.is_empty() {
            return;
        }
        let body = &frame.body;
        let until = self.time_of(frame).max(Instant::now());
        let key = (frame.kind.clone(), frame.link.clone());
        let until = if playing.missing.contains(&key) { until } else { until + GRACE };
        let mut expected = vec![None];
        let mut message = Vec::new();
        if frame.kind == "Transfer" {
            // A delivery of several frames is compared at its first one, which awaits the last.
            let Some(whole) = self.messages.remove(&index) else { return };
            message = whole;
        }
        if frame.kind == "Disposition" {
            let first = body["First"].as_u64().unwrap_or(0);
            let last = body["Last"].as_u64().unwrap_or(first);
            let client_receives = body["Role"] == serde_json::Value::Bool(false);
            expected = (first..=last)
                .map(|id| {
                    let id = u32::try_from(id).unwrap_or(u32::MAX);
                    let ours = if client_receives { playing.numbers.get(&id).copied() } else { Some(id) };
                    Some((ours.unwrap_or(u32::MAX), client_receives))
                })
                .collect();
        }
        for delivery in expected {
            self.outcome.frames += 1;
            let fits = |answer: &Answer| {
                answer.performative == performative
                    && match delivery {
                        Some(delivery) => answer.delivery == Some(delivery),
                        None => answer.link == frame.link,
                    }
            };
            let found = playing.connection.wait(until, fits).await;
            let place = playing.place(frame, delivery);
            let Some(answer) = found else {
                playing.missing.insert(key.clone());
                let service =
                    compare::summary(performative, &compare::service(performative, frame, &message).0);
                let ours = if playing.connection.ended { "the connection has ended" } else { "nothing" };
                let kind = format!("{place} {} (missing)", performative.name);
                self.differ(conversation, frame, kind, service, ours.to_owned());
                continue;
            };
            if let (Some(theirs), Some((ours, _))) = (body["DeliveryID"].as_u64(), answer.delivery) {
                let theirs = u32::try_from(theirs).unwrap_or(u32::MAX);
                playing.numbers.insert(theirs, ours);
                playing.delivered.insert(ours, frame.link.clone());
            }
            let (service, marks) = compare::service(performative, frame, &message);
            self.pairs.learn(&frame.address, &marks, &answer.marks);
            for (path, service, ours) in compare::compare(&self.pairs, &service, &answer.fields) {
                let kind = format!("{place} {}.{path}", performative.name);
                self.differ(conversation, frame, kind, service, ours);
            }
        }
    }

    fn differ(
        &mut self,
        recorded: &Conversation,
        frame: &Frame,
        kind: String,
        service: String,
        ours: String,
    ) {
        let conversation = recorded.name.clone();
        self.outcome.differences.push(Difference { conversation, frame: frame.line, kind, service, ours });
    }

    /// Reports answers that the service did not give, if it had the time for them.
    async fn finish(&mut self, conversation: &Conversation, last: &Frame, playing: &mut Playing) {
        playing.connection.drain().await;
        let end = self.time_of(last);
        for answer in std::mem::take(&mut playing.connection.inbox) {
            let name = answer.performative.name;
            let in_time = answer.at + SETTLED <= end;
            let answers_the_end =
                matches!(name, "detach" | "end" | "close") && !answer.fields.contains_key("error");
            if !in_time || answers_the_end || answer.link.starts_with(OWN_LINK) {
                continue;
            }
            let place = match (answer.delivery, playing.places.get(&answer.link)) {
                (Some((id, false)), _) => playing.place_of(playing.sent.get(&id)),
                (_, Some(place)) => place,
                (_, None) => "connection",
            };
            let ours = compare::summary(answer.performative, &answer.fields);
            self.differ(conversation, last, format!("{place} {name} (extra)"), "nothing".to_owned(), ours);
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
