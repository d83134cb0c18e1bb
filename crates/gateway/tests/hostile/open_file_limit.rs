//! Tests that the hub can still create segment files when clients open more connections than the process
//! may have open files.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use ephor_amqp::frame::Protocol;
use ephor_core::event::NewEvent;
use ephor_gateway::GatewayConfig;
use ephor_hub::{LocalNamespace, NamespaceConfig};
use ephor_runtime::environment::TokioEnvironment;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::process_resources::{alone, open_files, run, second};
use crate::raw_peer;
use crate::server::Server;

const ADDRESS: &str = "EPHOR_TEST_CROWD";
const CONNECTIONS: usize = 700;
/// Files that the gateway's process may have open.
const FILES: u64 = 512;

/// The second process. Does nothing in the first.
#[test]
fn the_crowd_itself() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let address: SocketAddr = address.parse().unwrap();
    let said =
        [&Protocol::Amqp.header()[..], &raw_peer::open(), &raw_peer::begin(raw_peer::CHANNEL)].concat();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(address).unwrap();
        // It may have been closed already.
        let _ = stream.write(&said);
        connections.push(stream);
    }
    writeln!(std::io::stdout(), "\nconnected {}", connections.len()).unwrap();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Lowers the limit of open files of this process, until it is dropped.
struct FewFiles(rustix::process::Rlimit);

impl FewFiles {
    fn new() -> Self {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(FILES), ..before }).unwrap();
        Self(before)
    }
}

impl Drop for FewFiles {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.0).unwrap();
    }
}

#[test]
fn many_connections_leave_the_hub_the_files_that_it_needs() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let _few = FewFiles::new();
    run(async {
        let namespace = LocalNamespace::open(folder.path(), NamespaceConfig::default()).unwrap();
        // Without keys, so that every connection is admitted.
        let config = GatewayConfig { keys: Vec::new(), ..GatewayConfig::default() };
        let server = Server::over(namespace, config, Arc::new(TokioEnvironment)).await;
        let mut crowd = second("open_file_limit::the_crowd_itself", ADDRESS, &server.address.to_string());
        let mut output = BufReader::new(crowd.stdout.take().unwrap());
        let made = tokio::task::block_in_place(|| {
            let connected = |line: String| line.strip_prefix("connected ").map(str::to_owned);
            output.by_ref().lines().map_while(Result::ok).find_map(connected)
        });
        assert_eq!(made, Some(CONNECTIONS.to_string()));
        let hub = server.hub();
        for _ in 0..10 {
            hub.seal_segment().unwrap();
            hub.producer().send(NewEvent::new("x")).await.unwrap();
        }
        let open = open_files();
        eprintln!("{open} of {FILES} files are open");
        assert!(open as u64 <= FILES * 3 / 4, "{open} files are open");
        drop(crowd.stdin.take());
        assert!(crowd.wait().unwrap().success());
    });
}
