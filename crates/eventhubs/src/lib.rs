//! The client: events from Azure Event Hubs and from any Ephor hub, and to them.
//!
//! [`EventHubs`] is an [`EventSource`](ephor_core::source::EventSource): give it to a host, or open receivers on it.
//! [`Producer`] sends. Both go over AMQP 1.0, with TLS unless the connection string is one for development.
//!
//! ```no_run
//! use ephor_eventhubs::{EventHubs, NewEvent, Target};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let hub = EventHubs::connect(
//!     "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;\
//!      SharedAccessKey=SAS_KEY_VALUE;EntityPath=homes;UseDevelopmentEmulator=true",
//! )?;
//! hub.producer().send_batch(Target::Key("home-7"), [NewEvent::new("the door opened")]).await?;
//! # Ok(()) }
//! ```
//!
//! What a receiver promises beyond the seam: a link or a connection that is lost, cut or detached for being idle is
//! made again with backoff, with the same epoch, behind the last event that was handed out. What a producer
//! promises: sends that wait for one another keep their order, also through retries; an event may be stored twice
//! if the connection was lost before the hub's answer came.
//!
//! **Not here yet:** tokens of Entra ID. [`Credential`] is the place for them. **Untried:** all of this has run
//! against Ephor's own hub only, never against Azure.
//!
//! | to read about | open |
//! |---|---|
//! | what can be set | [`options`] |
//! | how to be let in | [`credential`], `tls.rs` |
//! | the hub as a source | `client.rs`, `receiver.rs` |
//! | sending | [`producer`] |
//! | one connection and everything on it | `line/` |
//! | what is buffered for a receiver, and how much may come | `inbox.rs`, `credit.rs` |
//! | what failures mean | `failure.rs` |

mod client;
pub mod credential;
mod credit;
mod endpoint;
mod failure;
mod inbox;
mod line;
pub mod options;
pub mod producer;
mod receiver;
mod tls;

pub use client::EventHubs;
pub use credential::{Credential, SharedKey, Token, TokenKind};
pub use ephor_core::event::NewEvent;
pub use ephor_wire::connection_string::ConnectionString;
pub use options::{Builder, InvalidOptions, Options};
pub use producer::{Producer, ProducerOptions, SendError, SendFailure, Target};
