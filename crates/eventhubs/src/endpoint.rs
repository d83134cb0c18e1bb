//! Where a hub is: from a name to a transport.

use std::sync::Arc;
use std::time::Duration;

use ephor_amqp::connection::Config;
use ephor_amqp::{Encoded, Value};
use ephor_core::ids::{HubName, Namespace};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::credential::Credential;

/// The largest event that is received: some tiers of the service allow 20 MB.
const LARGEST_MESSAGE: u64 = 32 << 20;

/// All events of one connection of which a part has come.
const INCOMPLETE_BYTES: usize = 64 << 20;

/// TCP, or TLS on it.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// Everything that a connection needs to know before it begins.
pub(crate) struct Endpoint {
    pub(crate) namespace: Namespace,
    pub(crate) hub: HubName,
    /// Where to connect to, if not to the namespace itself.
    pub(crate) address: (String, u16),
    pub(crate) tls: Option<TlsConnector>,
    pub(crate) credential: Option<Arc<dyn Credential>>,
    /// What the hub calls this client.
    pub(crate) container: String,
    /// From dialling to the hub's `open`.
    pub(crate) connect_time: Duration,
    /// For a sign of life of the hub.
    pub(crate) idle_time: Duration,
    /// For an answer of the hub.
    pub(crate) answer_time: Duration,
}

impl Endpoint {
    /// For a credential to make a token: whoever waits for it also waits for the hub to take it.
    pub(crate) fn token_time(&self) -> Duration {
        self.answer_time / 2
    }

    /// Connects. Says what went wrong in words, with the address.
    pub(crate) async fn dial(&self) -> Result<Box<dyn Transport>, String> {
        let (host, port) = &self.address;
        let deadline = Instant::now() + self.connect_time;
        let dialled = async {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let stream = TcpStream::connect((host, *port)).await.map_err(|error| error.to_string())?;
            // A turn of the connection becomes one write; there is nothing to wait for.
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            match &self.tls {
                None => Ok(Box::new(stream) as Box<dyn Transport>),
                Some(connector) => {
                    let stream = connector.connect(self.server_name()?, stream).await;
                    Ok(Box::new(stream.map_err(|error| format!("TLS: {error}"))?) as Box<dyn Transport>)
                }
            }
        };
        let outcome = match timeout_at(deadline, dialled).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("no answer within {:?}", self.connect_time)),
        };
        outcome.map_err(|why| format!("cannot connect to {host}:{port}: {why}"))
    }

    fn server_name(&self) -> Result<ServerName<'static>, String> {
        let name = self.namespace.as_str().trim_start_matches('[').trim_end_matches(']');
        ServerName::try_from(name.to_owned()).map_err(|error| format!("{name:?} is no name for TLS: {error}"))
    }

    /// What the hub is told of this client.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new(&self.container);
        config.hostname = Some(self.namespace.to_string());
        // The hub is given up after twice what it is told.
        config.idle_time_out = Some(self.idle_time / 2);
        config.properties = Some(Encoded::map([
            ("product", Value::String("ephor")),
            ("version", Value::String(env!("CARGO_PKG_VERSION"))),
            ("platform", Value::String(std::env::consts::OS)),
        ]));
        config.limits.message = LARGEST_MESSAGE;
        config.limits.incomplete = INCOMPLETE_BYTES;
        config.limits.time_to_open = self.connect_time;
        config
    }
}
