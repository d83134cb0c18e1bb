//! The command-line arguments of `ephor`, and those of `dev`, `send`, `tail` and `verify`. The arguments of
//! `demo` and of the store commands are in their folders. None implements `Debug`, because a connection
//! string contains a key.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::demo::arguments::{Demo, DemoHost};
use crate::store_commands::arguments::{CheckpointCommand, GroupCommand, HostCommand, LeaseCommand, Output};

const LOGS: &str = "RUST_LOG selects the log lines on stderr, such as RUST_LOG=ephor_gateway=debug.
Default: warnings and rejected clients.";

/// A local event hub, and tools for event hubs and consumer groups.
#[derive(Parser)]
#[command(name = "ephor", version, arg_required_else_help = true, after_help = LOGS)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a local event hub that the Azure SDKs can connect to
    Dev(Dev),
    /// Run the home-security demo: 100,000 homes, a hub, five hosts and a web page
    Demo(Demo),
    #[command(hide = true)]
    DemoHost(DemoHost),
    /// Send events from the arguments, or from the lines of standard input
    Send(Send),
    /// Print events as they arrive
    Tail(Tail),
    /// Read all files of a data folder and report damage
    Verify(Verify),
    /// Show consumer groups: owners, checkpoints and lag
    #[command(subcommand)]
    Group(GroupCommand),
    /// List the hosts of a group, or drain one
    #[command(subcommand)]
    Host(HostCommand),
    /// List, move, export or import checkpoints
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Show the history of leases
    #[command(subcommand)]
    Lease(LeaseCommand),
}

#[derive(Args)]
#[command(after_help = LOGS)]
pub(crate) struct Dev {
    /// Folder where events are stored
    #[arg(long, value_name = "DIR", default_value = "ephor-data", conflicts_with = "memory")]
    pub(crate) data: PathBuf,
    /// Keep everything in memory only; it is lost when the hub stops
    #[arg(long)]
    pub(crate) memory: bool,
    /// Acknowledge events when they are in the page cache, before they are on disk; a power failure
    /// may lose the newest ones
    #[arg(long, conflicts_with = "memory")]
    pub(crate) page_cache: bool,
    /// Address to listen on for AMQP; port 0 picks a free port
    #[arg(long, value_name = "ADDR", value_parser = address, default_value = "127.0.0.1:5672")]
    pub(crate) amqp: SocketAddr,
    /// Address to listen on for AMQP over TLS, with a development certificate that is generated and
    /// stored with the data, or with your own (--cert)
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) amqps: Option<SocketAddr>,
    /// Host name or address by which clients reach this machine, for the development certificate;
    /// can be repeated
    #[arg(long = "name", value_name = "HOST", value_parser = host_name, requires = "amqps", conflicts_with = "cert")]
    pub(crate) names: Vec<String>,
    /// Your own certificate (PEM), followed by those of its authorities; reloaded when it changes
    #[arg(long, value_name = "FILE", requires = "cert_key", requires = "amqps")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key (PEM) of that certificate; other users must not be able to read the file
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) cert_key: Option<PathBuf>,
    /// Address of the health check, GET /health
    #[arg(long, value_name = "ADDR", value_parser = address, default_value = "127.0.0.1:5300")]
    pub(crate) http: SocketAddr,
    /// Hub to create, as NAME or NAME:PARTITIONS; can be repeated. An existing hub keeps its
    /// partitions
    #[arg(long = "hub", value_name = "NAME[:PARTITIONS]")]
    pub(crate) hubs: Vec<String>,
    /// Let an existing hub grow to the requested number of partitions. It cannot shrink again, and
    /// keys map to other partitions afterwards
    #[arg(long)]
    pub(crate) grow: bool,
    /// Consumer group to create; can be repeated
    #[arg(long = "group", value_name = "HUB/GROUP")]
    pub(crate) groups: Vec<String>,
    /// File that lists hubs: a configuration of Ephor, or the Config.json of the Microsoft emulator
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// File with the key that clients must present, instead of the public development key. Default,
    /// unless --keys is given: the file that EPHOR_KEY_FILE names
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// File with several keys, one per line: NAME CLAIMS KEY, and optionally HUB if the key is for
    /// one hub only; CLAIMS are send, listen or manage, separated by commas
    #[arg(long, value_name = "FILE", conflicts_with = "key_file")]
    pub(crate) keys: Option<PathBuf>,
    /// Serve other machines without TLS, or with the development key; only for networks that you
    /// trust
    #[arg(long)]
    pub(crate) allow_insecure: bool,
    /// Stop when the process that started this one ends
    #[arg(long, hide = true)]
    pub(crate) end_with_parent: bool,
}

fn address(given: &str) -> Result<SocketAddr, String> {
    given
        .parse()
        .map_err(|_| "write an address with its port, such as 127.0.0.1:5672 or [::1]:5672".to_owned())
}

/// Parses a host name for a certificate: an address, or labels of letters, digits, hyphens and underscores
/// with dots between. The dot at the end of a complete name is left out, because certificates have none.
fn host_name(given: &str) -> Result<String, String> {
    let given = given.strip_suffix('.').unwrap_or(given);
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
    /// Connection string of the hub. If it contains a key, use EPHOR_CONNECTION or
    /// --connection-file instead
    #[arg(
        long,
        value_name = "STRING",
        env = "EPHOR_CONNECTION",
        hide_env_values = true,
        default_value = "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=RootManageSharedAccessKey;\
                         SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
    )]
    pub(crate) connection: String,
    /// File with the connection string; other users must not be able to read it
    #[arg(long, value_name = "FILE")]
    pub(crate) connection_file: Option<PathBuf>,
    /// Additional certificate (PEM) to trust, such as the one of ephor dev --amqps
    #[arg(long, value_name = "FILE", env = "EPHOR_TRUST")]
    pub(crate) trust: Option<PathBuf>,
    /// Connect to another machine without TLS if the connection string asks for it; only for
    /// networks that you trust
    #[arg(long)]
    pub(crate) allow_insecure: bool,
}

#[derive(Args)]
pub(crate) struct Send {
    /// Name of the hub
    pub(crate) hub: String,
    /// Bodies of the events; without any, each line of standard input is an event
    pub(crate) bodies: Vec<String>,
    /// Send to this partition
    #[arg(long, conflicts_with = "key")]
    pub(crate) partition: Option<u32>,
    /// Send to the partition of this partition key
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Final report: text on stderr (table), or JSON with the number of events sent (json)
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) to: Connection,
}

#[derive(Args)]
pub(crate) struct Tail {
    /// Name of the hub
    pub(crate) hub: String,
    /// Read only this partition
    #[arg(long)]
    pub(crate) partition: Option<u32>,
    /// Consumer group to read with
    #[arg(long, default_value = "$Default")]
    pub(crate) group: String,
    /// Start at the oldest event instead of at new ones
    #[arg(long)]
    pub(crate) from_beginning: bool,
    /// Stop after this number of events
    #[arg(long, short = 'n')]
    pub(crate) count: Option<u64>,
    /// A line of text for each event (table), or a JSON object with all its fields (json)
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) of: Connection,
}

#[derive(Args)]
pub(crate) struct Verify {
    /// Data folder of a hub
    pub(crate) data: PathBuf,
    /// Text for people, or JSON for programs
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}
