//! The gateway server: listens, refuses addresses that others can reach without protection, accepts
//! connections (plain TCP or TLS), and shuts down gracefully.
//!
//! Shutdown goes in this order: the listener is closed; every connection waits for its sends and acknowledges
//! them, sends `close`, and waits for the `close` of its peer. Connections that take longer than
//! `time_to_stop` are aborted.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ephor_amqp::connection::SharedLimits;
use ephor_amqp::shared_limit::SharedLimit;
use ephor_hub::LocalNamespace;
use ephor_runtime::environment::{Environment, TokioEnvironment};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::access::Policy;
use crate::admission::{Admission, AdmissionLimits, Cost, Ticket};
use crate::budget::Budget;
use crate::config::{GatewayConfig, GatewayLimits, InvalidGateway};
use crate::connection::{ConnectionTask, MAX_CONCURRENT_LOG_READS};
use crate::connections_by_open_files;
use crate::hub_info_cache::HubInfoCache;
use crate::idempotence::Producers;
use crate::log_line_limit::LogLimits;
use crate::os;
use crate::tls::Tls;

/// Pause after `accept` failed, for example because too many files are open.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

/// Connections that the system queues until they are accepted. The usual 128 are full within a moment of a
/// flood, and then everybody who connects waits for a second or more.
const BACKLOG: u32 = 1024;

/// The largest segment on loopback, as on an ordinary network. Segments of loopback have 64 KiB otherwise, and a
/// client with a smaller receive buffer gets only what the system sends it five times a second: the original .NET
/// client sets 8 KiB. Other clients notice nothing, because the system cuts no segments on loopback.
const LOOPBACK_SEGMENT: u32 = 1448;

/// Opens a listener that withstands a flood of connections: its backlog is longer than that of
/// [`TcpListener::bind`](tokio::net::TcpListener::bind). On loopback it also serves clients with a small receive
/// buffer at full speed.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    os::reuse_address(&socket)?;
    if address.ip().is_loopback() {
        // It is for speed alone: a system that refuses it is no reason not to serve.
        if let Err(error) = os::limit_segment_size(&socket, LOOPBACK_SEGMENT) {
            tracing::debug!(%error, "cannot limit the size of segments on loopback");
        }
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// State that all connections share.
pub(crate) struct Shared {
    pub(crate) namespace: Arc<LocalNamespace>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) limits: GatewayLimits,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) hub_info: HubInfoCache,
    pub(crate) producers: Producers,
    pub(crate) admission: Arc<Admission>,
    pub(crate) log_limits: LogLimits,
    pub(crate) budget: Arc<Budget>,
    /// Limits of the sessions and links of all connections together.
    pub(crate) totals: SharedLimits,
    /// Limit of the tokens of all connections together.
    pub(crate) tokens: SharedLimit,
    /// Permits to read the log, for all connections together.
    pub(crate) log_reads: Arc<Semaphore>,
    /// The AMQP container id of this end.
    pub(crate) container: String,
    allow_insecure: bool,
    no_secret_key: bool,
}

/// An AMQP server for the hubs of a namespace. Clones share all limits, so one gateway can serve several
/// addresses.
#[derive(Clone)]
pub struct Gateway(Arc<Shared>);

/// The reason for which an address is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Everybody who can reach the address could do anything.
    #[error(
        "{address} can be reached from other machines and is not served without TLS and keys of your own \
         ({missing}); add them, listen on 127.0.0.1, or set allow_insecure if nobody else is in that network"
    )]
    Insecure {
        /// The address.
        address: SocketAddr,
        /// The missing protection.
        missing: &'static str,
    },
    /// The listener has no address.
    #[error("the listener does not know its address: {0}")]
    Listener(#[from] io::Error),
}

impl Gateway {
    /// Makes a gateway to the hubs of a namespace.
    pub fn new(namespace: Arc<LocalNamespace>, config: GatewayConfig) -> Result<Self, InvalidGateway> {
        Self::with_environment(namespace, config, Arc::new(TokioEnvironment))
    }

    /// Like [`Self::new`], with a clock and random numbers from outside.
    pub fn with_environment(
        namespace: Arc<LocalNamespace>,
        config: GatewayConfig,
        environment: Arc<dyn Environment>,
    ) -> Result<Self, InvalidGateway> {
        config.validate()?;
        let no_secret_key = config.has_no_secret_key();
        let GatewayConfig { keys, allow_insecure, limits } = config;
        let limits = connections_by_open_files::within(limits, os::open_file_limit());
        let container = format!("{:016x}{:016x}_G0", environment.random(), environment.random());
        Ok(Self(Arc::new(Shared {
            namespace,
            policy: Arc::new(Policy::new(keys)),
            admission: Admission::new(AdmissionLimits {
                waiting: limits.unauthenticated,
                // A flood of unauthenticated connections takes no session from the authenticated ones.
                cost: Cost { bytes: limits.unauthenticated_bytes, sessions: limits.total_sessions / 2 },
                bytes_of_one: (limits.unauthenticated_bytes / 32).max(1 << 20),
                admitted: limits.connections,
            }),
            producers: Producers::default(),
            log_limits: LogLimits::default(),
            budget: Budget::new(limits.buffered_bytes, environment.clone()),
            totals: SharedLimits {
                sessions: SharedLimit::new(limits.total_sessions),
                links: SharedLimit::new(limits.total_links),
            },
            tokens: SharedLimit::new(limits.total_tokens),
            log_reads: Arc::new(Semaphore::new(MAX_CONCURRENT_LOG_READS)),
            limits,
            environment,
            hub_info: HubInfoCache::default(),
            container,
            allow_insecure,
            no_secret_key,
        })))
    }

    /// Serves plain TCP until `shutdown` completes, and returns when all connections are closed.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        self.serve_with(listener, None, shutdown).await
    }

    /// Serves TLS until `shutdown` completes, and returns when all connections are closed.
    pub async fn serve_tls(
        &self,
        listener: TcpListener,
        tls: &Tls,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        self.serve_with(listener, Some(tls.clone()), shutdown).await
    }

    /// Serves one peer over a stream that is connected already, until one of the two closes. The caller has
    /// to know who can reach the stream, and whether others can read it.
    pub async fn serve_stream(&self, stream: impl AsyncRead + AsyncWrite + Unpin, peer: SocketAddr) {
        let ticket = self.0.admission.enter();
        // The stop signal is never sent: the connection ends when this future is dropped.
        let (_stop, stopped) = watch::channel(false);
        serve_connection(self.0.clone(), stream, peer, ticket, stopped).await;
    }

    async fn serve_with(
        &self,
        listener: TcpListener,
        tls: Option<Tls>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let address = listener.local_addr()?;
        self.check_exposure(address, tls.is_some())?;
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => report(ended),
                accepted = accept(&listener, &self.0.admission) => match accepted {
                    Ok((stream, peer)) => {
                        let ticket = self.0.admission.enter();
                        let task = serve_socket(self.0.clone(), stream, peer, tls.clone(), ticket, stopped.clone());
                        tasks.spawn(task);
                    }
                    Err(error) => {
                        tracing::warn!(%address, %error, "could not accept a connection");
                        self.0.admission.make_room();
                        let until = self.0.environment.now() + PAUSE_AFTER_ERROR;
                        self.0.environment.sleep_until(until).await;
                    }
                },
            }
        }
        drop(listener);
        stop.send_replace(true);
        let until = self.0.environment.now() + self.0.limits.time_to_stop;
        let mut too_late = self.0.environment.sleep_until(until);
        loop {
            tokio::select! {
                biased;
                ended = tasks.join_next() => match ended {
                    Some(ended) => report(ended),
                    None => return Ok(()),
                },
                () = &mut too_late => {
                    tracing::warn!(%address, connections = tasks.len(), "dropped connections that were still open");
                    tasks.shutdown().await;
                    return Ok(());
                }
            }
        }
    }

    /// Checks whether this address may be served: one that other machines can reach needs TLS and a key other
    /// than the development key. Serving checks it, too; callers use this one to fail early.
    pub fn check_exposure(&self, address: SocketAddr, tls: bool) -> Result<(), ServeError> {
        if address.ip().is_loopback() || self.0.allow_insecure {
            return Ok(());
        }
        let missing = match (tls, self.0.no_secret_key) {
            (true, false) => return Ok(()),
            (false, false) => "there is no TLS",
            (true, true) => "there is no key, or it is the development key",
            (false, true) => "there is no TLS, and no key of your own",
        };
        Err(ServeError::Insecure { address, missing })
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Gateway")
            .field("namespace", self.0.namespace.name())
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "the task of a connection panicked; other connections continue");
    }
}

/// Accepts the next connection once there is room for it. Cancel-safe.
async fn accept(listener: &TcpListener, admission: &Admission) -> io::Result<(TcpStream, SocketAddr)> {
    admission.room().await;
    listener.accept().await
}

/// Serves one connection, from the TLS handshake to its end.
async fn serve_socket(
    shared: Arc<Shared>,
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Tls>,
    ticket: Ticket,
    stopped: watch::Receiver<bool>,
) {
    // Replies are small, and peers wait for them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "could not set TCP_NODELAY");
    }
    let Some(tls) = tls else { return serve_connection(shared, stream, peer, ticket, stopped).await };
    let until = shared.environment.now() + shared.limits.time_to_open;
    let mut too_late = shared.environment.sleep_until(until);
    let handshake = tokio::select! {
        biased;
        () = ticket.evicted() => return tracing::debug!(%peer, "evicted before the TLS handshake"),
        handshake = tls.accept(stream) => handshake,
        () = &mut too_late => return tracing::debug!(%peer, "the TLS handshake timed out"),
    };
    match handshake {
        Ok(stream) => serve_connection(shared, stream, peer, ticket, stopped).await,
        Err(error) => tracing::debug!(%peer, %error, "the TLS handshake failed"),
    }
}

async fn serve_connection<S: AsyncRead + AsyncWrite + Unpin>(
    shared: Arc<Shared>,
    stream: S,
    peer: SocketAddr,
    ticket: Ticket,
    stopped: watch::Receiver<bool>,
) {
    let task = ConnectionTask::new(shared, stream, peer, ticket);
    Box::pin(task.run(stopped)).await;
}
