//! A well-behaved client beside the fuzzed one: authenticates with the development key, sends, and receives
//! the same events.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, Config, Delivery, Event, LinkId, Sent, SessionId};
use ephor_amqp::driver::Driver;
use ephor_amqp::performative::{Attach, Outcome, Secret};
use ephor_core::event::NewEvent;
use ephor_wire::annotations::received;
use ephor_wire::connection_string::{DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME};
use ephor_wire::message;
use tokio::io::DuplexStream;

pub(super) struct Client {
    driver: Driver<DuplexStream>,
    /// Deliveries that arrived while waiting for something else.
    deliveries: VecDeque<Delivery>,
    sent: u64,
}

/// An attached sender link.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    session: SessionId,
    link: LinkId,
}

impl Client {
    /// Connects.
    pub(super) async fn open(stream: DuplexStream) -> Self {
        let sasl = ClientSasl::Plain {
            user: DEVELOPMENT_KEY_NAME.to_owned(),
            password: Secret::new(DEVELOPMENT_KEY.as_bytes()),
        };
        let connection = Connection::client(Config::new("well-behaved"), sasl, Duration::ZERO);
        let driver = Driver::new(stream, connection);
        let mut client = Self { driver, deliveries: VecDeque::new(), sent: 0 };
        client.wait(|event| matches!(event, Event::Opened(_)).then_some(())).await;
        client
    }

    /// Attaches a sender to a partition.
    pub(super) async fn sender(&mut self, hub: &str) -> Sender {
        let session = self.driver.connection().begin().expect("a session");
        let attach = Attach::sender("sender", format!("{hub}/Partitions/0"));
        let link = self.driver.connection().attach(session, attach).expect("a link");
        self.wait(|event| matches!(event, Event::Credit { .. }).then_some(())).await;
        Sender { session, link }
    }

    /// Attaches a receiver to the same partition, from its beginning.
    pub(super) async fn listen(&mut self, hub: &str, beside: Sender) {
        let source = format!("{hub}/ConsumerGroups/$Default/Partitions/0");
        let attach = Attach::receiver("receiver", source);
        let asked = self.driver.connection().attach(beside.session, attach).expect("a link");
        self.wait(|event| match event {
            Event::Attached { link, .. } if *link == asked => Some(()),
            _ => None,
        })
        .await;
        self.driver.connection().grant(asked, u32::MAX / 2);
    }

    /// Sends an event, which must be accepted.
    pub(super) async fn send(&mut self, to: Sender) {
        self.sent += 1;
        let mut bytes = Vec::new();
        message::encode(&NewEvent::new(self.body()), &mut bytes).expect("an event");
        let sent = self.driver.connection().send(to.link, 0, false, &[&bytes]);
        let Sent::Sent(number) = sent else { panic!("the gateway accepts nothing: {sent:?}") };
        let outcome = self.wait(|event| match event {
            Event::Settled { first, last, outcome, .. } if (*first..=*last).contains(&number) => {
                Some(outcome.clone())
            }
            _ => None,
        });
        assert_eq!(outcome.await, Some(Outcome::Accepted));
    }

    /// Receives the event that was sent last.
    pub(super) async fn receive(&mut self) {
        while self.deliveries.is_empty() {
            self.wait(|event| matches!(event, Event::Delivery(_)).then_some(())).await;
        }
        let delivery = self.deliveries.pop_front().expect("a delivery has arrived");
        let (event, _) = received(&delivery.payload).expect("an event");
        assert_eq!(event.body, self.body(), "no other client sends here");
    }

    pub(super) async fn close(&mut self) {
        self.driver.finish().await;
    }

    fn body(&self) -> Bytes {
        format!("event {}", self.sent).into()
    }

    /// Waits for an event; deliveries are kept.
    async fn wait<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        loop {
            let event = self.driver.next().await.expect("the connection lasts");
            assert!(
                !matches!(event, Event::Closed(_) | Event::Ended { .. } | Event::Detached { .. }),
                "a client that keeps the rules is refused: {event:?}"
            );
            let found = wanted(&event);
            if let Event::Delivery(delivery) = event {
                self.deliveries.push_back(delivery);
            }
            if let Some(found) = found {
                return found;
            }
        }
    }
}
