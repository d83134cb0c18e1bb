//! Connects to a hub: resolves its address and makes a TCP or TLS transport.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ephor_amqp::connection::Config;
use ephor_amqp::{Encoded, Value};
use ephor_core::ids::{HubName, Namespace};
use ephor_wire::management::OUR_PRODUCT;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, InvalidMessage};

use crate::credential::Credential;
use crate::dial_error::{DialError, DialErrorCause};
use crate::failure_classes::Failure;
use crate::os;

/// The maximum size of a received event: some tiers of the service allow 20 MB.
const MAX_MESSAGE_BYTES: u64 = 32 << 20;

/// The maximum size of all partially received events of one connection.
const MAX_INCOMPLETE_BYTES: usize = 64 << 20;

/// The maximum number of bytes in the socket's buffer that are not on their way: the rest waits here, where its
/// progress can be seen.
const UNSENT_BYTES: u32 = 128 << 10;

/// The advice if TLS was requested and the port does not speak it.
const NO_TLS_THERE: &str = "the port does not speak TLS; if it is that of plain AMQP, usually 5672, of a hub for \
                            development, add UseDevelopmentEmulator=true to the connection string, otherwise give the \
                            port of AMQP in TLS, usually 5671";
/// The advice if no TLS was requested and the port requires it.
const TLS_THERE: &str = "the port speaks TLS; leave UseDevelopmentEmulator=true, or a scheme such as amqp://, out of the \
                         connection string, or give the port of plain AMQP, usually 5672";

/// A TCP stream, with or without TLS.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// The reason why a connection failed.
enum NotReached {
    /// A failure that may pass.
    Passing(DialErrorCause, String),
    /// The port speaks something other than TLS.
    NoTls,
}

impl NotReached {
    fn by_socket(error: io::Error) -> Self {
        Self::Passing(DialErrorCause::of_socket(&error), error.to_string())
    }

    /// A peer that answers with something other than a TLS record will do so again.
    fn by_tls(error: io::Error) -> Self {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        match cause {
            Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => Self::NoTls,
            cause => Self::Passing(DialErrorCause::of_tls(cause), format!("TLS: {error}")),
        }
    }

    fn at(self, host: &str, port: u16) -> Failure {
        let address = format!("{host}:{port}");
        match self {
            Self::Passing(cause, message) => {
                Failure::NotConnected(Arc::new(DialError { address, cause, message }))
            }
            Self::NoTls => {
                Failure::Misconfigured(format!("cannot connect to {address}: {NO_TLS_THERE}").into())
            }
        }
    }
}

/// All settings that a connection needs.
pub(crate) struct Endpoint {
    pub(crate) namespace: Namespace,
    pub(crate) hub: HubName,
    /// The host and port to dial: those of the namespace, unless the user set others.
    pub(crate) address: (String, u16),
    pub(crate) tls: Option<TlsConnector>,
    pub(crate) credential: Option<Arc<dyn Credential>>,
    /// The client's container id, by which the hub knows it.
    pub(crate) container: String,
    /// The time limit from dialling to the hub's `open`.
    pub(crate) connect_time: Duration,
    /// The time limit for any frame from the hub; after it the connection is considered dead.
    pub(crate) idle_time: Duration,
    /// The time limit for an answer of the hub.
    pub(crate) answer_time: Duration,
}

impl Endpoint {
    /// The time limit for a credential to make a token: its caller also waits for the hub to accept the
    /// token.
    pub(crate) fn token_time(&self) -> Duration {
        self.answer_time / 2
    }

    /// Connects. An error message contains the address.
    pub(crate) async fn dial(&self) -> Result<Box<dyn Transport>, Failure> {
        let (host, port) = &self.address;
        let deadline = Instant::now() + self.connect_time;
        let dialled = async {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let stream = TcpStream::connect((host, *port)).await.map_err(NotReached::by_socket)?;
            // Each turn of the connection is one write, so Nagle's algorithm would only add delay.
            stream.set_nodelay(true).map_err(NotReached::by_socket)?;
            // Without it, progress on a slow connection is only seen later.
            os::limit_unsent_bytes(&stream, UNSENT_BYTES).ok();
            match &self.tls {
                None => Ok(Box::new(stream) as Box<dyn Transport>),
                Some(connector) => {
                    let name = self.server_name()?;
                    let stream = connector.connect(name, stream).await.map_err(NotReached::by_tls)?;
                    Ok(Box::new(stream) as Box<dyn Transport>)
                }
            }
        };
        let outcome = match timeout_at(deadline, dialled).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let message = format!("no answer within {:?}", self.connect_time);
                Err(NotReached::Passing(DialErrorCause::NoAnswer, message))
            }
        };
        outcome.map_err(|reason| reason.at(host, *port))
    }

    /// The error for a hub that answers with TLS on a connection without it.
    pub(crate) fn wants_tls(&self) -> Failure {
        let (host, port) = &self.address;
        Failure::Misconfigured(format!("cannot connect to {host}:{port}: {TLS_THERE}").into())
    }

    fn server_name(&self) -> Result<ServerName<'static>, NotReached> {
        let name = self.namespace.as_str().trim_start_matches('[').trim_end_matches(']');
        ServerName::try_from(name.to_owned()).map_err(|error| {
            let message = format!("{name:?} is not a valid server name for TLS: {error}");
            NotReached::Passing(DialErrorCause::Other, message)
        })
    }

    /// The AMQP settings of this client's connections.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new(&self.container);
        config.hostname = Some(self.namespace.to_string());
        // The connection fails after twice the announced time.
        config.idle_time_out = Some(self.idle_time / 2);
        config.properties = Some(Encoded::map([
            ("product", Value::String(OUR_PRODUCT)),
            ("version", Value::String(env!("CARGO_PKG_VERSION"))),
            ("platform", Value::String(std::env::consts::OS)),
        ]));
        config.limits.message = MAX_MESSAGE_BYTES;
        config.limits.incomplete = MAX_INCOMPLETE_BYTES;
        config.limits.time_to_open = self.connect_time;
        config
    }
}
