//! Interoperability tests over TLS, with the certificate that the server generated.
//!
//! This client trusts what the system trusts, and that is one file here, named by `SSL_CERT_FILE`.

use azure_messaging_eventhubs::EventDataBatchOptions;
use tokio::process::Command;

use crate::client::{Failure, Way, equal, send_all, to};
use crate::reader::{Reading, bytes, texts};
use crate::values::megabyte_of_bytes;
use crate::{Operation, operation};

const HUB: &str = "rust-sdk-tls";
/// The argument that makes this program try to connect as one that trusts nobody.
pub const WITHOUT_TRUST: &str = "without-trust";

fn way(host: &str) -> Result<Way, Failure> {
    let address = std::env::var("EPHOR_TLS")?;
    let port = address.rsplit(':').next().unwrap_or_default();
    Ok(Way { endpoint: format!("amqps://{host}:{port}"), ..Way::given()? })
}

async fn last() -> Result<i64, Failure> {
    let client = way("localhost")?.producer(HUB).await?;
    let found = client.get_partition_properties("0").await?.last_enqueued_sequence_number;
    client.close().await?;
    Ok(found)
}

async fn describe() -> Result<(), Failure> {
    for host in ["localhost", "127.0.0.1"] {
        let client = way(host)?.producer(HUB).await?;
        equal(client.get_eventhub_properties().await?.partition_ids, vec!["0".to_owned()], "partitions")?;
        equal(client.get_partition_properties("0").await?.id, "0".to_owned(), "partition")?;
        client.close().await?;
    }
    Ok(())
}

async fn send_and_receive() -> Result<(), Failure> {
    let before = last().await?;
    let hundred: Vec<String> = (0..100).map(|number| format!("event {number}")).collect();
    let client = way("localhost")?.producer(HUB).await?;
    let options = EventDataBatchOptions { partition_id: Some("0".to_owned()), ..Default::default() };
    send_all(&client, hundred.clone(), options).await?;
    client.close().await?;
    let events = Reading::of(HUB).after(before).by(way("localhost")?).read(100).await?;
    equal(texts(&events), hundred, "received")
}

async fn megabyte() -> Result<(), Failure> {
    let (before, body) = (last().await?, megabyte_of_bytes());
    let client = way("127.0.0.1")?.producer(HUB).await?;
    client.send_event(body.clone(), to("0")).await?;
    client.close().await?;
    let events = Reading::of(HUB).after(before).by(way("localhost")?).read(1).await?;
    equal(bytes(&events[0]) == body, true, "same bytes")
}

async fn untrusted() -> Result<(), Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.arg(WITHOUT_TRUST).env_remove("SSL_CERT_FILE").output().await?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.contains("certificate") {
        true => Ok(()),
        false => Err(format!("no error about the certificate: {text}").into()),
    }
}

/// Prints what it leads to.
pub async fn connect_without_trust() {
    let outcome = async { way("localhost")?.producer(HUB).await };
    match outcome.await {
        Ok(_) => println!("connected"),
        Err(error) => println!("{error}"),
    }
}

pub fn operations() -> Vec<Operation> {
    vec![
        operation("over TLS: describe the hub", describe()),
        operation("over TLS: send a batch and receive it", send_and_receive()),
        operation("over TLS: an event of 1 MB both ways", megabyte()),
        operation("over TLS: a certificate that is not trusted", untrusted()),
    ]
}
