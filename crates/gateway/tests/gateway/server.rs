//! Test helper: a gateway on a free port of loopback, to a hub in memory, on files of the test or in a
//! golden folder; and a wall clock that the test sets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::time::{Clock, Monotonic, Timestamp};
use ephor_gateway::{Gateway, GatewayConfig};
use ephor_hub::{Hub, HubConfig, LocalNamespace, NamespaceConfig};
use ephor_runtime::environment::{Environment, TaskHandle, TokioEnvironment};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::copies::copy_of_golden;

/// Far longer than any step takes: a test that waits for something that never comes fails, and shows where.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The hub of every test.
pub(crate) const HUB: &str = "homes";
/// Its partitions.
pub(crate) const PARTITIONS: u32 = 4;

pub(crate) struct Server {
    pub(crate) namespace: Arc<LocalNamespace>,
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(GatewayConfig::default()).await
    }

    pub(crate) async fn with(config: GatewayConfig) -> Self {
        Self::on(config, Arc::new(TokioEnvironment)).await
    }

    pub(crate) async fn on(config: GatewayConfig, environment: Arc<dyn Environment>) -> Self {
        let namespace = LocalNamespace::in_memory(NamespaceConfig::default()).unwrap();
        Self::over(namespace, config, environment).await
    }

    /// A gateway to a namespace that has no hub yet.
    pub(crate) async fn over(
        namespace: LocalNamespace,
        config: GatewayConfig,
        environment: Arc<dyn Environment>,
    ) -> Self {
        namespace.create_hub(HubConfig::new(HUB, PARTITIONS).unwrap()).unwrap();
        Self::serve(namespace, config, environment)
    }

    /// A gateway to a copy of a data folder that an earlier version wrote.
    pub(crate) fn over_golden(name: &str) -> (Self, tempfile::TempDir) {
        let folder = copy_of_golden(name);
        let namespace = LocalNamespace::open(folder.path(), NamespaceConfig::default()).unwrap();
        (Self::serve(namespace, GatewayConfig::default(), Arc::new(TokioEnvironment)), folder)
    }

    fn serve(namespace: LocalNamespace, config: GatewayConfig, environment: Arc<dyn Environment>) -> Self {
        let namespace = Arc::new(namespace);
        let gateway = Gateway::with_environment(namespace.clone(), config, environment).unwrap();
        let listener = ephor_gateway::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            gateway.serve(listener, stopped).await.unwrap();
        });
        Self { namespace, address, stop: Some(stop), task }
    }

    pub(crate) fn hub(&self) -> Hub {
        self.namespace.hub(HUB).unwrap()
    }

    /// Asks the gateway to stop.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until it has stopped.
    pub(crate) async fn stopped(mut self) {
        self.stop();
        within(self.task.join_next()).await.unwrap().unwrap();
    }
}

/// Waits at most [`TIMEOUT`].
#[expect(clippy::disallowed_methods, reason = "a test that hangs says nothing")]
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("this should have happened long ago")
}

/// A wall clock that can be set forward and back. Sleepers check it all the time.
#[derive(Debug, Default)]
pub(crate) struct JumpingClock(AtomicI64);

impl JumpingClock {
    pub(crate) fn forward(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as i64, Ordering::SeqCst);
    }

    pub(crate) fn back(&self, by: Duration) {
        self.0.fetch_sub(by.as_millis() as i64, Ordering::SeqCst);
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Monotonic {
        TokioEnvironment.now()
    }

    fn wall(&self) -> Timestamp {
        Timestamp(TokioEnvironment.wall().0 + self.0.load(Ordering::SeqCst))
    }
}

impl Environment for JumpingClock {
    fn sleep_until(&self, at: Monotonic) -> BoxFuture<'static, ()> {
        let soon = self.now() + Duration::from_millis(5);
        TokioEnvironment.sleep_until(at.min(soon))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> TaskHandle {
        TokioEnvironment.spawn(task)
    }

    fn random(&self) -> u64 {
        TokioEnvironment.random()
    }
}
