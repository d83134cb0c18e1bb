//! Benchmarks of AMQP and of `ephor dev`: receiving and sending compared with a plain TCP stream, the hub
//! without AMQP, and other clients; start time and idle memory compared with fixed limits.
//!
//! | command | file | measures |
//! |---|---|---|
//! | `receive` | `receive.rs` | events over one connection, beside a plain stream of the same bytes and fe2o3-amqp |
//! | `send` | `send.rs` | batches acknowledged from disk, beside the hub in the same process |
//! | `clients` | `clients.rs` | our host beside the official Python and JavaScript receivers |
//! | `dev` | `start.rs` | the start time of `ephor dev`, and its memory when idle |
//!
//! The server is a process of its own, `ephor dev` as users start it (fe2o3-amqp and the plain stream have
//! another); so is every client but ours, which runs in this one. Beside each rate stands the CPU time of both
//! ends for one event.

mod clients;
mod dev;
mod other_clients;
mod our_client;
mod receive;
mod send;
mod start;
mod tcp_stream;

use std::process::ExitCode;

use ephor::BoxError;

use crate::figures::{self, Figure};
use crate::machine;
use crate::options::Options;

pub(crate) const USAGE: &str =
    "gateway [receive|send|clients|dev] [--dir FOLDER] [--any-filesystem] [--mib N]";

type Benchmark = fn(&Options) -> Result<Vec<Figure>, BoxError>;

const BENCHMARKS: [(&str, Benchmark); 4] = [
    ("dev", start::ready),
    ("receive", receive::one_connection),
    ("send", send::durable),
    ("clients", clients::beside),
];

/// Runs the benchmarks that the arguments after `gateway` name; a bound that is missed is a failure.
pub(crate) fn command(words: &[&str]) -> ExitCode {
    figures::exit(run(words), USAGE)
}

fn run(words: &[&str]) -> Result<bool, BoxError> {
    let (name, rest) = match words {
        ["stream", port, bytes] => return tcp_stream::write(port.parse()?, bytes.parse()?).map(|()| true),
        [name, rest @ ..] if !name.starts_with('-') => (Some(*name), rest),
        rest => (None, rest),
    };
    let options = Options::parse(rest)?;
    let chosen = BENCHMARKS.iter().filter(|(other, _)| name.is_none_or(|name| name == *other));
    let chosen: Vec<Benchmark> = chosen.map(|(_, benchmark)| *benchmark).collect();
    if chosen.is_empty() {
        return Err(format!("unknown benchmark of the gateway: {:?}", name.unwrap_or_default()).into());
    }
    let before = machine::load_average();
    let mut figures = Vec::new();
    for benchmark in chosen {
        figures.extend(benchmark(&options)?);
    }
    println!("1 KiB events over loopback, median of {} runs in turn", figures::RUNS);
    figures::print(&figures);
    println!("load before: {before}; after: {}", machine::load_average());
    Ok(figures.iter().all(Figure::is_met))
}
