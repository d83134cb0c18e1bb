//! The command-line arguments. Nothing here is `Debug`, because a connection string contains a key.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::demo::arguments::{Demo, DemoHost};
use crate::tools::arguments::{CheckpointCommand, GroupCommand, HostCommand, LeaseCommand, Output};

const LOGS: &str = "RUST_LOG sets what is logged on stderr, such as RUST_LOG=ephor_gateway=debug; without it, \
                    warnings, and whom the hub did not let in";

/// An event hub on your machine, and tools for every event hub.
#[derive(Parser)]
#[command(name = "ephor", version, arg_required_else_help = true, after_help = LOGS)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start an event hub that the Azure SDKs connect to
    Dev(Dev),
    /// Watch over 100,000 homes: sensors, a hub, five hosts and a page
    Demo(Demo),
    #[command(hide = true)]
    DemoHost(DemoHost),
    /// Send events: from the arguments, or the lines of standard input
    Send(Send),
    /// Print events as they come
    Tail(Tail),
    /// Read a whole data folder to see whether every bit is as it was written
    Verify(Verify),
    /// Look at consumer groups: who owns what, and how far it has come
    #[command(subcommand)]
    Group(GroupCommand),
    /// Look at the hosts of a group, or drain one
    #[command(subcommand)]
    Host(HostCommand),
    /// Look at checkpoints, move them, or carry them to another store
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Look at what happened to leases
    #[command(subcommand)]
    Lease(LeaseCommand),
}

#[derive(Args)]
#[command(after_help = LOGS)]
pub(crate) struct Dev {
    /// Where events are kept
    #[arg(long, value_name = "DIR", default_value = "ephor-data", conflicts_with = "memory")]
    pub(crate) data: PathBuf,
    /// Keep everything in memory, and forget it at the end
    #[arg(long)]
    pub(crate) memory: bool,
    /// Answer senders before events are on disk; a power failure may lose the newest
    #[arg(long, conflicts_with = "memory")]
    pub(crate) relaxed: bool,
    /// Where to listen for AMQP; port 0 picks a free one
    #[arg(long, value_name = "ADDR", value_parser = address, default_value = "127.0.0.1:5672")]
    pub(crate) amqp: SocketAddr,
    /// Where to listen for AMQP over TLS too, with a certificate made for development and kept with the data, or with
    /// one of your own
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) amqps: Option<SocketAddr>,
    /// A name or an address by which clients reach this machine, for the certificate made for development; may be given
    /// several times
    #[arg(long = "name", value_name = "HOST", value_parser = host_name, requires = "amqps", conflicts_with = "cert")]
    pub(crate) names: Vec<String>,
    /// A certificate of your own (PEM), with those of its authorities behind it; read again when it changes
    #[arg(long, value_name = "FILE", requires = "cert_key", requires = "amqps")]
    pub(crate) cert: Option<PathBuf>,
    /// The private key (PEM) of that certificate, which nobody else may be able to read
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) cert_key: Option<PathBuf>,
    /// Where to answer GET /health
    #[arg(long, value_name = "ADDR", value_parser = address, default_value = "127.0.0.1:5300")]
    pub(crate) http: SocketAddr,
    /// A hub to have, as NAME or NAME:PARTITIONS; may be given several times. One that is there keeps its partitions
    #[arg(long = "hub", value_name = "NAME[:PARTITIONS]")]
    pub(crate) hubs: Vec<String>,
    /// Let a hub that is there grow to the partitions that are asked for. It never shrinks again, and keys choose other
    /// partitions from then on
    #[arg(long)]
    pub(crate) grow: bool,
    /// A consumer group to have; may be given several times
    #[arg(long = "group", value_name = "HUB/GROUP")]
    pub(crate) groups: Vec<String>,
    /// Hubs from a file: ours, or the Config.json of the Microsoft emulator
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A file with the key that clients have to know, instead of the one for development that everybody knows; without
    /// it and without --keys, the file that EPHOR_KEY_FILE names
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// A file with several keys: lines of NAME CLAIMS KEY, and HUB behind it for a key of one hub alone; CLAIMS are send,
    /// listen or manage, with commas between them
    #[arg(long, value_name = "FILE", conflicts_with = "key_file")]
    pub(crate) keys: Option<PathBuf>,
    /// Serve other machines without TLS, or with the key for development; for networks that nobody else is in
    #[arg(long)]
    pub(crate) allow_insecure: bool,
    /// End when the process that started this one does
    #[arg(long, hide = true)]
    pub(crate) end_with_parent: bool,
}

fn address(given: &str) -> Result<SocketAddr, String> {
    given
        .parse()
        .map_err(|_| "write an address with its port, such as 127.0.0.1:5672 or [::1]:5672".to_owned())
}

/// Parses a host name for a certificate: an address, or labels of letters, digits, hyphens and underscores
/// with dots between.
fn host_name(given: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=63).contains(&label.len()) && !label.starts_with('-') && label.bytes().all(known)
    };
    let is_named = match given.parse::<IpAddr>() {
        Ok(address) => !address.is_unspecified(),
        Err(_) => given.len() <= 253 && given.split('.').all(is_label),
    };
    match is_named {
        true => Ok(given.to_ascii_lowercase()),
        false => Err("write a name or an address without a port, such as hub.example or 10.0.0.7".to_owned()),
    }
}

/// How to find a hub.
#[derive(Args)]
pub(crate) struct Connection {
    /// The connection string; where it has a key in it, better in the environment or in a file
    #[arg(
        long,
        value_name = "STRING",
        env = "EPHOR_CONNECTION",
        hide_env_values = true,
        default_value = "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=RootManageSharedAccessKey;\
                         SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
    )]
    pub(crate) connection: String,
    /// A file with the connection string, which nobody else may be able to read
    #[arg(long, value_name = "FILE")]
    pub(crate) connection_file: Option<PathBuf>,
    /// A certificate (PEM) to trust besides the public ones, such as the one of ephor dev --amqps
    #[arg(long, value_name = "FILE", env = "EPHOR_TRUST")]
    pub(crate) trust: Option<PathBuf>,
    /// Connect to another machine without TLS if the connection string says so; for networks that nobody else is in
    #[arg(long)]
    pub(crate) allow_insecure: bool,
}

#[derive(Args)]
pub(crate) struct Send {
    /// The hub
    pub(crate) hub: String,
    /// The bodies of the events; none: one event for each line of standard input
    pub(crate) bodies: Vec<String>,
    /// Send to this partition
    #[arg(long, conflicts_with = "key")]
    pub(crate) partition: Option<u32>,
    /// Send to the partition that this key chooses
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// What is told at the end: words on stderr, or how many were sent as JSON
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) to: Connection,
}

#[derive(Args)]
pub(crate) struct Tail {
    /// The hub
    pub(crate) hub: String,
    /// Only this partition
    #[arg(long)]
    pub(crate) partition: Option<u32>,
    /// The consumer group
    #[arg(long, default_value = "$Default")]
    pub(crate) group: String,
    /// Begin with the oldest event instead of the next
    #[arg(long)]
    pub(crate) from_beginning: bool,
    /// End after so many events
    #[arg(long, short = 'n')]
    pub(crate) count: Option<u64>,
    /// A line of text for each event, or an object of JSON with everything that the event has
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) of: Connection,
}

#[derive(Args)]
pub(crate) struct Verify {
    /// The data folder
    pub(crate) data: PathBuf,
    /// Words for people, JSON for programs
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}
