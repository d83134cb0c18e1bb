//! Tests of senders whose hub is deleted, or whose disk is full.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ephor_amqp::performative::Outcome;
use ephor_core::event::NewEvent;
use ephor_gateway::GatewayConfig;
use ephor_hub::files::{DiskSpace, File, Files, MemoryFiles};
use ephor_hub::{HubConfig, LocalNamespace, NamespaceConfig};
use ephor_runtime::environment::TokioEnvironment;

use crate::client::{Client, encoded, rejection};
use crate::server::{HUB, PARTITIONS, Server};

#[tokio::test]
async fn a_sender_to_a_hub_that_was_deleted_loses_its_link() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(HUB).await;
    let message = encoded(&NewEvent::new("x"));
    assert_eq!(client.send(sender, 0, &message).await, Outcome::Accepted);
    server.namespace.delete_hub(HUB).unwrap();
    let missing = "The messaging entity 'sb://localhost/homes' could not be found.";
    let (condition, text) = rejection(client.send(sender, 0, &message).await);
    assert_eq!(condition, "amqp:not-found");
    assert!(text.starts_with(missing), "{text}");
    let error = client.detached(sender).await;
    assert_eq!(error.condition, "amqp:not-found");
    assert!(error.description().starts_with(missing), "{error}");
}

#[tokio::test]
async fn a_sender_to_a_hub_that_was_created_again_has_to_reattach() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(HUB).await;
    server.namespace.delete_hub(HUB).unwrap();
    server.namespace.create_hub(HubConfig::new(HUB, PARTITIONS).unwrap()).unwrap();
    let message = encoded(&NewEvent::new("x"));
    assert_eq!(rejection(client.send(sender, 0, &message).await).0, "amqp:link:detach-forced");
    assert_eq!(client.detached(sender).await.condition, "amqp:link:detach-forced");
    let sender = client.sender(HUB).await;
    assert_eq!(client.send(sender, 0, &message).await, Outcome::Accepted);
}

#[tokio::test]
async fn a_full_disk_is_a_busy_server_until_there_is_room() {
    let (full, low) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let files = Arc::new(SmallDisk { files: MemoryFiles::default(), full: full.clone(), low });
    let namespace =
        LocalNamespace::on(files, NamespaceConfig::default(), Arc::new(TokioEnvironment)).unwrap();
    let server = Server::over(namespace, GatewayConfig::default(), Arc::new(TokioEnvironment)).await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(HUB).await;
    let message = encoded(&NewEvent::new("x"));
    assert_eq!(client.send(sender, 0, &message).await, Outcome::Accepted);
    full.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let (condition, text) = rejection(client.send(sender, 0, &message).await);
        assert_eq!(condition, "com.microsoft:server-busy", "{text}");
    }
    full.store(false, Ordering::SeqCst);
    assert_eq!(client.send(sender, 0, &message).await, Outcome::Accepted, "on the same link");
}

#[tokio::test]
async fn a_nearly_full_disk_is_a_busy_server_until_there_is_room() {
    let (full, low) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    let files = Arc::new(SmallDisk { files: MemoryFiles::default(), full, low: low.clone() });
    let namespace =
        LocalNamespace::on(files, NamespaceConfig::default(), Arc::new(TokioEnvironment)).unwrap();
    let server = Server::over(namespace, GatewayConfig::default(), Arc::new(TokioEnvironment)).await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(HUB).await;
    let message = encoded(&NewEvent::new("x"));
    assert_eq!(client.send(sender, 0, &message).await, Outcome::Accepted);
    low.store(true, Ordering::SeqCst);
    // The hub checks its disk now and then.
    let mut outcome = Outcome::Accepted;
    while outcome == Outcome::Accepted {
        outcome = client.send(sender, 0, &message).await;
    }
    assert_eq!(rejection(outcome).0, "com.microsoft:server-busy");
    low.store(false, Ordering::SeqCst);
    assert_eq!(client.send(sender, 0, &message).await, Outcome::Accepted, "on the same link");
}

/// Files in memory, on a disk that can be full, or nearly.
#[derive(Debug)]
struct SmallDisk {
    files: MemoryFiles,
    full: Arc<AtomicBool>,
    low: Arc<AtomicBool>,
}

#[derive(Debug)]
struct SmallFile {
    file: Arc<dyn File>,
    full: Arc<AtomicBool>,
}

fn room(full: &AtomicBool) -> io::Result<()> {
    match full.load(Ordering::SeqCst) {
        true => Err(io::ErrorKind::StorageFull.into()),
        false => Ok(()),
    }
}

impl SmallDisk {
    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(SmallFile { file, full: self.full.clone() })
    }
}

impl Files for SmallDisk {
    fn space(&self) -> io::Result<Option<DiskSpace>> {
        let free = if self.low.load(Ordering::SeqCst) { 0 } else { 1 << 40 };
        Ok(Some(DiskSpace { free, total: 1 << 40 }))
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        room(&self.full)?;
        Ok(self.wrap(self.files.create(path)?))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(self.files.open(path)?))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.files.list(folder)
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        self.files.create_folder(folder)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.files.sync_folder(folder)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.files.remove(path)
    }

    fn remove_folder(&self, folder: &str) -> io::Result<()> {
        self.files.remove_folder(folder)
    }

    fn shown(&self, path: &str) -> String {
        self.files.shown(path)
    }

    fn may_block(&self) -> bool {
        self.files.may_block()
    }
}

impl File for SmallFile {
    fn write_at(&self, position: u64, parts: &[&[u8]]) -> io::Result<()> {
        room(&self.full)?;
        self.file.write_at(position, parts)
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(position, into)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn reserve(&self, length: u64) -> io::Result<()> {
        room(&self.full)?;
        self.file.reserve(length)
    }

    fn sync(&self) -> io::Result<()> {
        room(&self.full)?;
        self.file.sync()
    }
}
