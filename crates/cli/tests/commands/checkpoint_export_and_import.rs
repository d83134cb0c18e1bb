//! Tests of `ephor checkpoint export` and `import`: problems are reported before any checkpoint is changed,
//! and failures set the exit code.

use std::io::Write;
use std::process::Stdio;

use ephor_testkit::azurite_server::Azurite;

use crate::common::{Dev, ephor};
use crate::raw_blobs::Raw;

/// A folder in which the tools run.
struct WorkFolder {
    folder: tempfile::TempDir,
}

/// The result of a tool.
struct Done {
    code: i32,
    stdout: String,
    stderr: String,
}

impl WorkFolder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn sqlite(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("ephor.db").display())
    }

    fn run(&self, store: &str, arguments: &[&str]) -> Done {
        self.run_with(store, arguments, "")
    }

    fn run_with(&self, store: &str, arguments: &[&str], input: &str) -> Done {
        let mut command = ephor(self.folder.path());
        command.args(arguments).env("EPHOR_STORE", store);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A tool that does not read its input may have ended: that is no error.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        Done {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// A file as `export` writes it, with these partitions.
    fn file(&self, namespace: &str, hub: &str, partitions: &[u32]) -> String {
        let path = self.folder.path().join("positions.json");
        std::fs::write(&path, export(namespace, hub, partitions)).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Done {
    #[track_caller]
    fn fine(self) -> Self {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self
    }

    /// The tool failed, with these words.
    #[track_caller]
    fn failed(self, words: &[&str]) -> Self {
        assert_eq!(self.code, 1, "{}{}", self.stdout, self.stderr);
        for words in words {
            assert!(self.stderr.contains(words), "{words:?} is not in {:?}", self.stderr);
        }
        self
    }
}

fn export(namespace: &str, hub: &str, partitions: &[u32]) -> String {
    let entries: Vec<String> = partitions
        .iter()
        .map(|partition| format!(r#"{{"partition":{partition},"position":{{"finished":3}}}}"#))
        .collect();
    format!(
        r#"{{"ephor":1,"namespace":"{namespace}","hub":"{hub}","group":"$Default","checkpoints":[{}]}}"#,
        entries.join(",")
    )
}

async fn container(azurite: &Azurite, name: &str) -> (String, Raw) {
    let place = format!("{}Container={name}", azurite.connection_string());
    let raw = Raw::new(azurite.port, &place);
    raw.make().await;
    (place, raw)
}

#[tokio::test]
async fn what_another_sdk_owns_is_not_moved_and_that_is_a_failure() {
    let (folder, azurite) = (WorkFolder::new(), Azurite::start());
    let (place, raw) = container(&azurite, "owned").await;
    raw.put("127.0.0.1/homes/$default/ownership/0", &[("ownerid", "aaaa-0")], "").await;
    let file = folder.file("127.0.0.1", "homes", &[0, 1]);
    let words = ["1 of 2", "another SDK"];
    let done = folder.run(&place, &["checkpoint", "import", "homes/$Default", &file, "--yes"]).failed(&words);
    assert!(done.stdout.contains("not done: aaaa-0 would not notice"), "{}", done.stdout);
    assert!(done.stdout.contains("done in epoch"), "{}", done.stdout);
    let dev = Dev::start(folder.folder.path(), &["--memory", "--hub", "homes:2"]);
    let connection = dev.connection();
    let seek = ["checkpoint", "seek", "homes/$Default", "--to", "latest", "--connection", &connection];
    folder.run(&place, &seek).fine();
    let done = folder.run(&place, &[&seek[..], &["--yes"]].concat()).failed(&words);
    assert!(done.stdout.contains("not done: aaaa-0"), "{}", done.stdout);
}

#[test]
fn positions_of_another_namespace_or_of_partitions_that_are_not_there_are_refused() {
    let folder = WorkFolder::new();
    let store = folder.sqlite();
    let dev = Dev::start(folder.folder.path(), &["--memory", "--hub", "homes:4"]);
    let connection = dev.connection();
    let import = |file: &str, more: &[&str]| {
        folder.run(&store, &[&["checkpoint", "import", "homes/$Default", file, "--yes"], more].concat())
    };
    let asked = ["--connection", connection.as_str()];
    let wrong = folder.file("contoso", "homes", &[0]);
    import(&wrong, &asked).failed(&["contoso", "127.0.0.1", "--namespace"]);
    let strange = folder.file("127.0.0.1", "homes", &[0, 99]);
    import(&strange, &asked).failed(&["has no partition 99"]);
    assert!(!folder.folder.path().join("ephor.db").exists(), "nothing was begun");
    // Without a hub nothing can be checked, and that is reported.
    let wrong = folder.file("contoso", "homes", &[0]);
    let done = import(&wrong, &[]).fine();
    assert!(done.stderr.contains("--connection") && done.stderr.contains("contoso"), "{}", done.stderr);
    let describe = ["group", "describe", "homes/$Default", "--connection", &connection];
    let done = folder.run(&store, &describe).fine();
    assert!(done.stdout.contains("lag unknown"), "{}", done.stdout);
    assert!(done.stderr.contains("contoso") && done.stderr.contains("127.0.0.1"), "{}", done.stderr);
    let seek =
        ["checkpoint", "seek", "homes/$Default", "--to", "earliest", "--yes", "--connection", &connection];
    let done = folder.run(&store, &seek).failed(&["contoso", "127.0.0.1"]);
    assert_eq!(done.stdout, "");
    let list = folder.run(&store, &["checkpoint", "list", "homes/$Default", "-o", "json"]).fine();
    assert!(list.stdout.contains("\"checkpoint\": 3"), "{}", list.stdout);
    // The right one succeeds.
    let right = folder.file("127.0.0.1", "homes", &[0, 1]);
    import(&right, &[&asked[..], &["--namespace", "127.0.0.1"]].concat()).fine();
}

#[tokio::test]
async fn an_old_container_is_only_read_and_that_is_said_first() {
    let (folder, azurite) = (WorkFolder::new(), Azurite::start());
    let (plain, raw) = container(&azurite, "eph").await;
    let body = r#"{"partitionId":"0","owner":"h","epoch":4,"sequenceNumber":9,"token":"t","offset":"99"}"#;
    raw.put("$Default/0", &[], body).await;
    let old = |place: &str| format!("{place};Layout=eph;Namespace=127.0.0.1;Hub=homes");
    let place = old(&plain);
    let dev = Dev::start(folder.folder.path(), &["--memory", "--hub", "homes:1"]);
    let connection = dev.connection();
    let file = folder.file("127.0.0.1", "homes", &[0]);
    let seek = ["checkpoint", "seek", "homes/$Default", "--to", "latest", "--connection", &connection];
    let import = ["checkpoint", "import", "homes/$Default", file.as_str()];
    for tool in [&seek[..], &import[..]] {
        for more in [&[][..], &["--yes"]] {
            let done = folder.run(&place, &[tool, more].concat()).failed(&["read-only", "export"]);
            assert_eq!(done.stdout, "", "nothing is promised");
            assert!(!done.stderr.contains("nothing was changed"), "{}", done.stderr);
        }
    }
    // The wrong name and the wrong layout, both ways.
    let missing = old(&plain.replace("Container=eph", "Container=epx"));
    let done = folder.run(&missing, &["group", "list"]).failed(&["the container does not exist", "name"]);
    assert!(!done.stderr.contains("start a host, which creates the store"), "{}", done.stderr);
    folder.run(&plain, &["checkpoint", "export", "homes/$Default"]).failed(&[
        "layout=eph",
        "namespace",
        "hub",
    ]);
    let (new, raw_new) = container(&azurite, "new").await;
    raw_new
        .put("127.0.0.1/homes/$default/checkpoint/0", &[("sequencenumber", "7"), ("offset", "70")], "")
        .await;
    folder
        .run(&old(&new), &["checkpoint", "export", "homes/$Default"])
        .failed(&["without layout=eph", "prefix"]);
    // Damage in a legacy container cannot be repaired there.
    raw.put("$Default/0", &[], "{").await;
    let done = folder
        .run(&place, &["checkpoint", "export", "homes/$Default"])
        .failed(&["--incomplete", "partition 0"]);
    assert!(!done.stderr.contains("checkpoint seek"), "{}", done.stderr);
}

#[test]
fn an_export_is_read_with_a_byte_order_mark_and_from_standard_input() {
    let folder = WorkFolder::new();
    let store = folder.sqlite();
    let text = format!("\u{feff}{}", export("127.0.0.1", "homes", &[0]));
    folder.run_with(&store, &["checkpoint", "import", "homes/$Default", "-", "--yes"], &text).fine();
    let back = folder.run(&store, &["checkpoint", "export", "homes/$Default"]).fine();
    assert!(
        back.stdout.contains("\"finished\": 3") || back.stdout.contains("\"finished\":3"),
        "{}",
        back.stdout
    );
    let import = ["checkpoint", "import", "homes/$Default", "-"];
    folder.run_with(&store, &import, "nothing").failed(&["standard input: this is not an export"]);
    folder
        .run_with(
            &store,
            &["checkpoint", "import", "homes/alarms", "-", "--yes"],
            &export("127.0.0.1", "homes", &[]),
        )
        .failed(&["no positions"]);
}

#[tokio::test]
async fn a_name_in_another_case_is_found_by_those_that_look_and_kept_by_those_that_write() {
    let folder = WorkFolder::new();
    let store = folder.sqlite();
    let file = folder.file("127.0.0.1", "Odd", &[0]);
    folder.run(&store, &["checkpoint", "import", "Odd/$Default", &file, "--yes"]).fine();
    let list = folder.run(&store, &["checkpoint", "list", "odd/$default", "-o", "json"]).fine();
    assert!(
        list.stdout.contains("\"checkpoint\": 3") && list.stderr.contains("Odd/$Default"),
        "{}",
        list.stderr
    );
    // A second group with a name in another case is refused.
    let file = folder.file("127.0.0.1", "odd", &[0]);
    let import = ["checkpoint", "import", "odd/$Default", &file, "--yes"];
    folder.run(&store, &import).failed(&["Odd/$Default", "use exactly this spelling"]);
    folder.run(&store, &["checkpoint", "import", "Odd/$Default", &file, "--yes"]).fine();
    // Blobs of an SDK are in lower case, whatever the hub is called: the name is used as it was given.
    let azurite = Azurite::start();
    let (place, raw) = container(&azurite, "odd").await;
    raw.put("127.0.0.1/odd/$default/checkpoint/0", &[("sequencenumber", "7"), ("offset", "70")], "").await;
    let dev = Dev::start(folder.folder.path(), &["--memory", "--hub", "Odd:1"]);
    let connection = dev.connection();
    let seek =
        ["checkpoint", "seek", "Odd/$Default", "--to", "earliest", "--yes", "--connection", &connection];
    folder.run(&place, &seek).fine();
    let list = folder.run(&place, &["group", "list"]).fine();
    assert!(
        list.stdout.contains("Odd") && list.stdout.contains("$Default") && !list.stdout.contains("odd"),
        "{}",
        list.stdout
    );
}
