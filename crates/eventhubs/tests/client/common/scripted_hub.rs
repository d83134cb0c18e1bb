//! Test helper: a scripted hub that detaches links, repeats events, is busy, or does not answer.

mod script;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ephor_amqp::Connection;
use ephor_amqp::connection::{Config, Delivery, Event, LinkId, Sent, ServerSasl};
use ephor_amqp::driver::Driver;
use ephor_amqp::performative::{Attach, Outcome, Role};
use ephor_core::event::NewEvent;
use ephor_core::ids::{LogId, PartitionId};
use ephor_core::position::{Offset, SequenceNumber};
use ephor_core::time::Timestamp;
use ephor_eventhubs::{ConnectionString, EventHub, EventHubBuilder, EventHubOptions};
use ephor_wire::annotations::{Stamp, deliver};
use ephor_wire::batch::Envelope;
use ephor_wire::cbs::{self, PutToken};
use ephor_wire::management::HubDescription;
use ephor_wire::message;
use ephor_wire::request_response::Request;
use ephor_wire::selector::Start;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

pub(crate) use script::{Act, Answer, Fate, Put, Script, Seen};

struct Shared {
    script: Mutex<Script>,
    seen: Mutex<Seen>,
}

pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
    /// The certificate that clients have to trust, in PEM.
    certificate: Option<String>,
}

/// A TCP stream, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Peer {
    pub(crate) async fn start(script: Script) -> Self {
        Self::start_with(script, None).await
    }

    /// Starts it with TLS.
    pub(crate) async fn start_tls(script: Script) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self::start_with(script, Some((acceptor, made.cert.pem()))).await
    }

    async fn start_with(script: Script, tls: Option<(TlsAcceptor, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { script: Mutex::new(script), seen: Mutex::default() });
        let ours = shared.clone();
        let (acceptor, certificate) = tls.unzip();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                ours.seen.lock().unwrap().connections += 1;
                let (ours, acceptor) = (ours.clone(), acceptor.clone());
                tokio::spawn(async move {
                    let stream: Box<dyn Stream> = match acceptor {
                        Some(acceptor) => Box::new(acceptor.accept(stream).await.unwrap()),
                        None => Box::new(stream),
                    };
                    Talk::new(ours, stream).run().await;
                });
            }
        });
        Self { address, shared, task, certificate }
    }

    pub(crate) fn client(&self, options: EventHubOptions) -> EventHub {
        self.builder(options).build().unwrap()
    }

    pub(crate) fn builder(&self, options: EventHubOptions) -> EventHubBuilder {
        let port = self.address.port();
        let builder = match &self.certificate {
            Some(pem) => EventHub::at(&format!("127.0.0.1:{port}")).extra_root(pem.as_bytes()),
            None => EventHub::builder_for(ConnectionString::development(
                &"127.0.0.1".parse().unwrap(),
                port,
                None,
            )),
        };
        builder.hub("homes").options(options)
    }

    pub(crate) fn seen<T>(&self, read: impl FnOnce(&Seen) -> T) -> T {
        read(&self.shared.seen.lock().unwrap())
    }

    /// Waits until the predicate is true.
    pub(crate) async fn until(&self, condition: impl Fn(&Seen) -> bool) {
        while !self.seen(&condition) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Talk {
    shared: Arc<Shared>,
    driver: Driver<Box<dyn Stream>>,
    /// The remaining actions of each link.
    acts: BTreeMap<LinkId, VecDeque<Act>>,
    /// The receiver links that have got credit.
    credited: BTreeSet<LinkId>,
    replies: Option<LinkId>,
    requests: Option<LinkId>,
    /// The links of `$management`: for requests, and for responses.
    management: (Option<LinkId>, Option<LinkId>),
    /// Deliveries to settle when this many messages have come.
    held: Vec<(usize, LinkId, u32, Outcome)>,
    cut: bool,
    /// A delivery to settle after a delay.
    late: Option<(Duration, LinkId, u32, Outcome)>,
}

impl Talk {
    fn new(shared: Arc<Shared>, stream: Box<dyn Stream>) -> Self {
        let connection = Connection::server(Config::new("peer"), ServerSasl::default(), Duration::ZERO);
        let driver = Driver::new(stream, connection);
        Self {
            shared,
            driver,
            acts: BTreeMap::new(),
            credited: BTreeSet::new(),
            replies: None,
            requests: None,
            management: (None, None),
            held: Vec::new(),
            cut: false,
            late: None,
        }
    }

    async fn run(mut self) {
        while let Some(event) = self.driver.next().await {
            match event {
                Event::AttachRequested { link, attach, .. } => self.on_attach(link, &attach),
                Event::Credit { link, .. } => self.on_credit(link),
                Event::Delivery(delivery) if self.requests == Some(delivery.link) => {
                    self.on_request(&delivery)
                }
                Event::Delivery(delivery) if self.management.0 == Some(delivery.link) => {
                    self.on_question(&delivery)
                }
                Event::Delivery(delivery) => self.on_message(&delivery),
                Event::Detached { .. } => self.shared.seen.lock().unwrap().detached += 1,
                _ => {}
            }
            if let Some((after, link, id, outcome)) = self.late.take() {
                self.driver.write_now().await;
                tokio::time::sleep(after).await;
                self.driver.connection().settle(link, id, id, &outcome);
            }
            if self.cut {
                return;
            }
        }
    }

    fn on_attach(&mut self, link: LinkId, attach: &Attach) {
        let answer = Attach { max_message_size: Some(10_000), ..attach.answer() };
        let connection = self.driver.connection();
        let address = |terminus: Option<String>| terminus.unwrap_or_default();
        match attach.role {
            Role::Sender => {
                connection.accept(link, answer);
                connection.grant(link, 100);
                match address(attach.target.clone().and_then(|target| target.address)).as_str() {
                    "$cbs" => self.requests = Some(link),
                    "$management" => self.management.0 = Some(link),
                    _ => {}
                }
            }
            Role::Receiver => {
                let source = attach.source.clone().unwrap_or_default();
                if source.address.as_deref() == Some("$cbs") {
                    connection.accept(link, answer);
                    self.replies = Some(link);
                    return;
                }
                if source.address.as_deref() == Some("$management") {
                    connection.accept(link, answer);
                    self.management.1 = Some(link);
                    return;
                }
                let mut seen = self.shared.seen.lock().unwrap();
                let number = seen.starts.len();
                let filter = source.filter.as_ref().map(|filter| filter.as_bytes()).unwrap_or_default();
                seen.starts.push(Start::from_filter(filter).unwrap());
                let epoch = attach.properties.as_ref().and_then(|map| map.get("com.microsoft:epoch"));
                seen.epochs.push(epoch.map(|value| match value {
                    ephor_amqp::Value::Long(epoch) => epoch,
                    other => panic!("an epoch is a long, not {other:?}"),
                }));
                match (self.shared.script.lock().unwrap().receiver)(number, attach) {
                    Answer::Accept(acts) => {
                        connection.accept(link, answer);
                        self.acts.insert(link, acts.into());
                    }
                    Answer::Refuse(error) => connection.refuse(link, error),
                    Answer::Silence => {}
                }
            }
        }
    }

    fn on_credit(&mut self, link: LinkId) {
        if self.acts.contains_key(&link) && self.credited.insert(link) {
            let credit = self.driver.connection().credit(link);
            self.shared.seen.lock().unwrap().credits.push(credit);
        }
        self.act(link);
    }

    fn act(&mut self, link: LinkId) {
        let Some(acts) = self.acts.get_mut(&link) else { return };
        let connection = self.driver.connection();
        while let Some(act) = acts.front() {
            let payload = match act {
                Act::Send(number) => event(*number, number.to_string()),
                Act::SendLarge(number, bytes) => event(*number, "x".repeat(*bytes)),
                Act::SendJunk => b"junk".to_vec(),
                Act::Detach(error) => {
                    connection.detach(link, error.clone());
                    acts.pop_front();
                    continue;
                }
                Act::Close => {
                    connection.close(None);
                    return;
                }
            };
            match connection.send(link, 0, true, &[&payload]) {
                Sent::Sent(_) => {
                    self.shared.seen.lock().unwrap().sent += 1;
                    acts.pop_front();
                }
                _ => return,
            }
        }
    }

    fn on_request(&mut self, delivery: &Delivery) {
        let request = Request::read(&delivery.payload).unwrap();
        let put = PutToken::of(&request).unwrap();
        let put = Put { audience: put.audience.to_owned(), kind: put.kind, text: put.token.to_owned() };
        let number = (!put.audience.ends_with("$management")).then(|| {
            let mut seen = self.shared.seen.lock().unwrap();
            seen.tokens.push(put);
            seen.tokens.len() - 1
        });
        let connection = self.driver.connection();
        connection.settle(delivery.link, delivery.id, delivery.id, &Outcome::Accepted);
        let answer = match number {
            Some(number) => (self.shared.script.lock().unwrap().token)(number),
            None => Some(Ok(())),
        };
        let Some(answer) = answer else { return };
        let mut reply = Vec::new();
        match answer {
            Ok(()) => cbs::write_accepted(request.id.as_ref(), &mut reply),
            Err(refusal) => cbs::write_refused(request.id.as_ref(), &refusal, &mut reply),
        }
        assert!(matches!(connection.send(self.replies.unwrap(), 0, true, &[&reply]), Sent::Sent(_)));
    }

    /// Describes the hub, always as the same one.
    fn on_question(&mut self, delivery: &Delivery) {
        let request = Request::read(&delivery.payload).unwrap();
        let described = HubDescription {
            hub: "homes".parse().unwrap(),
            created_at: Timestamp(1),
            partitions: vec![PartitionId(0), PartitionId(1)],
            log: Some(LogId::new("scripted")),
        };
        let mut reply = Vec::new();
        described.write(request.id.as_ref(), &mut reply);
        let connection = self.driver.connection();
        connection.settle(delivery.link, delivery.id, delivery.id, &Outcome::Accepted);
        assert!(matches!(connection.send(self.management.1.unwrap(), 0, true, &[&reply]), Sent::Sent(_)));
    }

    fn on_message(&mut self, delivery: &Delivery) {
        let mut seen = self.shared.seen.lock().unwrap();
        let number = seen.messages;
        seen.messages += 1;
        let fate = (self.shared.script.lock().unwrap().message)(number);
        if !matches!(fate, Fate::Settle(Outcome::Rejected(_)) | Fate::Close(_)) {
            let envelope = Envelope::open(&delivery.payload).unwrap();
            for event in envelope.events() {
                let body = message::decode(&Bytes::copy_from_slice(event)).unwrap().body;
                seen.stored.push(String::from_utf8(body.to_vec()).unwrap());
            }
        }
        for (_, link, id, outcome) in self.held.extract_if(.., |(due, ..)| *due <= number) {
            self.driver.connection().settle(link, id, id, &outcome);
        }
        match fate {
            Fate::SettleAfter(messages, outcome) => {
                self.held.push((number + messages, delivery.link, delivery.id, outcome));
            }
            Fate::Settle(outcome) => {
                self.driver.connection().settle(delivery.link, delivery.id, delivery.id, &outcome);
            }
            Fate::SettleLate(after, outcome) => {
                self.late = Some((after, delivery.link, delivery.id, outcome));
            }
            Fate::StoreAndCut => self.cut = true,
            Fate::Close(error) => self.driver.connection().close(Some(error)),
            Fate::Silence => {}
        }
    }
}

fn event(number: u64, body: String) -> Vec<u8> {
    let (mut encoded, mut delivered) = (Vec::new(), Vec::new());
    message::encode(&NewEvent::new(body), &mut encoded).unwrap();
    let stamp = Stamp {
        sequence: SequenceNumber(number),
        offset: &Offset::number(number * 32),
        enqueued_at: Timestamp(1),
        partition_key: None,
        metrics: None,
        last_number_epoch: false,
    };
    deliver(&encoded, &stamp, &mut delivered).unwrap();
    delivered
}
