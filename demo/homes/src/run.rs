//! Runs the whole demo: hub, hosts, sensors, page, and the audit at the end.

use std::fmt;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ephor::environment::SystemClock;
use ephor::source::OpenRequest;
use ephor::{BoxError, Clock, EventSource, PartitionId, Store, Timestamp};
use ephor_eventhubs::EventHub;
use ephor_stores::StoreUrl;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::city::{City, ReadingSchedule, SensorControls, Sensors, SentReadings};
use crate::demo_state::DemoState;
use crate::fleet::{ALARMS, CONSOLIDATE, Fleet, Setting};
use crate::folder;
use crate::host::{permitting, trusting};
use crate::page::{self, Source};
use crate::reading::PARTITIONS;
use crate::results::ResultStore;
use crate::time::CityTime;
use crate::view::model::GroupNow;
use crate::view::{Operator, View};

pub use crate::summary::Summary;

/// How long the last readings may take from the sensors to the view.
const LAST_READINGS: Duration = Duration::from_secs(60);
/// How long it may take until all partitions have an owner.
const FIRST_OWNERS: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);

/// The options of a demo.
#[derive(Clone)]
pub struct DemoOptions {
    /// The `ephor` program: hub and hosts are processes of it.
    pub program: PathBuf,
    /// The number of homes.
    pub homes: u32,
    /// The number of hosts at the start.
    pub hosts: u32,
    /// How much faster than ours the city's time runs.
    pub speed: f64,
    /// The seed.
    pub seed: u64,
    /// The data folder.
    pub folder: PathBuf,
    /// The address of the page.
    pub page: SocketAddr,
    /// The connection string of a hub; none: one is started here.
    pub hub: Option<String>,
    /// Certificates to trust besides the public ones.
    pub trust: Option<PathBuf>,
    /// Connects to a hub on another machine without TLS, if its connection string says so.
    pub allow_insecure: bool,
    /// The connection string of a storage account for the results; none: a folder.
    pub results: Option<String>,
    /// When it began, which tells its results from those of another.
    pub began: Timestamp,
}

/// Runs until `stopped`; then everything that was sent is waited for, and compared.
pub async fn run(options: DemoOptions, stopped: impl Future<Output = ()>) -> Result<Summary, BoxError> {
    if !options.page.ip().is_loopback() {
        return Err(format!(
            "{} can be reached from other machines, but the page is for this machine only: use --page \
             127.0.0.1:8233",
            options.page
        )
        .into());
    }
    let listener = TcpListener::bind(options.page).await.map_err(|error| {
        format!(
            "cannot listen on {}: {error}; is a demo running there? A second demo needs its own page and \
             folder: --page 127.0.0.1:0 --data OTHER",
            options.page
        )
    })?;
    let held = folder::prepare(&options.folder)?;
    let folder = held.path.clone();
    let mut fleet = Fleet::new(setting(&options, &folder));
    let hub = match &options.hub {
        Some(connection) => connection.clone(),
        None => fleet.start_hub().await?,
    };
    let (results, container) = place(&options, &folder);
    fleet.set_secrets(vec![
        ("EPHOR_DEMO_HUB".to_owned(), hub.clone()),
        ("EPHOR_DEMO_RESULTS".to_owned(), results.clone()),
    ]);
    let place = ResultStore::open(&results, &container).await?;
    let source = connect(&hub, &options).await?;
    let store: Arc<dyn Store> = ephor_stores::open(&store_url(&folder).parse::<StoreUrl>()?).await?;
    let partitions = source.hub_properties().await?.partitions.len();
    if partitions != PARTITIONS as usize {
        return Err(format!(
            "the demo needs a hub with {PARTITIONS} partitions, and this hub has {partitions}: use another \
             hub"
        )
        .into());
    }
    groups_exist(&source).await?;
    for _ in 0..options.hosts {
        fleet.add_host()?;
    }

    let city = City::new(options.seed, options.homes);
    let sent_readings = SentReadings::new(options.homes);
    let view = Arc::new(View::new(city, sent_readings.clone(), options.speed));
    let outbox = source.producer();
    let operator = Operator::new(store, Arc::new(source))?;
    let sensor_controls = SensorControls::default();
    let state = Arc::new(DemoState::new(view.clone(), fleet, operator, sensor_controls.clone()));
    let shown = listener.local_addr()?;

    let (end, ended) = watch::channel(false);
    let background = async {
        let until_ended = async move { drop(ended.clone().wait_for(|end| *end).await) };
        let page = page::serve(listener, state.clone() as Arc<dyn Source>, until_ended);
        tokio::select! {
            served = page => served.map_err(BoxError::from),
            () = view.follow(&place) => Ok(()),
            () = state.watch_city() => Ok(()),
            () = state.watch_fleet() => Ok(()),
        }
    };
    let work = async {
        banner(&options, &folder, shown);
        owned(&state, options.hub.is_some()).await?;
        let began = SystemClock.now();
        let from = CityTime(u64::try_from(SystemClock.wall().0).unwrap_or(0));
        let sensors = Sensors {
            schedule: ReadingSchedule::new(city, from, options.speed),
            speed: options.speed,
            homes: options.homes,
            sent_readings,
            outbox,
            sensor_controls,
        };
        let stopped = async {
            stopped.await;
            state.end();
            say("stopping: waiting until all readings are processed; press Ctrl-C again to stop immediately");
        };
        let sent = sensors.run(stopped, LAST_READINGS).await;
        if !sent.is_clean() {
            say(&sent.to_string());
        }
        let lasted = SystemClock.now().since(began);
        until_results_are_complete(&view).await;
        let shown = state.city();
        let (cores, memory) = state.cost();
        let mut fleet = state.fleet.lock().await;
        // The operator's view leaves the hub first, so that it does not report the stop as an error.
        state.operator.leave_hub();
        fleet.stop_hosts().await;
        fleet.stop_hub().await;
        Ok(Summary { audit: view.city().audit, lasted, cores, memory, latency: shown.p50.zip(shown.p99) })
    };
    let mut background = std::pin::pin!(background);
    let done = tokio::select! {
        biased;
        done = work => done,
        failed = &mut background => return match failed {
            Err(error) => Err(error),
            Ok(()) => Err("the page ended before the demo".into()),
        },
    };
    // The page gets a last event.
    end.send_replace(true);
    drop(background.await);
    done
}

fn setting(options: &DemoOptions, folder: &Path) -> Setting {
    let (_, container) = place(options, folder);
    let mut host_arguments =
        vec![format!("--store={}", store_url(folder)), format!("--container={container}")];
    if let Some(trust) = &options.trust {
        host_arguments.push(format!("--trust={}", trust.display()));
    }
    if options.allow_insecure {
        host_arguments.push("--allow-insecure".into());
    }
    if options.hub.is_some() {
        // What others sent to it before is none of our business.
        host_arguments.push("--from-latest".into());
    }
    Setting {
        program: options.program.clone(),
        folder: folder.to_owned(),
        host_arguments,
        secrets: Vec::new(),
    }
}

/// Leases and checkpoints of this demo.
fn store_url(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("ephor.db").display())
}

/// Returns the target of the results, and the container there: a new one for every demo.
fn place(options: &DemoOptions, folder: &Path) -> (String, String) {
    let began = options.began.0;
    match &options.results {
        Some(account) => (account.clone(), format!("ephor-demo-{began}")),
        None => (folder.join("results").display().to_string(), "results".to_owned()),
    }
}

async fn connect(hub: &str, options: &DemoOptions) -> Result<EventHub, BoxError> {
    let builder = permitting(EventHub::builder(hub).client_name("ephor-demo"), options.allow_insecure);
    Ok(trusting(builder, options.trust.as_deref()).await?.build()?)
}

/// A hub that is not ours may lack them: better said here than by every host.
async fn groups_exist(source: &EventHub) -> Result<(), BoxError> {
    for group in [CONSOLIDATE, ALARMS] {
        let probe = OpenRequest::probe(&group.parse()?, PartitionId(0), "ephor-demo");
        let missing = |error| {
            format!(
                "the hub needs the consumer groups {CONSOLIDATE} and {ALARMS}, but {group} cannot be read: \
                 {error}"
            )
        };
        source.open(probe).await.map_err(missing)?.close().await;
    }
    Ok(())
}

/// Waits until every partition of both groups has an owner. One that begins with what is yet to come must also have written
/// down where that is: what is sent before would be none of its business.
async fn owned(state: &DemoState, from_latest: bool) -> Result<(), BoxError> {
    let all = |state: &DemoState| {
        let groups = state.fleet().groups;
        let owned =
            |group: &GroupNow| group.partitions.iter().filter(|partition| partition.owner.is_some()).count();
        groups.len() == 2 && groups.iter().all(|group| owned(group) == PARTITIONS as usize)
    };
    for _ in 0..FIRST_OWNERS.as_millis() / LOOK.as_millis() {
        if all(state) && (!from_latest || state.operator.all_have_begun().await?) {
            return Ok(());
        }
        if let Some(lines) = state.fleet.lock().await.all_dead() {
            return Err(format!("the hosts did not start:\n{lines}").into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(format!(
        "some partitions have no owner after {FIRST_OWNERS:?}; see the logs of the hosts in the demo's folder"
    )
    .into())
}

/// Waits until the results say all that was sent, as long as they get any further.
async fn until_results_are_complete(view: &View) {
    let mut best = (u64::MAX, SystemClock.now());
    loop {
        let audit = view.city().audit;
        let missing = audit.sent.abs_diff(audit.processed) + u64::from(audit.homes_behind);
        let now = SystemClock.now();
        if missing < best.0 {
            best = (missing, now);
        }
        if missing == 0 || now.since(best.1) > LAST_READINGS {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn banner(options: &DemoOptions, folder: &Path, page: SocketAddr) {
    let hub = options.hub.as_ref().map_or("started by the demo, as a separate process", |_| "the given one");
    let results = if options.results.is_some() { "in the storage account" } else { "in the folder results" };
    say(&format!(
        "\n  page     http://{page}/\n  homes    {}, three sensors each, a reading a minute, time \
         x{}\n  hosts    {}, each a separate process\n  hub      {hub}\n  results  {results}\n  folder   {}, \
         with the log of every process\n\nCtrl-C stops everything.",
        options.homes,
        options.speed,
        options.hosts,
        folder.display()
    ));
}

/// Prints a line. If standard output is closed, such as `tee` after a Ctrl-C, the demo still ends gracefully.
fn say(text: &str) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

impl fmt::Debug for DemoOptions {
    /// Connection strings are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DemoOptions({} homes, {} hosts, speed {})", self.homes, self.hosts, self.speed)
    }
}
