//! Test helper: an AMQP client that does what SDKs do, one step at a time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use ephor_amqp::connection::{ClientSasl, Closed, Config, Delivery, Event, LinkId, Sent, SessionId};
use ephor_amqp::driver::Driver;
use ephor_amqp::performative::{Attach, Error, Outcome};
use ephor_amqp::{Connection, Encoded, Value};
use ephor_core::event::NewEvent;
use ephor_core::time::{Clock, Timestamp};
use ephor_wire::cbs::{PutToken, TokenKind};
use ephor_wire::connection_string::{DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME};
use ephor_wire::management::Query;
use ephor_wire::message;
use ephor_wire::request_response::{RequestId, Response};
use ephor_wire::sas::{Key, sign};
use ephor_wire::selector::Start;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::server::{HUB, Server, within};

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(crate) struct Client {
    driver: Driver<Box<dyn Stream>>,
    session: Option<SessionId>,
    deliveries: VecDeque<Delivery>,
    /// Outcomes that were received while waiting for something else: the first and the last delivery of each.
    settled: VecDeque<(u32, u32, Option<Outcome>)>,
    requests: u64,
}

/// The result of an attach.
pub(crate) type Attached = Result<(LinkId, Box<Attach>), Error>;

impl Client {
    /// Connected and open, without any token (unauthenticated).
    pub(crate) async fn unauthenticated(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap(), ClientSasl::Anonymous).await.unwrap()
    }

    /// Connected, open, and authenticated with the development key.
    pub(crate) async fn of(server: &Server) -> Self {
        let mut client = Self::unauthenticated(server.address).await;
        assert_eq!(client.put_development_token().await.0, 202);
        client
    }

    pub(crate) async fn over(stream: impl Stream + 'static, sasl: ClientSasl) -> Result<Self, Closed> {
        Self::with(Config::new("test"), stream, sasl).await
    }

    /// A client with this product name in its `open`.
    pub(crate) async fn of_product(server: &Server, product: &str) -> Self {
        let properties = Some(Encoded::map([("product", Value::String(product))]));
        let config = Config { properties, ..Config::new("test") };
        let stream = TcpStream::connect(server.address).await.unwrap();
        let mut client = Self::with(config, stream, ClientSasl::Anonymous).await.unwrap();
        assert_eq!(client.put_development_token().await.0, 202);
        client
    }

    pub(crate) async fn with(
        config: Config,
        stream: impl Stream + 'static,
        sasl: ClientSasl,
    ) -> Result<Self, Closed> {
        let connection = Connection::client(config, sasl, Duration::ZERO);
        let driver = Driver::new(Box::new(stream) as Box<dyn Stream>, connection);
        let (deliveries, settled) = (VecDeque::new(), VecDeque::new());
        let mut client = Self { driver, session: None, deliveries, settled, requests: 0 };
        let opened = client
            .wait(|event| match event {
                Event::Opened(_) => Some(Ok(())),
                Event::Closed(closed) => Some(Err(closed.clone())),
                _ => None,
            })
            .await;
        opened?;
        client.session = client.driver.connection().begin();
        Ok(client)
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        self.driver.connection()
    }

    /// Waits for an event. Deliveries and outcomes that come meanwhile are kept.
    pub(crate) async fn wait<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        within(async {
            loop {
                let event = self.driver.next().await.expect("the connection ended");
                if let Some(found) = wanted(&event) {
                    return found;
                }
                match event {
                    Event::Delivery(delivery) => self.deliveries.push_back(delivery),
                    Event::Settled { first, last, outcome, .. } => {
                        self.settled.push_back((first, last, outcome));
                    }
                    _ => {}
                }
            }
        })
        .await
    }

    pub(crate) async fn attach(&mut self, attach: Attach) -> Attached {
        let session = self.session.expect("a session");
        let asked = self.driver.connection().attach(session, attach).expect("a link");
        self.wait(|event| match event {
            Event::Attached { link, attach } if *link == asked => Some(Ok((*link, attach.clone()))),
            Event::Detached { link, error } if *link == asked => {
                Some(Err(error.clone().expect("a reason for the refusal")))
            }
            _ => None,
        })
        .await
    }

    pub(crate) async fn sender(&mut self, address: &str) -> LinkId {
        let (link, attach) = self.attach(Attach::sender("sender", address)).await.unwrap();
        assert!(attach.max_message_size.unwrap() > 0, "SDKs send nothing otherwise");
        self.wait(|event| matches!(event, Event::Credit { .. }).then_some(())).await;
        link
    }

    pub(crate) async fn receiver(&mut self, partition: u32, start: Start) -> LinkId {
        let address = format!("{HUB}/ConsumerGroups/$Default/Partitions/{partition}");
        self.attach(receiver(&address, &start, None, &[])).await.unwrap().0
    }

    /// Sends a message and waits for its outcome.
    pub(crate) async fn send(&mut self, link: LinkId, format: u32, message: &[u8]) -> Outcome {
        let Sent::Sent(id) = self.driver.connection().send(link, format, false, &[message]) else {
            panic!("not sent");
        };
        self.wait(|event| match event {
            Event::Settled { first, last, outcome, .. } if (*first..=*last).contains(&id) => outcome.clone(),
            _ => None,
        })
        .await
    }

    /// The next outcome of messages that were sent without waiting, and the number of deliveries that it is
    /// for.
    pub(crate) async fn outcome(&mut self) -> (u32, Option<Outcome>) {
        let (first, last, outcome) = match self.settled.pop_front() {
            Some(settled) => settled,
            None => {
                self.wait(|event| match event {
                    Event::Settled { first, last, outcome, .. } => Some((*first, *last, outcome.clone())),
                    _ => None,
                })
                .await
            }
        };
        (last - first + 1, outcome)
    }

    /// The link and the payload of the next delivery.
    pub(crate) async fn delivery(&mut self) -> (LinkId, Bytes) {
        if let Some(delivery) = self.deliveries.pop_front() {
            return (delivery.link, delivery.payload);
        }
        self.wait(|event| match event {
            Event::Delivery(delivery) => Some((delivery.link, delivery.payload.clone())),
            _ => None,
        })
        .await
    }

    /// True if a delivery was received already.
    pub(crate) fn has_delivery(&self) -> bool {
        !self.deliveries.is_empty()
    }

    /// Waits until a link is detached, and returns the error.
    pub(crate) async fn detached(&mut self, wanted: LinkId) -> Error {
        self.wait(|event| match event {
            Event::Detached { link, error } if *link == wanted => Some(error.clone().expect("a reason")),
            _ => None,
        })
        .await
    }

    /// Waits for the end of the connection.
    pub(crate) async fn closed(&mut self) -> Closed {
        self.wait(|event| match event {
            Event::Closed(closed) => Some(closed.clone()),
            _ => None,
        })
        .await
    }

    /// Sends a request to a node, and returns the status, the description and the whole answer.
    pub(crate) async fn ask(
        &mut self,
        node: &str,
        write: impl FnOnce(&RequestId, &mut Vec<u8>),
    ) -> (i32, String, Bytes) {
        let (replies, _) = self.attach(Attach::receiver("replies", node)).await.unwrap();
        self.driver.connection().grant(replies, 1);
        let (requests, _) = self.attach(Attach::sender("requests", node)).await.unwrap();
        self.requests += 1;
        let mut message = Vec::new();
        write(&RequestId::number(self.requests), &mut message);
        let session = self.session;
        let connection = self.driver.connection();
        assert_eq!(connection.session_of(requests), session);
        while self.driver.connection().credit(requests) == 0 {
            self.wait(|event| matches!(event, Event::Credit { .. }).then_some(())).await;
        }
        assert_eq!(self.send(requests, 0, &message).await, Outcome::Accepted);
        let (link, answer) = self.delivery().await;
        assert_eq!(link, replies);
        let response = Response::read(&answer).unwrap();
        assert_eq!(response.id.as_ref().and_then(RequestId::as_number), Some(self.requests));
        let answered = (response.status, response.description.unwrap_or_default().to_owned());
        for link in [replies, requests] {
            self.driver.connection().detach(link, None);
            self.wait(|event| {
                matches!(event, Event::Detached { link: gone, .. } if *gone == link).then_some(())
            })
            .await;
        }
        (answered.0, answered.1, answer)
    }

    pub(crate) async fn put_token(&mut self, audience: &str, token: &str) -> (i32, String) {
        let put = PutToken { audience, kind: TokenKind::Sas, token, expires_at: None };
        let (status, text, _) = self.ask("$cbs", |id, into| put.write(id, "replies", into)).await;
        (status, text)
    }

    pub(crate) async fn put_development_token(&mut self) -> (i32, String) {
        let token = token(DEVELOPMENT_KEY_NAME, DEVELOPMENT_KEY, Duration::from_secs(3600));
        self.put_token("sb://localhost/", &token).await
    }

    pub(crate) async fn describe(&mut self, node: &str, query: &Query) -> (i32, String, Bytes) {
        self.ask(node, |id, into| query.write(id, "replies", None, into)).await
    }
}

/// A token for the whole namespace that is valid for this time from now on.
pub(crate) fn token(name: &str, key: &str, life: Duration) -> String {
    sign("sb://localhost/", name, &Key::new(key), now() + life)
}

pub(crate) fn now() -> Timestamp {
    ephor_runtime::environment::SystemClock.wall()
}

/// The attach of a receiver, as SDKs write it.
pub(crate) fn receiver(address: &str, start: &Start, epoch: Option<i64>, desired: &[&'static str]) -> Attach {
    let mut attach = Attach::receiver("receiver", address);
    let mut filter = Vec::new();
    start.write_filter(&mut filter);
    if let Some(source) = &mut attach.source {
        source.filter = Some(Encoded::copy(&filter).unwrap());
    }
    let epoch = epoch.map(|epoch| ("com.microsoft:epoch", ephor_amqp::Value::Long(epoch)));
    let name = ("com.microsoft:receiver-name", ephor_amqp::Value::String("tester"));
    attach.properties = Some(Encoded::map([name].into_iter().chain(epoch)));
    attach.desired_capabilities = (!desired.is_empty()).then(|| Encoded::symbols(desired.iter().copied()));
    attach
}

/// A message with this body.
pub(crate) fn encoded(event: &NewEvent) -> Vec<u8> {
    let mut bytes = Vec::new();
    message::encode(event, &mut bytes).unwrap();
    bytes
}

/// The condition and the text of a rejection.
pub(crate) fn rejection(outcome: Outcome) -> (String, String) {
    match outcome {
        Outcome::Rejected(Some(error)) => (error.condition.to_string(), error.description().to_owned()),
        other => panic!("{other:?}"),
    }
}
