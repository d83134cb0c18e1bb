//! The AMQP client: receives from and sends to Azure Event Hubs and any Ephor hub.
//!
//! [`EventHub`] is a client of one hub, over AMQP 1.0 with TLS, or without TLS if the connection string is
//! one for development. It is an [`EventSource`](ephor_core::source::EventSource), so a host can run on it;
//! [`EventHubProducer`] sends. Applications reach this crate as `ephor::eventhubs`, and `ephor::hubs` chooses
//! between this client and other hubs by a URL.
//!
//! [`EventHub::connect`] connects and reports a wrong address, key or hub at once;
//! [`EventHub::from_connection_string`] and [`EventHub::builder`] do no I/O, and the client connects on first use.
//!
//! # Receive, on as many machines as you like
//!
//! The same program runs everywhere; the hosts that share a store divide the partitions among them. The store
//! in memory is for trying it out: no other process shares it, and it is lost when the process ends.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use ephor::eventhubs::EventHub;
//! use ephor::memory::MemoryStore;
//! use ephor::{CheckpointPolicy, EventProcessorHost, EventProcessorOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let hub = EventHub::connect(&std::env::var("EVENT_HUB")?).await?;
//! let host = EventProcessorHost::builder(hub, MemoryStore::default())
//!     .consumer_group("$Default")
//!     .host_name(ephor::host_name("vm"))
//!     .options(EventProcessorOptions {
//!         checkpoint: CheckpointPolicy::every(Duration::from_secs(5)),
//!         ..Default::default()
//!     })
//!     .for_each_event(|context, event| async move {
//!         println!("{} {}: {:?}", context.partition(), event.sequence, event.text());
//!         Ok(())
//!     })?;
//! host.run_until_signal(Duration::from_secs(30)).await?;
//! # Ok(()) }
//! ```
//!
//! # Send
//!
//! ```no_run
//! use ephor::eventhubs::EventHub;
//! use ephor::{NewEvent, PartitionId, Target};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let hub = EventHub::connect(&std::env::var("EVENT_HUB")?).await?;
//! let producer = hub.producer();
//! // To any partition; to the one that a key chooses; to a given one. Each is stored when it returns.
//! producer.send(NewEvent::new("the door opened")).await?;
//! let moves = (1..=100).map(|number| NewEvent::new(format!("step {number}")));
//! producer.send_batch(Target::Key("home-7"), moves).await?;
//! producer.send_to(PartitionId(3), NewEvent::new("the light is on")).await?;
//! # Ok(()) }
//! ```
//!
//! # Connection strings
//!
//! All forms that Azure and its emulator write are accepted. A missing or wrong part is reported before any
//! connection is made, and no error repeats a key.
//!
//! ```
//! use ephor::eventhubs::EventHub;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! // Of a hub.
//! EventHub::from_connection_string(
//!     "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=reader;SharedAccessKey=c2VjcmV0;\
//!      EntityPath=homes",
//! )?;
//! // Of a namespace: the hub is named beside it.
//! EventHub::builder(
//!     "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=reader;SharedAccessKey=c2VjcmV0",
//! )
//! .hub("homes")
//! .build()?;
//! // For development, without TLS: what `ephor dev` prints.
//! EventHub::from_connection_string(
//!     "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;\
//!      SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;EntityPath=homes",
//! )?;
//! let error = EventHub::from_connection_string("Endpoint=sb://localhost;EntityPath=homes").unwrap_err();
//! assert!(error.to_string().contains("SharedAccessKey"));
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?; Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A connection string without TLS (`UseDevelopmentEmulator=true`, `amqp://`) connects to this machine only,
//! unless [`EventHubBuilder::allow_insecure`] is called.
//!
//! To use an identity of Entra ID instead of a key, enable the feature `entra` and give `EntraId` with any
//! credential of `azure_identity` to [`EventHub::at`]. Its tokens are never sent without TLS.
//!
//! # Guarantees
//!
//! A **receiver** returns every event once and in order. A link or connection that is lost, unresponsive or
//! detached for being idle is reopened with backoff and the same epoch, after the last event that was
//! returned. All users of a connection share one backoff, and all clients of a process together dial one
//! address at most twenty times a second after a first burst: a hub that comes back is not flooded.
//!
//! A **producer** acknowledges events after the hub has stored them; messages are stored whole. Sends are
//! stored in the order in which they begin, also with retries (for the exception see
//! [`ProducerOptions::in_flight`]). A message may be stored twice if the connection was lost before the hub's
//! answer came: at most as many as were in flight on its link.
//!
//! No wait is unbounded: [`EventHubOptions`] has a limit for each.
//!
//! **Untried:** all of this has run against Ephor's own hub only, never against Azure.
//!
//! | to read about | open |
//! |---|---|
//! | settings | [`options`] |
//! | authentication and TLS | [`credential`], `credential/entra.rs`, `tls.rs` |
//! | the hub as an event source | `client.rs`, `receiver.rs`, `receiver/stale_links.rs` |
//! | detecting a hub that was recreated | `recreation_watch.rs` |
//! | sending | [`producer`] |
//! | one connection and all links on it | `connection/` |
//! | the rate limit for dials to one address | `dial_limit.rs` |
//! | prefetch and flow control of a receiver | `delivery_queue.rs`, `credit.rs` |
//! | failures and their classes | `failure_classes.rs`, `dial_error.rs` |

mod client;
mod connect_error;
mod connection;
pub mod credential;
mod credit;
mod delivery_queue;
mod dial_error;
mod dial_limit;
mod endpoint;
mod failure_classes;
pub mod options;
mod os;
pub mod producer;
mod receiver;
mod recreation_watch;
mod tls;

pub use client::EventHub;
pub use connect_error::ConnectError;
#[cfg(feature = "entra")]
pub use credential::EntraId;
pub use credential::{Credential, SharedKey, Token, TokenError, TokenKind};
pub use dial_error::{DialError, DialErrorCause};
pub use ephor_core::event::NewEvent;
pub use ephor_core::producer::{Producer, Target};
pub use ephor_wire::connection_string::ConnectionString;
pub use failure_classes::LogReplaced;
pub use options::{EventHubBuilder, EventHubOptions, InvalidOptions};
pub use producer::{EventHubProducer, ProducerOptions, SendError, SendFailure};
