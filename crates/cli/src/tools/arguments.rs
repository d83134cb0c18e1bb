//! The arguments of `ephor group`, `host`, `checkpoint` and `lease`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use ephor_core::BoxError;
use ephor_core::ids::{ConsumerGroup, HubName};
use ephor_stores::StoreUrl;

use super::seek::Aim;
use crate::arguments::Connection;
use crate::connection::in_file;

#[derive(Subcommand)]
pub(crate) enum GroupCommand {
    /// All groups that have records in the store
    List(List),
    /// Who owns which partition, since when, and how far each has come
    Describe(Describe),
}

#[derive(Subcommand)]
pub(crate) enum HostCommand {
    /// The hosts of a group
    List(Look),
    /// Ask a host to hand over all its partitions and take no new ones
    Drain(Drain),
}

#[derive(Subcommand)]
pub(crate) enum CheckpointCommand {
    /// How far a group has come in each partition
    List(Look),
    /// Move the position of a group: shows what would happen, and does it with --yes
    Seek(Seek),
    /// Write the checkpoints of a group as JSON, for `import`
    Export(Export),
    /// Take over the positions of an export: shows what would happen, and does it with --yes
    Import(Import),
}

#[derive(Subcommand)]
pub(crate) enum LeaseCommand {
    /// Who owned what, and why that changed, newest first
    History(History),
}

/// Where leases and checkpoints live, and in which form the answer is given.
#[derive(Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) store: StoreName,
    /// Tables for people, JSON for programs
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// Where leases and checkpoints live.
#[derive(Args)]
pub(crate) struct StoreName {
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or azblob://ACCOUNT/CONTAINER. A password is better in the
    /// environment (EPHOR_STORE, or PGPASSWORD for PostgreSQL), in ~/.pgpass or in a file
    #[arg(long, value_name = "URL", env = "EPHOR_STORE", hide_env_values = true)]
    store: Option<String>,
    /// A file with the store's URL, which nobody else may be able to read
    #[arg(long, value_name = "FILE")]
    store_file: Option<PathBuf>,
}

impl StoreName {
    /// The store's URL. A file given as an option takes precedence over the environment.
    pub(crate) fn url(&self) -> Result<StoreUrl, BoxError> {
        let text = match (&self.store_file, &self.store) {
            (Some(file), _) => in_file("--store-file", file)?,
            (None, Some(url)) => url.clone(),
            // Already refused, with all ways to name a store.
            (None, None) => String::new(),
        };
        Ok(text.parse()?)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

/// Where nothing else makes sense.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnlyJson {
    Json,
}

/// `HUB/GROUP`; a hub name may contain slashes, a group name none.
#[derive(Clone, Debug)]
pub(crate) struct HubAndGroup {
    pub(crate) hub: HubName,
    pub(crate) group: ConsumerGroup,
}

impl FromStr for HubAndGroup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (hub, group) =
            text.rsplit_once('/').ok_or("write HUB/GROUP, such as homes/security or homes/$Default")?;
        let hub = hub.parse().map_err(|error: ephor_core::ids::InvalidName| error.to_string())?;
        let group = group.parse().map_err(|error: ephor_core::ids::InvalidName| error.to_string())?;
        Ok(Self { hub, group })
    }
}

/// A group in a store.
#[derive(Args)]
pub(crate) struct GroupName {
    /// The hub and the consumer group
    #[arg(value_name = "HUB/GROUP")]
    pub(crate) group: HubAndGroup,
    /// The namespace, if the store has groups of that name in several
    #[arg(long)]
    pub(crate) namespace: Option<String>,
}

/// A group, its store, and in which form the answer is given.
#[derive(Args)]
pub(crate) struct Look {
    #[command(flatten)]
    pub(crate) name: GroupName,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args)]
pub(crate) struct Describe {
    #[command(flatten)]
    pub(crate) look: Look,
    #[command(flatten)]
    pub(crate) hub: Connection,
}

#[derive(Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    pub(crate) look: Look,
    /// The host, by its name or by its whole id (`ephor host list` shows both)
    pub(crate) host: String,
    /// Take a drain back
    #[arg(long)]
    pub(crate) undo: bool,
}

#[derive(Args)]
pub(crate) struct Seek {
    #[command(flatten)]
    pub(crate) look: Look,
    /// Where to: earliest, latest, seq:N (event N is the next), offset:TEXT, time:2026-08-21T12:00:00Z, by:-500
    #[arg(long, value_name = "WHERE", allow_hyphen_values = true)]
    pub(crate) to: Aim,
    /// Only this partition; may be given several times
    #[arg(long = "partition", value_name = "NUMBER")]
    pub(crate) partitions: Vec<u32>,
    /// Only say what would happen, which is what happens without --yes
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Do it
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) hub: Connection,
}

#[derive(Args)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) name: GroupName,
    #[command(flatten)]
    pub(crate) store: StoreName,
    /// An export is JSON: it is for `import`. `ephor checkpoint list` shows the same as a table
    #[arg(short, long, value_enum, default_value_t = OnlyJson::Json)]
    pub(crate) output: OnlyJson,
    /// Export what can be read even if a record cannot: positions may be missing
    #[arg(long)]
    pub(crate) incomplete: bool,
}

#[derive(Args)]
pub(crate) struct Import {
    #[command(flatten)]
    pub(crate) look: Look,
    /// The file that `export` wrote, or - for standard input
    pub(crate) file: PathBuf,
    /// Do it
    #[arg(long)]
    pub(crate) yes: bool,
    /// The connection string of the hub: with it namespace and partitions are checked before anything is written
    #[arg(long, value_name = "STRING", env = "EPHOR_CONNECTION", hide_env_values = true)]
    pub(crate) connection: Option<String>,
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
pub(crate) struct History {
    #[command(flatten)]
    pub(crate) look: Look,
    /// Only this partition
    #[arg(long, value_name = "NUMBER")]
    pub(crate) partition: Option<u32>,
    /// At most so many changes
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) last: usize,
}
