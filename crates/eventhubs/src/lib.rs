//! The client: events from Azure Event Hubs and from any Ephor hub, and to them.
//!
//! [`EventHubs`] is one hub, reached over AMQP 1.0 with TLS, or without it if the connection string is one for
//! development. It is an [`EventSource`](ephor_core::source::EventSource), so a host can run on it; [`Producer`] sends.
//!
//! # Receive, on as many machines as you like
//!
//! The same program runs everywhere; the hosts that share a store divide the partitions among them. The store in
//! memory is for trying it out: it is shared by nobody and forgets.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use ephor::memory::MemoryStore;
//! use ephor::{CheckpointPolicy, EventProcessorHost, EventProcessorOptions};
//! use ephor_eventhubs::EventHubs;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let hub = EventHubs::connect(&std::env::var("EVENT_HUB")?)?;
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
//! use ephor::PartitionId;
//! use ephor_eventhubs::{EventHubs, NewEvent, Target};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let hub = EventHubs::connect(&std::env::var("EVENT_HUB")?)?;
//! let producer = hub.producer();
//! // To any partition; to the one that a key chooses; to a certain one. The hub has stored what is awaited.
//! producer.send(NewEvent::new("the door opened")).await?;
//! let moves = (1..=100).map(|number| NewEvent::new(format!("step {number}")));
//! producer.send_batch(Target::Key("home-7"), moves).await?;
//! producer.send_to(PartitionId(3), NewEvent::new("the light is on")).await?;
//! # Ok(()) }
//! ```
//!
//! # Connection strings
//!
//! All forms that Azure and its emulator write. What is missing or wrong is said before anything is connected, and
//! nothing that is said repeats a key.
//!
//! ```
//! use ephor_eventhubs::EventHubs;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! // Of a hub.
//! EventHubs::connect(
//!     "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=reader;SharedAccessKey=c2VjcmV0;\
//!      EntityPath=homes",
//! )?;
//! // Of a namespace: the hub is named beside it.
//! EventHubs::builder(
//!     "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=reader;SharedAccessKey=c2VjcmV0",
//! )
//! .hub("homes")
//! .build()?;
//! // For development, without TLS: what `ephor dev` prints.
//! EventHubs::connect(
//!     "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;\
//!      SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;EntityPath=homes",
//! )?;
//! let error = EventHubs::connect("Endpoint=sb://localhost;EntityPath=homes").unwrap_err();
//! assert!(error.to_string().contains("SharedAccessKey"));
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?; Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A string without TLS (`UseDevelopmentEmulator=true`, `amqp://`) leads to this machine alone, unless
//! [`Builder::allow_insecure`] says otherwise.
//!
//! Who has an identity of Entra ID instead of a key switches the feature `entra` on, and gives `EntraId` with any
//! credential of `azure_identity` to [`EventHubs::at`]. Its tokens never go out without TLS.
//!
//! # What is promised
//!
//! A **receiver** hands out every event once and in order. A link or a connection that is lost, silent or detached
//! for being idle is made again with backoff, with the same epoch, behind the last event that was handed out. A
//! connection has one backoff, whatever hangs on it, and all clients of a process together dial one address at most
//! twenty times a second after a first burst: a hub that comes back is not flooded.
//!
//! A **producer** has stored what it acknowledges; messages are stored whole. Sends are stored in the order in which
//! they begin, also through retries ([`ProducerOptions::in_flight`] says when not). A message may be stored twice if
//! the connection was lost before the hub's answer came: at most as many as were in flight on its link.
//!
//! Nothing waits for ever: [`Options`] has a limit for each wait.
//!
//! **Untried:** all of this has run against Ephor's own hub only, never against Azure.
//!
//! | to read about | open |
//! |---|---|
//! | what can be set | [`options`] |
//! | how to be let in | [`credential`], `credential/entra.rs`, `tls.rs` |
//! | the hub as a source | `client.rs`, `receiver.rs`, `receiver/ghosts.rs` |
//! | whether it is still the same log | `log_watch.rs` |
//! | sending | [`producer`] |
//! | one connection and everything on it | `line/` |
//! | how often this process dials one address | `dial_limit.rs` |
//! | what is buffered for a receiver, and how much may come | `inbox.rs`, `credit.rs` |
//! | what failures mean | `failure.rs` |

mod client;
pub mod credential;
mod credit;
mod dial_limit;
mod endpoint;
mod failure;
mod inbox;
mod line;
mod log_watch;
pub mod options;
pub mod producer;
mod receiver;
mod tls;

pub use client::EventHubs;
#[cfg(feature = "entra")]
pub use credential::EntraId;
pub use credential::{Credential, SharedKey, Token, TokenError, TokenKind};
pub use ephor_core::event::NewEvent;
pub use ephor_wire::connection_string::ConnectionString;
pub use failure::LogReplaced;
pub use options::{Builder, InvalidOptions, Options};
pub use producer::{Producer, ProducerOptions, SendError, SendFailure, Target};
