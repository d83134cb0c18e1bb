//! The Event Hubs client: an [`EventSource`] for a hub over the network.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use ephor_core::BoxFuture;
use ephor_core::ids::{HubName, LogId, Namespace, PartitionId};
use ephor_core::source::{
    EventSource, HubProperties, OpenError, OpenRequest, PartitionProperties, Receiver, SourceCapabilities,
    SourceError,
};
use ephor_runtime::environment::{Environment, TokioEnvironment};
use ephor_wire::condition::{Class, source_error};
use ephor_wire::connection_string::ConnectionString;
use ephor_wire::management::{HubDescription, NoDescription, PartitionDescription, Query};
use ephor_wire::request_response::Response;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::connect_error::ConnectError;
use crate::connection::{Command, ConnectionHandle, Deadline, ReconnectingConnection};
use crate::dial_limit::DialLimit;
use crate::endpoint::Endpoint;
use crate::failure_classes::Failure;
use crate::options::{EventHubBuilder, EventHubOptions, InvalidOptions};
use crate::producer::{EventHubProducer, ProducerOptions};
use crate::receiver;
use crate::recreation_watch::RecreationWatch;

/// State that the client, its receivers and its producers share.
pub(crate) struct Shared {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) options: EventHubOptions,
    pub(crate) recreation_watch: RecreationWatch,
    connections: Vec<ReconnectingConnection>,
}

impl Shared {
    /// The connection that serves a partition; without a partition, the first connection.
    pub(crate) fn connection(&self, partition: Option<PartitionId>) -> Arc<ConnectionHandle> {
        let index = partition.map_or(0, |partition| partition.0 as usize) % self.connections.len();
        self.connections[index].current()
    }

    /// Waits for an answer, up to [`Self::answer_timeout`], and longer while the connection carries anything. A
    /// connection that answers nothing is abandoned, so that the next attempt makes a new one.
    pub(crate) async fn answer<T>(
        &self,
        connection: &ConnectionHandle,
        answer: oneshot::Receiver<Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut deadline = Deadline::new(self.answer_timeout(), connection.traffic());
        match deadline.wait(connection.traffic(), answer).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) => Err(Failure::lost("the connection has ended")),
            None => {
                let why = self.timeout_message();
                if !deadline.others_are_answered() {
                    connection.abandon(&why);
                }
                Err(Failure::lost(why))
            }
        }
    }

    /// The time limit for an answer: it includes the backoff and the dial of the connection.
    pub(crate) fn answer_timeout(&self) -> std::time::Duration {
        self.options.backoff.max + self.options.connect_time + self.options.answer_time
    }

    pub(crate) fn timeout_message(&self) -> String {
        format!(
            "the hub did not answer within {:?}; if the connection is slow, raise answer_time",
            self.answer_timeout()
        )
    }

    /// Waits before the next attempt, after this many failures in a row on this connection.
    pub(crate) async fn pause(&self, connection: &ConnectionHandle, failures: u32) {
        sleep_until(self.next_attempt(connection, failures)).await;
    }

    /// The time of the next attempt: now, if the connection itself failed, because the next one has a backoff
    /// of its own, which all its users share.
    pub(crate) fn next_attempt(&self, connection: &ConnectionHandle, failures: u32) -> Instant {
        match connection.is_over() {
            true => Instant::now(),
            false => Instant::now() + self.options.backoff.delay(failures, TokioEnvironment.random()),
        }
    }

    /// Sends a request to `$management`, with retries.
    async fn ask(&self, query: Query) -> Result<Bytes, Failure> {
        let mut failures = 0;
        loop {
            let connection = self.connection(None);
            let (reply, answer) = oneshot::channel();
            connection.post(Command::Query { query: query.clone(), reply });
            let failure = match self.answer(&connection, answer).await {
                // A busy hub answers with an error.
                Ok(message) => match refused(&message) {
                    None => return Ok(message),
                    Some(failure) => failure,
                },
                Err(failure) => failure,
            };
            failures = connection.failures_after(failures);
            if failure.class() == Class::GiveUp || failures >= self.options.attempts {
                return Err(failure);
            }
            self.pause(&connection, failures).await;
        }
    }

    pub(crate) async fn hub_properties(&self) -> Result<HubProperties, SourceError> {
        let asked = Instant::now();
        let query = Query::Hub { hub: self.endpoint.hub.clone() };
        let message = self.ask(query).await.map_err(Failure::into_source_error)?;
        let described = described(&message, HubDescription::read)?;
        // A hub that was deleted and created again has another creation time; the service offers no better
        // identity.
        let log = described.log.unwrap_or_else(|| LogId::new(&format!("created-{}", described.created_at.0)));
        self.recreation_watch.record(log.clone(), asked);
        let mut partitions = described.partitions;
        partitions.sort_unstable();
        Ok(HubProperties { partitions, log: Some(log) })
    }

    pub(crate) async fn partition_properties(
        &self,
        partition: PartitionId,
    ) -> Result<PartitionProperties, SourceError> {
        let query = Query::Partition { hub: self.endpoint.hub.clone(), partition };
        let message = self.ask(query).await.map_err(Failure::into_source_error)?;
        Ok(described(&message, PartitionDescription::read)?.partition)
    }
}

/// The hub's error, if the response is one.
fn refused(message: &Bytes) -> Option<Failure> {
    Response::read(message).ok()?.accepted().err().map(Failure::refused)
}

fn described<T>(
    message: &Bytes,
    read: impl FnOnce(&Response<'_>) -> Result<T, NoDescription>,
) -> Result<T, SourceError> {
    let response = Response::read(message).map_err(|error| SourceError::Unavailable(error.into()))?;
    read(&response).map_err(|error| match error {
        NoDescription::Refused(refusal) => source_error(refusal),
        other => SourceError::Unavailable(other.into()),
    })
}

/// A client of one event hub, of Azure or of Ephor. Clones share their connections, which are made on first
/// use and closed when no user is left.
#[derive(Clone)]
pub struct EventHub(Arc<Shared>);

impl EventHub {
    /// Creates a client from a connection string, which names the hub as `EntityPath`, with default options. It
    /// connects on first use. Like everything here it must be called inside a tokio runtime with time and I/O.
    pub fn from_connection_string(connection_string: &str) -> Result<Self, InvalidOptions> {
        Self::builder(connection_string).build()
    }

    /// Creates a client and asks the hub for its properties, so that a wrong address, key or hub is reported
    /// here. See [`EventHubBuilder::connect`].
    pub async fn connect(connection_string: &str) -> Result<Self, ConnectError> {
        Self::builder(connection_string).connect().await
    }

    /// Builds a client from a connection string and further settings.
    pub fn builder(connection_string: &str) -> EventHubBuilder {
        EventHubBuilder::new(ConnectionString::parse(connection_string))
    }

    /// Builds a client from a connection string that is already parsed.
    pub fn builder_for(connection_string: ConnectionString) -> EventHubBuilder {
        EventHubBuilder::new(Ok(connection_string))
    }

    /// Builds a client for a namespace, such as `contoso.servicebus.windows.net`, with a credential and
    /// without a connection string: call [`EventHubBuilder::hub`] and [`EventHubBuilder::credential`].
    pub fn at(namespace: &str) -> EventHubBuilder {
        Self::builder(&format!("Endpoint=sb://{namespace}"))
    }

    pub(crate) fn new(endpoint: Endpoint, options: EventHubOptions) -> Self {
        let endpoint = Arc::new(endpoint);
        let limit = DialLimit::of(&endpoint.address);
        let connection = |_| ReconnectingConnection::new(endpoint.clone(), limit.clone(), options.backoff);
        let connections: Vec<ReconnectingConnection> = (0..options.connections).map(connection).collect();
        // Requests use the first connection.
        let recreation_watch = RecreationWatch::new(
            connections.first().map(|first| first.traffic().clone()).unwrap_or_default(),
        );
        Self(Arc::new(Shared { endpoint, options, recreation_watch, connections }))
    }

    /// A producer that sends to the hub.
    pub fn producer(&self) -> EventHubProducer {
        self.producer_with(ProducerOptions::default())
    }

    /// A producer with options of its own.
    pub fn producer_with(&self, options: ProducerOptions) -> EventHubProducer {
        EventHubProducer::new(self.0.clone(), options)
    }
}

impl EventSource for EventHub {
    fn namespace(&self) -> &Namespace {
        &self.0.endpoint.namespace
    }

    fn hub(&self) -> &HubName {
        &self.0.endpoint.hub
    }

    fn endpoint(&self) -> String {
        let (host, port) = &self.0.endpoint.address;
        format!("{host}:{port}/{}", self.0.endpoint.hub)
    }

    fn capabilities(&self) -> SourceCapabilities {
        SourceCapabilities::EVENT_HUBS
    }

    fn hub_properties(&self) -> BoxFuture<'_, Result<HubProperties, SourceError>> {
        Box::pin(self.0.hub_properties())
    }

    fn partition_properties(
        &self,
        partition: PartitionId,
    ) -> BoxFuture<'_, Result<PartitionProperties, SourceError>> {
        Box::pin(self.0.partition_properties(partition))
    }

    fn received_bytes(&self) -> u64 {
        self.0.connections.iter().map(|connection| connection.traffic().received()).sum()
    }

    fn open(&self, request: OpenRequest) -> BoxFuture<'_, Result<Box<dyn Receiver>, OpenError>> {
        Box::pin(receiver::open(self.0.clone(), request))
    }
}

impl fmt::Debug for EventHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventHub({}/{})", self.0.endpoint.namespace, self.0.endpoint.hub)
    }
}
