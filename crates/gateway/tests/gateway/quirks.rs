//! Test of the workarounds for individual SDKs: only the products in `QUIRKS` wait for acknowledgements and
//! for the answer to a `detach`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ephor_amqp::connection::Event;
use ephor_amqp::performative::Outcome;
use ephor_core::BoxFuture;
use ephor_core::time::{Clock, Monotonic, Timestamp};
use ephor_gateway::{GatewayConfig, QUIRKS};
use ephor_runtime::environment::{Environment, TaskHandle, TokioEnvironment};

use crate::client::Client;
use crate::server::{HUB, Server};

/// Nothing else sleeps for such a short time.
const SHORT: Duration = Duration::from_millis(100);

/// Counts the short sleeps.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl Clock for Counting {
    fn now(&self) -> Monotonic {
        TokioEnvironment.now()
    }

    fn wall(&self) -> Timestamp {
        TokioEnvironment.wall()
    }
}

impl Environment for Counting {
    fn sleep_until(&self, at: Monotonic) -> BoxFuture<'static, ()> {
        if at < self.now() + SHORT {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        TokioEnvironment.sleep_until(at)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> TaskHandle {
        TokioEnvironment.spawn(task)
    }

    fn random(&self) -> u64 {
        TokioEnvironment.random()
    }
}

/// Counts the pauses before a message is acknowledged and before a detach is answered.
async fn pauses(product: &str) -> (usize, usize) {
    let environment = Arc::new(Counting::default());
    let server = Server::on(GatewayConfig::default(), environment.clone()).await;
    let mut client = Client::of_product(&server, product).await;
    let link = client.sender(HUB).await;
    let before = environment.0.load(Ordering::SeqCst);
    assert_eq!(client.send(link, 0, b"\x00\x53\x75\xa0\x01x").await, Outcome::Accepted);
    let acknowledged = environment.0.load(Ordering::SeqCst);
    client.connection().detach(link, None);
    client.wait(|event| matches!(event, Event::Detached { .. }).then_some(())).await;
    let detached = environment.0.load(Ordering::SeqCst);
    drop(client);
    server.stopped().await;
    (acknowledged - before, detached - acknowledged)
}

#[tokio::test]
async fn only_a_product_that_cannot_take_answers_at_once_waits_for_them() {
    for quirk in QUIRKS {
        assert_eq!(pauses(quirk.product).await, (1, 1), "{}", quirk.product);
    }
    for product in ["azsdk-python-eventhubs", "MSJSClient", ""] {
        assert_eq!(pauses(product).await, (0, 0), "{product}");
    }
}
