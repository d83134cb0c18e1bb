//! `ephor demo`: runs the home-security demo, controls a running one from another terminal, and runs the
//! process of one of its hosts. The demo itself is the crate `ephor-homes`.

pub(crate) mod arguments;
mod remote;
mod status;

use std::io::Write;
use std::time::Duration;

use ephor::environment::SystemClock;
use ephor_core::BoxError;
use ephor_core::time::Clock;
use ephor_homes::host::HostOptions;
use ephor_homes::run::DemoOptions;
use serde_json::{Value, json};
use tokio::sync::Notify;

use self::arguments::{At, Demo, DemoCommand, DemoHost, HostAction, Run};
use crate::dev::interrupted;
use crate::open_client::in_file;
use crate::table::say;

pub(crate) async fn run(options: Demo) -> Result<(), BoxError> {
    match options.command {
        None => start(options.run).await,
        Some(DemoCommand::Host(action)) => host(action).await,
        Some(DemoCommand::Detectors { state, at }) => {
            act(&at, &json!({"action": "carbon_monoxide", "on": state == "on"})).await
        }
        Some(DemoCommand::RestartHub(at)) => act(&at, &json!({"action": "restart_hub"})).await,
        Some(DemoCommand::Status(at)) => status::city(&at).await,
        Some(DemoCommand::Home { home, at }) => status::home(&at, home).await,
    }
}

async fn start(options: Run) -> Result<(), BoxError> {
    let seconds = options.seconds.map(Duration::from_secs);
    let hub = options.hub_file.as_deref().map(|file| in_file("--hub-file", file)).transpose()?;
    let results = options.results_file.as_deref().map(|file| in_file("--results-file", file)).transpose()?;
    let demo = DemoOptions {
        program: std::env::current_exe()?,
        homes: options.homes,
        hosts: options.hosts,
        speed: options.speed,
        seed: options.seed,
        folder: options.data,
        page: options.page,
        hub: hub.or(options.hub),
        trust: options.trust,
        allow_insecure: options.allow_insecure,
        results: results.or(options.results),
        began: SystemClock.wall(),
    };
    let stopping = Notify::new();
    let stopped = async {
        tokio::select! {
            biased;
            () = interrupted() => {}
            () = after(seconds) => {}
        }
        stopping.notify_one();
    };
    // The first Ctrl-C stops the demo gracefully. A second one, while it stops, ends it immediately.
    let hurried = async {
        stopping.notified().await;
        interrupted().await;
    };
    let summary = tokio::select! {
        biased;
        summary = ephor_homes::run::run(demo, stopped) => summary?,
        () = hurried => return Err("stopped immediately, without waiting until all readings were processed".into()),
    };
    // The reader of stdout may have ended by the same Ctrl-C.
    drop(writeln!(std::io::stdout(), "{summary}"));
    if summary.is_right() {
        Ok(())
    } else {
        Err("the results differ from the readings that were sent".into())
    }
}

#[expect(clippy::disallowed_methods, reason = "the outermost shell: people count real seconds")]
async fn after(seconds: Option<Duration>) {
    match seconds {
        Some(seconds) => tokio::time::sleep(seconds).await,
        None => std::future::pending().await,
    }
}

async fn host(action: HostAction) -> Result<(), BoxError> {
    let (at, action) = match action {
        HostAction::Add(at) => (at, json!({"action": "add_host"})),
        HostAction::Stop(named) => (named.at, json!({"action": "stop_host", "host": named.host})),
        HostAction::Kill(named) => (named.at, json!({"action": "kill_host", "host": named.host})),
        HostAction::Pause(named) => (named.at, json!({"action": "pause_host", "host": named.host})),
        HostAction::Resume(named) => (named.at, json!({"action": "resume_host", "host": named.host})),
        HostAction::Slow { which, by } => {
            (which.at, json!({"action": "slow_host", "host": which.host, "milliseconds": by}))
        }
    };
    act(&at, &action).await
}

async fn act(at: &At, action: &Value) -> Result<(), BoxError> {
    let answer = remote::post(at.page, "/api/act", action).await?;
    let text = answer.get("done").and_then(Value::as_str).or(answer.as_str()).unwrap_or("done");
    say(&format!("{text}\n"))
}

/// Runs the process of one demo host.
pub(crate) async fn run_host(options: DemoHost) -> Result<(), BoxError> {
    ephor_runtime::os::end_with_parent()?;
    let options = HostOptions {
        name: options.name,
        hub: options.hub,
        extra_root: options.trust,
        allow_insecure: options.allow_insecure,
        store: options.store,
        results: options.results,
        container: options.container,
        from_latest: options.from_latest,
        flush_every: ephor_homes::host::FLUSH_EVERY,
    };
    ephor_homes::host::run(options).await
}
