//! The demo: a home-security company with 100,000 homes, from the sensors to a web page.
//!
//! ```text
//! CITY (sensors) ─AMQP─► HUB (16 partitions) ─AMQP─► 5 HOSTS ─► RESULTS (objects) ─► VIEW ─► PAGE
//!       │                                           leases and checkpoints in SQLite      │
//!       └────────────────────────── AUDIT: what was sent beside what the results say ◄────┘
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`reading`] | the reading of a sensor, and its encoding as an event |
//! | [`time`] | the city's time, which may run faster than ours |
//! | [`city`] | the homes, their people and their sensors; deterministic by seed |
//! | [`consolidate`] | from readings to the state of each home, and to alarms; pure |
//! | [`results`] | the storage of results: a log of create-only objects for each partition |
//! | [`host`] | the program that reads the hub: the tutorial |
//! | [`view`] | the data of the page, read from the results; and the audit |
//! | [`page`] | the page |
//! | [`fleet`] | the processes: start, stop, kill, pause |
#![allow(
    clippy::disallowed_methods,
    reason = "an ordinary program sleeps, spawns and asks for the time as it likes"
)]

pub mod city;
pub mod consolidate;
mod demo_state;
pub mod fleet;
mod folder;
pub mod host;
mod os;
pub mod page;
pub mod reading;
pub mod results;
pub mod run;
mod summary;
pub mod time;
pub mod view;
