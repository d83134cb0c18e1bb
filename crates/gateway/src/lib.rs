//! The hub's front door: Event Hubs over AMQP 1.0, for every SDK that speaks it. Plain TCP or TLS.
//!
//! ```no_run
//! use std::sync::Arc;
//! use ephor_gateway::{Gateway, GatewayConfig};
//! use ephor_hub::{HubConfig, LocalNamespace, NamespaceConfig};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let namespace = Arc::new(LocalNamespace::in_memory(NamespaceConfig::default())?);
//! namespace.create_hub(HubConfig::new("homes", 4)?)?;
//! let gateway = Gateway::new(namespace, GatewayConfig::default())?;
//! let listener = ephor_gateway::listen("127.0.0.1:0".parse()?)?;
//! gateway.serve(listener, std::future::pending()).await?;
//! # Ok(()) }
//! ```
//!
//! One task owns a connection with all that hangs on it: the AMQP engine, its links, the hub's receivers
//! behind them and the sends that wait for the disk.
//!
//! ```text
//!              ┌────────────────────── a connection's task ─────────────────────┐
//!  socket ◄──► │ driver ─ events ─► attach, deliveries ─► sends ─► the hub      │
//!              │    ▲                                       └─ outcomes ─┐      │
//!              │    └──── transfers ◄─ news ◄─ receivers ◄─ the hub      │      │
//!              │    └──── dispositions, replies ◄────────────────────────┘      │
//!              └────────────────────────────────────────────────────────────────┘
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `config.rs` | keys, limits, and what is wrong with them |
//! | `gateway.rs` | listening, and stopping |
//! | `admission.rs` | how many connections there may be, and who goes first if they are too many |
//! | `files.rs` | how many connections there may be beside the files of the hubs |
//! | `budget.rs` | the memory of all connections together: who waits, and who goes |
//! | `access.rs` | which tokens a connection has put, and what they permit |
//! | `keys.rs` | keys from text: what each is called, permits and is for |
//! | `tls.rs` | certificates: from files, replaced while in use, or made for development |
//! | `quirks.rs` | what single SDKs need that nobody else shall pay for |
//! | `refusals.rs` | how the hub's errors read on the wire |
//! | `facts.rs` | what never changes about a hub |
//! | `noise.rs` | how often peers can make us write into our log |
//! | `idempotence.rs` | producers that number their events |
//! | `connection/` | one connection: links, senders, receivers, requests |

mod access;
mod admission;
mod budget;
pub mod config;
mod connection;
mod facts;
mod files;
mod gateway;
mod idempotence;
pub mod keys;
mod noise;
mod quirks;
mod refusals;
mod tls;

pub use config::{GatewayConfig, GatewayLimits, InvalidGateway, development_key};
pub use files::raise_open_file_limit;
pub use gateway::{Gateway, ServeError, listen};
pub use keys::{InvalidKeys, parse_key, parse_keys};
pub use quirks::{QUIRKS, Quirk};
pub use tls::{InvalidTls, Tls};

pub use ephor_wire::sas::{Claims, Key, SharedKey};
