//! The arguments of `ephor demo`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use ephor_homes::reading::MAX_HOMES;

/// The default address of the page.
const PAGE: &str = "127.0.0.1:8233";

const EXAMPLES: &str = "While it runs, from another terminal:
  ephor demo status                 who owns what, and whether everything is accounted for
  ephor demo host kill host-3       the others take over; also add, stop, pause, resume, slow
  ephor demo detectors on           a third more events";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Demo {
    #[command(flatten)]
    pub(crate) run: Run,
    #[command(subcommand)]
    pub(crate) command: Option<DemoCommand>,
}

#[derive(Args)]
pub(crate) struct Run {
    /// How many homes there are
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_HOMES)))]
    pub(crate) homes: u32,
    /// How many hosts to begin with
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) hosts: u32,
    /// How much faster than ours the city's time runs
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    pub(crate) speed: f64,
    /// What chance begins with: the same seed makes the same city
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where everything is kept; what an earlier demo left there is replaced
    #[arg(long, value_name = "DIR", default_value = "ephor-demo")]
    pub(crate) data: PathBuf,
    /// Where the page is; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = PAGE)]
    pub(crate) page: SocketAddr,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) seconds: Option<u64>,
    /// The connection string of a hub with 16 partitions and the groups consolidate and alarms; without it, one
    /// is started here
    #[arg(long, value_name = "STRING", env = "EPHOR_DEMO_HUB", hide_env_values = true)]
    pub(crate) hub: Option<String>,
    /// A file with that connection string, which nobody else may be able to read
    #[arg(long, value_name = "FILE")]
    pub(crate) hub_file: Option<PathBuf>,
    /// Connect to a hub on another machine without TLS if its connection string says so; for networks that nobody else
    /// is in
    #[arg(long)]
    pub(crate) allow_insecure: bool,
    /// A certificate (PEM) to trust besides the public ones
    #[arg(long, value_name = "FILE", env = "EPHOR_TRUST")]
    pub(crate) trust: Option<PathBuf>,
    /// The connection string of a storage account for the results; without it, they go to a folder
    #[arg(long, value_name = "STRING", env = "EPHOR_DEMO_RESULTS", hide_env_values = true)]
    pub(crate) results: Option<String>,
    /// A file with that connection string, which nobody else may be able to read
    #[arg(long, value_name = "FILE")]
    pub(crate) results_file: Option<PathBuf>,
}

#[derive(Subcommand)]
pub(crate) enum DemoCommand {
    /// Do something to the hosts of a demo that runs
    #[command(subcommand)]
    Host(HostAction),
    /// Switch the carbon-monoxide detectors of all homes on or off
    Detectors {
        /// on or off
        #[arg(value_parser = ["on", "off"])]
        state: String,
        #[command(flatten)]
        at: At,
    },
    /// Kill the hub and start it again
    RestartHub(At),
    /// Say how a demo that runs is doing
    Status(At),
    /// Show one home
    Home {
        /// Its number
        home: u32,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Subcommand)]
pub(crate) enum HostAction {
    /// Start one more
    Add(At),
    /// Let it finish, hand over and end
    Stop(Named),
    /// Kill it, as a power failure would
    Kill(Named),
    /// Stop it in its tracks: beyond its lease it is fenced
    Pause(Named),
    /// Let a paused one go on
    Resume(Named),
    /// Make it slower by so many milliseconds a batch; 0 makes it fast again
    Slow {
        #[command(flatten)]
        which: Named,
        /// Milliseconds
        #[arg(value_parser = clap::value_parser!(u32).range(0..=10_000))]
        by: u32,
    },
}

#[derive(Args)]
pub(crate) struct Named {
    /// Such as host-3
    pub(crate) host: String,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Where the demo runs.
#[derive(Args)]
pub(crate) struct At {
    /// The address of its page
    #[arg(long, value_name = "ADDR", default_value = PAGE)]
    pub(crate) page: SocketAddr,
}

/// A host of the demo, started by it.
#[derive(Args)]
pub(crate) struct DemoHost {
    #[arg(long)]
    pub(crate) name: String,
    /// The store of leases and checkpoints
    #[arg(long)]
    pub(crate) store: String,
    #[arg(long, env = "EPHOR_DEMO_HUB", hide_env_values = true)]
    pub(crate) hub: String,
    #[arg(long, env = "EPHOR_DEMO_RESULTS", hide_env_values = true)]
    pub(crate) results: String,
    #[arg(long)]
    pub(crate) container: String,
    #[arg(long)]
    pub(crate) from_latest: bool,
    #[arg(long)]
    pub(crate) trust: Option<PathBuf>,
    #[arg(long)]
    pub(crate) allow_insecure: bool,
}

fn speed(given: &str) -> Result<f64, String> {
    let speed: f64 = given.parse().map_err(|_| "write a number, such as 1 or 10".to_owned())?;
    if (0.01..=1_000.0).contains(&speed) { Ok(speed) } else { Err("from 0.01 to 1000".to_owned()) }
}
