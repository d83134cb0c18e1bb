//! The arguments of `ephor group`, `host`, `checkpoint` and `lease`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use ephor_core::BoxError;
use ephor_core::ids::{ConsumerGroup, HubName};
use ephor_stores::StoreUrl;

use super::seek::Aim;
use crate::arguments::Connection;
use crate::open_client::in_file;

#[derive(Subcommand)]
pub(crate) enum GroupCommand {
    /// List all groups that have records in the store
    List(List),
    /// Show the owner, checkpoint and lag of each partition
    Describe(Describe),
}

#[derive(Subcommand)]
pub(crate) enum HostCommand {
    /// List the hosts of a group
    List(Look),
    /// Ask a host to hand over all its partitions and take no new ones
    Drain(Drain),
}

#[derive(Subcommand)]
pub(crate) enum CheckpointCommand {
    /// List the checkpoints of a group
    List(Look),
    /// Move the checkpoints of a group; only shows the changes unless --yes is given
    Seek(Seek),
    /// Write the checkpoints of a group as JSON, for `import`
    Export(Export),
    /// Import the positions of an export; only shows the changes unless --yes is given
    Import(Import),
}

#[derive(Subcommand)]
pub(crate) enum LeaseCommand {
    /// List the changes of owners with their reasons, newest first
    History(History),
}

/// Where leases and checkpoints live, and in which form the answer is given.
#[derive(Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) store: StoreName,
    /// Table for people, or JSON for programs
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// Where leases and checkpoints live.
#[derive(Args)]
pub(crate) struct StoreName {
    /// URL of the store: sqlite:PATH, postgres://USER@HOST/DATABASE or azblob://ACCOUNT/CONTAINER.
    /// Put a password into EPHOR_STORE, --store-file, or for PostgreSQL into PGPASSWORD or
    /// ~/.pgpass
    #[arg(long, value_name = "URL", env = "EPHOR_STORE", hide_env_values = true)]
    store: Option<String>,
    /// File with the URL of the store; other users must not be able to read it
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
    /// Hub and consumer group
    #[arg(value_name = "HUB/GROUP")]
    pub(crate) group: HubAndGroup,
    /// Namespace of the hub; needed if the store has groups of this name in several namespaces
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
    /// Name or full id of the host (`ephor host list` shows both)
    pub(crate) host: String,
    /// Cancel a drain
    #[arg(long)]
    pub(crate) undo: bool,
}

#[derive(Args)]
pub(crate) struct Seek {
    #[command(flatten)]
    pub(crate) look: Look,
    /// New position: earliest, latest, seq:N (event N is the next), offset:TEXT,
    /// time:2026-08-21T12:00:00Z, or by:-500
    #[arg(long, value_name = "WHERE", allow_hyphen_values = true)]
    pub(crate) to: Aim,
    /// Move only this partition; can be repeated
    #[arg(long = "partition", value_name = "NUMBER")]
    pub(crate) partitions: Vec<u32>,
    /// Only show the changes; this is the default without --yes
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Make the changes
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
    /// Always JSON, for `import`; `ephor checkpoint list` shows the same as a table
    #[arg(short, long, value_enum, default_value_t = OnlyJson::Json)]
    pub(crate) output: OnlyJson,
    /// Export even if a record cannot be read: positions may be missing
    #[arg(long)]
    pub(crate) incomplete: bool,
}

#[derive(Args)]
pub(crate) struct Import {
    #[command(flatten)]
    pub(crate) look: Look,
    /// File that `export` wrote, or - for standard input
    pub(crate) file: PathBuf,
    /// Make the changes
    #[arg(long)]
    pub(crate) yes: bool,
    /// Connection string of the hub; if given, namespace and partitions are checked before anything
    /// is written
    #[arg(long, value_name = "STRING", env = "EPHOR_CONNECTION", hide_env_values = true)]
    pub(crate) connection: Option<String>,
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
pub(crate) struct History {
    #[command(flatten)]
    pub(crate) look: Look,
    /// Show only this partition
    #[arg(long, value_name = "NUMBER")]
    pub(crate) partition: Option<u32>,
    /// Maximum number of changes to show
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) last: usize,
}
