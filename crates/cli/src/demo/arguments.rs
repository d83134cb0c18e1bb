//! The arguments of `ephor demo`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use ephor_homes::reading::MAX_HOMES;

/// The default address of the page.
const PAGE: &str = "127.0.0.1:8233";

const EXAMPLES: &str = "While it runs, from another terminal:
  ephor demo status                 owners of partitions, and whether every reading is accounted for
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
    /// Number of homes
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_HOMES)))]
    pub(crate) homes: u32,
    /// Number of hosts at the start
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) hosts: u32,
    /// Speed of the city's time relative to real time
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    pub(crate) speed: f64,
    /// Seed of the random numbers: the same seed makes the same city
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Folder for all data; the data of an earlier demo in it is replaced
    #[arg(long, value_name = "DIR", default_value = "ephor-demo")]
    pub(crate) data: PathBuf,
    /// Address of the web page; port 0 picks a free port
    #[arg(long, value_name = "ADDR", default_value = PAGE)]
    pub(crate) page: SocketAddr,
    /// Stop after this number of seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) seconds: Option<u64>,
    /// Connection string of a hub with 16 partitions and the consumer groups consolidate and
    /// alarms; by default the demo starts a hub
    #[arg(long, value_name = "STRING", env = "EPHOR_DEMO_HUB", hide_env_values = true)]
    pub(crate) hub: Option<String>,
    /// File with that connection string; other users must not be able to read it
    #[arg(long, value_name = "FILE")]
    pub(crate) hub_file: Option<PathBuf>,
    /// Connect to a hub on another machine without TLS if its connection string asks for it; only
    /// for networks that you trust
    #[arg(long)]
    pub(crate) allow_insecure: bool,
    /// Additional certificate (PEM) to trust
    #[arg(long, value_name = "FILE", env = "EPHOR_TRUST")]
    pub(crate) trust: Option<PathBuf>,
    /// Connection string of a storage account for the results; by default they are written to a
    /// folder
    #[arg(long, value_name = "STRING", env = "EPHOR_DEMO_RESULTS", hide_env_values = true)]
    pub(crate) results: Option<String>,
    /// File with that connection string; other users must not be able to read it
    #[arg(long, value_name = "FILE")]
    pub(crate) results_file: Option<PathBuf>,
}

#[derive(Subcommand)]
pub(crate) enum DemoCommand {
    /// Add, stop, kill, pause, resume or slow hosts of a running demo
    #[command(subcommand)]
    Host(HostAction),
    /// Switch the carbon-monoxide detectors of all homes on or off
    Detectors {
        /// State of the detectors
        #[arg(value_parser = ["on", "off"])]
        state: String,
        #[command(flatten)]
        at: At,
    },
    /// Kill the hub and start it again
    RestartHub(At),
    /// Show the status of a running demo
    Status(At),
    /// Show one home
    Home {
        /// Number of the home
        home: u32,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Subcommand)]
pub(crate) enum HostAction {
    /// Start another host
    Add(At),
    /// Stop a host gracefully: it finishes, hands over and exits
    Stop(Named),
    /// Kill a host, as a power failure would
    Kill(Named),
    /// Freeze a host; it is fenced once its leases have expired
    Pause(Named),
    /// Continue a paused host
    Resume(Named),
    /// Delay each batch of a host by this number of milliseconds; 0 removes the delay
    Slow {
        #[command(flatten)]
        which: Named,
        /// Delay of each batch, in milliseconds
        #[arg(value_parser = clap::value_parser!(u32).range(0..=10_000))]
        by: u32,
    },
}

#[derive(Args)]
pub(crate) struct Named {
    /// Name of the host, such as host-3
    pub(crate) host: String,
    #[command(flatten)]
    pub(crate) at: At,
}

/// Where the demo runs.
#[derive(Args)]
pub(crate) struct At {
    /// Address of the demo's web page
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
    if (0.01..=1_000.0).contains(&speed) {
        Ok(speed)
    } else {
        Err("write a number from 0.01 to 1000".to_owned())
    }
}
