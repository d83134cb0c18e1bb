//! The same program over TLS with a key, and with results in a storage account: it needs only two connection strings.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::common::{Dev, ephor};
use crate::processes::{arguments, children_of};
use crate::running::{Demo, Outcome};

const HUB_KEY: &str = "canary+of+the+hub/0123456789abcdef=";
/// The key of the account that every Azurite has. It is public.
const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The emulator of Azure Blob Storage, on a port of its own.
struct Azurite {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Azurite {
    fn start() -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../target/azurite/node_modules/azurite/dist/src/blob/main.js");
        assert!(program.is_file(), "Azurite is missing; run demo/homes/azurite/install");
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("node")
            .arg(program)
            .args(["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--blobHost", "127.0.0.1"])
            .args(["--blobPort", &port.to_string(), "--location"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("node starts");
        let azurite = Self { child, port, _folder: folder };
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return azurite;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("Azurite does not answer within a minute");
    }

    fn connection(&self) -> String {
        let endpoint = format!("http://127.0.0.1:{}/devstoreaccount1", self.port);
        format!(
            "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={ACCOUNT_KEY};BlobEndpoint={endpoint};"
        )
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn assert_hidden(text: &str, what: &str) {
    for key in [HUB_KEY, ACCOUNT_KEY] {
        assert!(!text.contains(key.trim_end_matches('=')), "a key is in {what}:\n{text}");
        let quoted = key.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        assert!(!text.contains(&quoted), "a key is in {what}:\n{text}");
    }
}

/// What it says, and the logs of all its processes.
fn assert_said_nothing(outcome: &Outcome, folder: &Path) {
    assert_hidden(&outcome.said, "what it says");
    assert_hidden(&outcome.told, "what it tells");
    let mut logs = 0;
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".log") {
            assert_hidden(&fs::read_to_string(entry.path()).unwrap(), &name);
            logs += 1;
        }
    }
    assert!(logs >= 2, "the log of every host");
}

#[test]
fn over_tls_with_a_key_and_a_storage_account_it_is_as_exact() {
    let place = tempfile::tempdir().unwrap();
    let here = place.path();
    fs::write(here.join("own.key"), HUB_KEY).unwrap();
    let dev = Dev::start_with(
        &mut ephor(here),
        &[
            &["--amqps", "127.0.0.1:0", "--key-file", "own.key", "--hub", "homes:16"][..],
            &["--group", "homes/consolidate", "--group", "homes/alarms"],
        ]
        .concat(),
    );
    let trust = here.join(dev.value("trust").split(',').next().unwrap());
    let port = dev.value("amqps ").rsplit_once(':').unwrap().1;
    let hub = format!(
        "Endpoint=sb://localhost:{port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={HUB_KEY};\
         EntityPath=homes"
    );
    let azurite = Azurite::start();
    let results = azurite.connection();

    // Twice on the same hub and the same account: what the first left there is none of the second's business.
    for _ in 0..2 {
        let mut demo = Demo::start(
            here,
            &[
                &["--homes", "5000", "--speed", "4", "--hosts", "2", "--trust", trust.to_str().unwrap()][..],
                &["--hub", &hub, "--results", &results],
            ]
            .concat(),
        );
        demo.wait_until_it_flows();
        let children = children_of(demo.process());
        assert_eq!(children.len(), 2, "two hosts, and no hub");
        for child in children {
            assert_hidden(&arguments(child).unwrap(), "the arguments of a host");
        }
        demo.do_to("host-1", "kill_host").unwrap();
        demo.wait_for("the other to take over", |demo| (demo.shares(0) == [16]).then_some(()));
        let why = demo.act(&serde_json::json!({"action": "restart_hub"})).unwrap_err();
        assert!(why.contains("not ours"), "{why}");
        let folder = demo.folder();
        let outcome = demo.interrupt();
        outcome.must_be_exact();
        assert_said_nothing(&outcome, &folder);
        assert!(!folder.join("results").exists(), "the results are in the account");
    }
    assert_hidden(&dev.stop_and_read_log(), "the hub's log");
}
