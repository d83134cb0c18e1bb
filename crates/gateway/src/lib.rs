//! An AMQP 1.0 server in front of the embedded hub, for every Event Hubs SDK. Plain TCP or TLS.
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
//! Each connection has one task. It owns the AMQP engine, the links, the hub's receivers that serve them, and
//! the sends that wait for the disk.
//!
//! ```text
//!              ┌────────────────────── a connection's task ─────────────────────┐
//!  socket ◄──► │ driver ─ events ─► attach, deliveries ─► sends ─► the hub      │
//!              │    ▲                                       └─ outcomes ─┐      │
//!              │    └── transfers ◄─ events ◄─ receivers ◄─ the hub      │      │
//!              │    └──── dispositions, replies ◄────────────────────────┘      │
//!              └────────────────────────────────────────────────────────────────┘
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `config.rs` | keys and limits, and their validation |
//! | `gateway.rs` | accepting connections, and graceful shutdown |
//! | `admission.rs` | the connection limits; evicts connections that have not authenticated |
//! | `connections_by_open_files.rs` | the connection limits within the limit of open files, half of which is for the hubs |
//! | `budget.rs` | the memory of all connections together: back-pressure and eviction |
//! | `access.rs` | the tokens of a connection, and what they permit |
//! | `keys.rs` | parsing of keys: the name, claims and hub of each |
//! | `tls.rs` | certificates: from files, reloaded while in use, or self-signed for development |
//! | `quirks.rs` | workarounds for individual SDKs, which other clients do not pay for |
//! | `error_mapping.rs` | mapping of the hub's errors to AMQP errors |
//! | `hub_info_cache.rs` | cache of what never changes about a hub |
//! | `log_line_limit.rs` | rate limit of log lines that peers can trigger |
//! | `os.rs` | calls to the operating system |
//! | `idempotence/` | idempotent producers, which number their events |
//! | `connection/` | one connection: links, senders, receivers, requests |

mod access;
mod admission;
mod budget;
pub mod config;
mod connection;
mod connections_by_open_files;
mod error_mapping;
mod gateway;
mod hub_info_cache;
mod idempotence;
pub mod keys;
mod log_line_limit;
mod os;
mod quirks;
mod tls;

pub use config::{GatewayConfig, GatewayLimits, InvalidGateway, development_key};
pub use gateway::{Gateway, ServeError, listen};
pub use keys::{InvalidKeys, parse_key, parse_keys};
pub use os::raise_open_file_limit;
pub use quirks::{QUIRKS, Quirk};
pub use tls::{InvalidTls, Tls};

pub use ephor_wire::sas::{Claims, Key, SharedKey};
