//! Tests a log with messages that a gateway would refuse today: readers get every event, and can decode all
//! of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ephor_amqp::validate::validate;
use ephor_gateway::{Gateway, GatewayConfig};
use ephor_hub::{LocalNamespace, NamespaceConfig};
use ephor_wire::annotations::{Delivered, received};
use ephor_wire::selector::Start;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::unvalidated_messages::{HUB, Kept, messages};

pub(crate) fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy(&path, &to);
        } else {
            std::fs::copy(&path, &to).unwrap();
        }
    }
}

#[tokio::test]
async fn readers_of_an_old_log_get_every_event_and_can_decode_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../hub/tests/golden/v1-unvalidated");
    copy(&golden, folder.path());
    let namespace = LocalNamespace::open(folder.path(), NamespaceConfig::default()).unwrap();
    let gateway = Gateway::new(Arc::new(namespace), GatewayConfig::default()).unwrap();
    let listener = ephor_gateway::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (_stop, stopped) = oneshot::channel::<()>();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let stopped = async { drop(stopped.await) };
        gateway.serve(listener, stopped).await.unwrap();
    });
    let stream = TcpStream::connect(address).await.unwrap();
    let mut client = Client::over(stream, ephor_amqp::connection::ClientSasl::Anonymous).await.unwrap();
    assert_eq!(client.put_development_token().await.0, 202);
    assert_eq!(HUB, crate::server::HUB);
    let receiver = client.receiver(0, Start::Earliest).await;
    client.connection().grant(receiver, 100);
    for (number, sent) in messages().into_iter().enumerate() {
        let what = sent.what;
        let (_, payload) = client.delivery().await;
        let found = validate(&payload).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(Delivered::read(&payload).unwrap().sequence.0, number as u64);
        let (event, _) = received(&payload).unwrap();
        let body = if sent.kept == Kept::BodyAsBytes { sent.message } else { sent.body };
        assert_eq!(event.body, body, "{what}");
        let whole = sent.kept == Kept::Everything && number == 0;
        assert_eq!((found.header.is_some(), found.footer.is_some()), (whole, whole), "{what}");
    }
}
