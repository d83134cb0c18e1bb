//! Tests of the commands on a store: `group`, `host`, `checkpoint` and `lease`, with a hub and a store.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ephor::{CheckpointPolicy, EventProcessorHost, EventProcessorOptions, PartitionManagerOptions};
use ephor_eventhubs::EventHub;
use ephor_stores::sqlite::SqliteStore;
use ephor_testkit::azurite_server::{self, Azurite};
use serde_json::Value;

use crate::common::{Dev, ephor};

const HUB: &str = "homes";
const SECOND: Duration = Duration::from_secs(1);

/// A hub with events, a store, and one host that has read all of them.
struct Scene {
    folder: tempfile::TempDir,
    dev: Dev,
    host: Option<EventProcessorHost>,
    seen: Arc<AtomicU64>,
}

impl Scene {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dev = Dev::start(folder.path(), &["--memory", "--hub", "homes:4"]);
        let mut scene = Self { folder, dev, host: None, seen: Arc::default() };
        let client = EventHub::builder(&scene.dev.connection()).hub(HUB).build().unwrap();
        for partition in 0..4 {
            let events = (0..10).map(|n| ephor_eventhubs::NewEvent::new(format!("{n}")));
            let to = ephor_eventhubs::Target::Partition(ephor::PartitionId(partition));
            client.producer().send_batch(to, events).await.unwrap();
        }
        scene.start("vm-1").await;
        scene.until_seen(40).await;
        scene
    }

    async fn start(&mut self, name: &str) {
        let source = EventHub::builder(&self.dev.connection()).hub(HUB).build().unwrap();
        let store = SqliteStore::open(self.store()).unwrap();
        let seen = self.seen.clone();
        let checkpoint = CheckpointPolicy::every_events(1).spaced(Duration::ZERO);
        let host = EventProcessorHost::builder(source, store)
            .host_name(name)
            .options(EventProcessorOptions { checkpoint, ..Default::default() })
            .manager_options(PartitionManagerOptions {
                slow_scan: SECOND / 2,
                fast_scan: SECOND / 5,
                ..Default::default()
            })
            .for_each_event(move |_, _| {
                seen.fetch_add(1, Ordering::Relaxed);
                async { Ok(()) }
            })
            .unwrap();
        host.start().await.unwrap();
        self.host = Some(host);
    }

    fn store(&self) -> std::path::PathBuf {
        self.folder.path().join("ephor.db")
    }

    async fn until_seen(&self, events: u64) {
        let what = || self.seen.load(Ordering::Relaxed);
        until(&format!("{events} events"), || what() >= events).await;
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let store = format!("sqlite:{}", self.store().display());
        let mut command = ephor(self.folder.path());
        command.args(arguments).env("EPHOR_STORE", store).env("EPHOR_CONNECTION", self.dev.connection());
        command
    }

    /// Runs a tool.
    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["-o", "json"]).collect();
        serde_json::from_str(&self.text(&arguments)).unwrap()
    }

    fn error(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    /// The checkpoint numbers of all partitions.
    fn checkpoints(&self) -> Vec<Option<u64>> {
        let list = self.json(&["checkpoint", "list", "homes/$Default"]);
        list.as_array().unwrap().iter().map(|row| row["checkpoint"].as_u64()).collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "the tools are other processes, in real time")]
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..600 {
        if done() {
            return;
        }
        tokio::time::sleep(SECOND / 20).await;
    }
    panic!("not within half a minute: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_described_with_its_owners_checkpoints_and_lag() {
    let scene = Scene::new().await;
    until("all is saved", || scene.checkpoints() == [Some(9); 4]).await;
    let text = scene.text(&["group", "describe", "homes/$Default"]);
    assert!(text.contains("1 host   4/4 partitions owned   lag 0 events"), "{text}");
    assert!(text.contains("PART  OWNER"), "{text}");
    assert_eq!(text.matches("vm-1").count(), 4, "{text}");
    let group = scene.json(&["group", "describe", "homes/$Default"]);
    let row = &group["partitions"][3];
    assert_eq!((&row["part"], &row["checkpoint"], &row["latest"]), (&3.into(), &9.into(), &9.into()));
    assert!(row["owner"].as_str().unwrap().starts_with("vm-1#"), "{row}");
    assert!(row["epoch"].as_u64() >= Some(1) && row["since"].as_f64().is_some(), "{row}");
    assert_eq!(group["lag_events"], 0);
    let groups = scene.json(&["group", "list"]);
    assert_eq!((&groups[0]["hub"], &groups[0]["owned"]), (&HUB.into(), &4.into()));
    let history = scene.json(&["lease", "history", "homes/$Default", "--partition", "2"]);
    assert_eq!((&history[0]["part"], &history[0]["why"]), (&2.into(), &"nobody owned it".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_hub_a_group_is_described_as_far_as_the_store_knows() {
    let scene = Scene::new().await;
    let nobody = "Endpoint=sb://127.0.0.1:1;UseDevelopmentEmulator=true";
    let output = scene.run(&["group", "describe", "homes/$Default", "--connection", nobody]);
    assert!(output.status.success());
    let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(text.contains("lag unknown") && text.matches("vm-1").count() == 4, "{text}");
    assert!(said.contains("the hub cannot be read"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seek_shows_what_it_would_do_and_then_does_it() {
    let scene = Scene::new().await;
    until("all is saved", || scene.checkpoints() == [Some(9); 4]).await;
    let seek = ["checkpoint", "seek", "homes/$Default", "--partition", "1", "--to", "by:-5"];
    let plan = scene.json(&[&seek[..], &["--partition", "1"]].concat());
    assert_eq!(plan.as_array().unwrap().len(), 1, "a partition that is named twice is moved once");
    assert_eq!((&plan[0]["part"], &plan[0]["change"]), (&1.into(), &(-5).into()));
    assert_eq!(plan[0]["outcome"], Value::Null);
    assert_eq!(scene.checkpoints()[1], Some(9), "nothing was changed");
    for (to, warning) in [("offset:zzz", "was not checked"), ("time:2999-01-01", "is in the future")] {
        let output = scene.run(&["checkpoint", "seek", "homes/$Default", "--to", to]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && said.contains(warning), "{said}");
    }
    let done = scene.text(&[&seek[..], &["--yes"]].concat());
    assert!(done.contains("5 events read again") && done.contains("done in epoch"), "{done}");
    scene.until_seen(45).await;
    until("all is saved again", || scene.checkpoints() == [Some(9); 4]).await;
    let history = scene.text(&["lease", "history", "homes/$Default", "--partition", "1"]);
    assert!(history.contains("sought by"), "{history}");
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_are_carried_from_one_store_to_another() {
    let mut scene = Scene::new().await;
    until("all is saved", || scene.checkpoints() == [Some(9); 4]).await;
    scene.host.take().unwrap().stop(SECOND * 5).await.unwrap();
    let export = scene.folder.path().join("export.json");
    std::fs::write(&export, scene.text(&["checkpoint", "export", "homes/$Default"])).unwrap();
    // Another store, with the same group and no checkpoint of its own.
    scene.text(&["checkpoint", "seek", "homes/$Default", "--to", "earliest", "--yes"]);
    let import = ["checkpoint", "import", "homes/$Default", export.to_str().unwrap()];
    let plan = scene.text(&import);
    assert!(plan.contains("starts") && plan.contains('9'), "{plan}");
    scene.text(&[&import[..], &["--yes"]].concat());
    assert_eq!(scene.checkpoints(), [Some(9); 4]);
    scene.start("vm-2").await;
    until("all is owned", || {
        scene.text(&["group", "describe", "homes/$Default"]).matches("vm-2").count() == 4
    })
    .await;
    assert_eq!(scene.seen.load(Ordering::Relaxed), 40, "nothing was read again");
    std::fs::write(&export, "{}").unwrap();
    let text = scene.error(&import);
    assert!(text.contains("not an export of checkpoints"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_host_hands_everything_over() {
    let scene = Scene::new().await;
    let hosts = scene.json(&["host", "list", "homes/$Default"]);
    assert_eq!((&hosts[0]["host"], &hosts[0]["state"]), (&"vm-1".into(), &"active".into()));
    let said = scene.text(&["host", "drain", "homes/$Default", "vm-1"]);
    assert!(said.contains("is asked to hand over"), "{said}");
    until("it drains", || scene.json(&["host", "list", "homes/$Default"])[0]["state"] == "draining").await;
    let told = scene.json(&["host", "drain", "homes/$Default", "vm-1", "--undo"]);
    assert_eq!((&told[0]["host"], &told[0]["drain"]), (&"vm-1".into(), &false.into()));
    assert_eq!(told[0]["silent_for"], Value::Null);
    until("it takes part", || scene.json(&["host", "list", "homes/$Default"])[0]["state"] == "active").await;
    let text = scene.error(&["host", "drain", "homes/$Default", "vm-7"]);
    assert!(text.contains("no host \"vm-7\"") && text.contains("vm-1"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_named() {
    let scene = Scene::new().await;
    let text = scene.error(&["group", "describe", "homes/alarms"]);
    assert!(text.contains("no records of homes/alarms; it has homes/$Default"), "{text}");
    let text = scene.error(&["group", "describe", "homes"]);
    assert!(text.contains("write HUB/GROUP"), "{text}");
    let text = scene.error(&["group", "list", "--store", "sqlite:nowhere.db"]);
    assert!(text.contains("there is no store at sqlite:nowhere.db"), "{text}");
    assert!(!Path::new(scene.folder.path()).join("nowhere.db").exists(), "none is made by looking");
    let text = scene.error(&["group", "list", "--store", "mysql://x"]);
    assert!(text.contains("sqlite:PATH"), "{text}");
    let text = scene.error(&["checkpoint", "seek", "homes/$Default", "--to", "soon"]);
    assert!(text.contains("earliest, latest, seq:N"), "{text}");
    let text = scene.error(&["checkpoint", "seek", "homes/$Default", "--to", "seq:99"]);
    assert!(text.contains("has no event 99: it keeps 0 to 9, and 10 is the next to come"), "{text}");
    let text = scene.error(&["lease", "history", "homes/$Default", "--partition", "99"]);
    assert!(text.contains("has no partition 99; it has 0 to 3"), "{text}");
    let text = scene.error(&["group", "list", "--store", "canary-pw:foo"]);
    assert!(text.contains("sqlite:PATH") && !text.contains("canary"), "{text}");
    let text = scene.error(&["checkpoint", "seek", "homes/$Default", "--to", "latest", "--partition", "9"]);
    assert!(text.contains("no partition 9"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_nobody_reads_ends_quietly_and_one_that_cannot_write_says_so() {
    let scene = Scene::new().await;
    let tools: [&[&str]; 6] = [
        &["group", "list"],
        &["group", "describe", "homes/$Default"],
        &["host", "list", "homes/$Default"],
        &["host", "drain", "homes/$Default", "vm-1", "--undo"],
        &["checkpoint", "export", "homes/$Default"],
        &["lease", "history", "homes/$Default", "-o", "json"],
    ];
    for tool in tools {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = scene.command(tool).stdout(writer).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && said.is_empty(), "{tool:?}: {said}");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = scene.command(tool).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{tool:?}: {said}");
        assert!(
            said.contains("cannot write to standard output") && !said.contains("panicked"),
            "{tool:?}: {said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_begins_a_group_in_a_store_that_does_not_know_it() {
    let mut scene = Scene::new().await;
    until("all is saved", || scene.checkpoints() == [Some(9); 4]).await;
    scene.host.take().unwrap().stop(SECOND * 5).await.unwrap();
    let export = scene.folder.path().join("export.json");
    let text = scene.text(&["checkpoint", "export", "homes/$Default"]);
    std::fs::write(&export, &text).unwrap();
    let file = export.to_str().unwrap();
    for each in std::fs::read_dir(scene.folder.path()).unwrap().flatten() {
        if each.file_name().to_str().unwrap().starts_with("ephor.db") {
            std::fs::remove_file(each.path()).unwrap();
        }
    }
    // A dry run creates no store, an import does, and the host continues from the old store's positions.
    let output = scene.run(&["checkpoint", "import", "homes/$Default", file]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("there is no store at"), "{said}");
    assert!(!scene.store().exists());
    scene.text(&["checkpoint", "import", "homes/$Default", file, "--yes"]);
    assert_eq!(scene.checkpoints(), [Some(9); 4]);
    scene.start("vm-2").await;
    until("all is owned", || {
        scene.text(&["group", "describe", "homes/$Default"]).matches("vm-2").count() == 4
    })
    .await;
    assert_eq!(scene.seen.load(Ordering::Relaxed), 40, "nothing was read again");
    // An export of another hub is refused before anything is changed.
    std::fs::write(&export, text.replace("\"hub\": \"homes\"", "\"hub\": \"cars\"")).unwrap();
    let said = scene.error(&["checkpoint", "import", "homes/$Default", file, "--yes"]);
    assert!(said.contains("positions of the hub cars"), "{said}");
    std::fs::write(&export, text.replace("\"partition\": 3", "\"partition\": 33")).unwrap();
    let said = scene.error(&["checkpoint", "import", "homes/$Default", file, "--yes"]);
    assert!(said.contains("has no partition 33; it has 4"), "{said}");
    assert_eq!(scene.checkpoints(), [Some(9); 4]);
    let said = scene.error(&["checkpoint", "list", "homes/$Default", "--namespace", "elsewhere"]);
    assert!(said.contains("no records of homes/$Default in elsewhere; it has homes/$Default in "), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_account_is_a_store_like_the_others() {
    let azurite = Azurite::start();
    let place = format!("{}Container=leases", azurite.connection_string());
    let mut scene = Scene::new().await;
    until("all is saved", || scene.checkpoints() == [Some(9); 4]).await;
    scene.host.take().unwrap().stop(SECOND * 5).await.unwrap();
    let export = scene.folder.path().join("export.json");
    std::fs::write(&export, scene.text(&["checkpoint", "export", "homes/$Default"])).unwrap();
    let import = ["checkpoint", "import", "homes/$Default", export.to_str().unwrap(), "--store", &place];
    let output = scene.run(&import);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("there is no store at azblob://devstoreaccount1/leases"), "{said}");
    scene.text(&[&import[..], &["--yes"]].concat());
    let list = scene.json(&["checkpoint", "list", "homes/$Default", "--store", &place]);
    assert_eq!(list.as_array().unwrap().len(), 4);
    assert!(list.as_array().unwrap().iter().all(|row| row["checkpoint"] == 9), "{list}");
    // The export of the imported positions is the same.
    let back = scene.text(&["checkpoint", "export", "homes/$Default", "--store", &place]);
    assert_eq!(back.matches("\"finished\": 9").count() + back.matches("\"finished\":9").count(), 4, "{back}");
    for (wrong, words) in [
        (place.replace(azurite_server::KEY, "Y2FuYXJ5"), "is not of this account"),
        (place.replace("leases", "a--b"), "single hyphens"),
    ] {
        let told = scene.error(&["group", "list", "--store", &wrong]);
        assert!(told.contains(words), "{told}");
        assert!(!told.contains("Y2FuYXJ5") && !told.contains(&azurite_server::KEY[..20]), "{told}");
    }
}
