//! One AMQP connection of a fuzzed producer, which may break at any time.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use ephor_amqp::connection::{ClientSasl, Config, Event, LinkId, Sent, SessionId};
use ephor_amqp::driver::Driver;
use ephor_amqp::performative::{Attach, Outcome, Secret};
use ephor_amqp::{Connection, Encoded, Value, encode};
use ephor_core::event::NewEvent;
use ephor_wire::batch::MESSAGE_FORMAT;
use ephor_wire::connection_string::{DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME};
use ephor_wire::message;
use ephor_wire::names::{IDEMPOTENT_PRODUCER, PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQUENCE_NUMBER};
use tokio::io::DuplexStream;
use tokio::task::JoinSet;

use super::Known;
use super::server::{HUB, ServedHub};

/// The buffer size of a stream.
const STREAM: usize = 64 << 10;

pub(super) struct ProducerConnection {
    driver: Driver<DuplexStream>,
    session: SessionId,
    link: LinkId,
    producer: i64,
    /// The gateway's task.
    task: JoinSet<()>,
    /// The sequence numbers of deliveries without an answer yet, by delivery id.
    waiting: BTreeMap<u32, Range<i32>>,
    /// Outcomes that arrived while waiting for something else.
    settled: Vec<(u32, bool)>,
    /// The last stored number, as the gateway reported it.
    pub(super) last_told: i32,
    attached: usize,
}

impl ProducerConnection {
    /// Connects and attaches as the producer, which claims to know of no stored event.
    pub(super) async fn open(served: &ServedHub, producer: i64) -> Self {
        let (ours, theirs) = tokio::io::duplex(STREAM);
        let (gateway, mut task) = (served.gateway.clone(), JoinSet::new());
        let peer: SocketAddr = (Ipv4Addr::LOCALHOST, 1).into();
        task.spawn(async move { Box::pin(gateway.serve_stream(theirs, peer)).await });
        let sasl = ClientSasl::Plain {
            user: DEVELOPMENT_KEY_NAME.to_owned(),
            password: Secret::new(DEVELOPMENT_KEY.as_bytes()),
        };
        let connection = Connection::client(Config::new("producer"), sasl, Duration::ZERO);
        let mut driver = Driver::new(ours, connection);
        while !matches!(driver.next().await.expect("the connection lasts"), Event::Opened(_)) {}
        let session = driver.connection().begin().expect("a session");
        let mut attach = Attach::sender("numbered", format!("{HUB}/Partitions/0"));
        attach.desired_capabilities = Some(Encoded::symbols([IDEMPOTENT_PRODUCER]));
        attach.properties = Some(Encoded::map([
            (PRODUCER_ID, Value::Long(producer)),
            (PRODUCER_EPOCH, Value::Short(0)),
            (PRODUCER_SEQUENCE_NUMBER, Value::Int(-1)),
        ]));
        let link = driver.connection().attach(session, attach).expect("a link");
        let mut connection = Self {
            driver,
            session,
            link,
            producer,
            task,
            waiting: BTreeMap::new(),
            settled: Vec::new(),
            last_told: -1,
            attached: 0,
        };
        let told = connection.attached(link).await.properties.expect("the properties of the producer");
        let Some(Value::Int(last)) = told.get(PRODUCER_SEQUENCE_NUMBER) else { panic!("{told:?}") };
        connection.last_told = last;
        while connection.driver.connection().credit(link) == 0 {
            connection.next().await;
        }
        connection
    }

    /// Sends events from this number on in one batch. When it returns, the gateway has begun to handle them.
    pub(super) async fn send(&mut self, first: i32, count: i32) {
        let mut batch = Vec::new();
        for number in first..first + count {
            encode::described(&mut batch, 0x75);
            encode::binary(&mut batch, &self.event(number));
        }
        let sent = self.driver.connection().send(self.link, MESSAGE_FORMAT, false, &[&batch]);
        let Sent::Sent(delivery) = sent else { panic!("the gateway accepts nothing: {sent:?}") };
        self.waiting.insert(delivery, first..first + count);
        // Frames are read in order, and the gateway begins earlier sends before it reads on.
        self.attached += 1;
        let attach = Attach::receiver(format!("replies {}", self.attached), "$management");
        let asked = self.driver.connection().attach(self.session, attach).expect("a link");
        self.attached(asked).await;
        self.driver.connection().detach(asked, None);
    }

    fn event(&self, number: i32) -> Vec<u8> {
        let mut event = Vec::new();
        encode::described(&mut event, 0x72);
        let map = encode::begin(&mut event);
        encode::symbol(&mut event, PRODUCER_SEQUENCE_NUMBER);
        encode::int(&mut event, number);
        encode::end_map(&mut event, map, 1);
        let body = NewEvent::new(format!("{}/{number}", self.producer));
        message::encode(&body, &mut event).expect("an event");
        event
    }

    /// Waits for the outcome of everything that was sent. Refused events are to be sent again.
    pub(super) async fn hear(&mut self, known: &mut Known) {
        self.note(known);
        while !self.waiting.is_empty() {
            self.next().await;
            self.note(known);
        }
    }

    /// Handles the outcomes that have already arrived.
    pub(super) fn note(&mut self, known: &mut Known) {
        for (delivery, accepted) in std::mem::take(&mut self.settled) {
            let Some(numbers) = self.waiting.remove(&delivery) else { continue };
            match accepted {
                true => known.acknowledged.extend(numbers),
                // It may be refused because its first number is stored, but in another batch.
                false if known.acknowledged.contains(&numbers.start) => {}
                false => known.next = known.next.min(numbers.start),
            }
        }
    }

    /// Disconnects, and waits until the gateway has noticed.
    pub(super) async fn lose(mut self) {
        drop(self.driver);
        self.task.join_next().await.expect("its end").expect("no panic");
    }

    async fn attached(&mut self, wanted: LinkId) -> Box<Attach> {
        loop {
            if let Event::Attached { link, attach } = self.next().await
                && link == wanted
            {
                return attach;
            }
        }
    }

    async fn next(&mut self) -> Event {
        let event = self.driver.next().await.expect("the connection lasts");
        if let Event::Settled { first, last, outcome, .. } = &event {
            let accepted = outcome == &Some(Outcome::Accepted);
            self.settled.extend((*first..=*last).map(|delivery| (delivery, accepted)));
        }
        event
    }
}
