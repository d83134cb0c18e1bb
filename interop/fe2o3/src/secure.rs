//! Interoperability tests over TLS, with the certificate that the server generated.

use std::sync::Arc;

use fe2o3_amqp::sasl_profile::SaslProfile;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::client::{Client, Endpoint, Failure, equal};
use crate::events::{Event, batch, bytes, data, event, send, texts};
use crate::reader::{Reader, Reading};
use crate::{Operation, operation};

const HUB: &str = "fe2o3-tls";
const PARTITION: &str = "fe2o3-tls/Partitions/0";

/// The server's own certificate, as it lies in its data folder.
fn certificate() -> Result<CertificateDer<'static>, Failure> {
    Ok(CertificateDer::from_pem_file(std::env::var("EPHOR_CA")?)?)
}

/// TLS from the first byte, trusting these certificates.
async fn secured(
    name: &str,
    trusted: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<TlsStream<TcpStream>, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        roots.add(certificate)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(std::env::var("EPHOR_TLS")?).await?;
    let connector = TlsConnector::from(Arc::new(config));
    Ok(connector.connect(ServerName::try_from(name.to_owned())?, stream).await?)
}

async fn client(name: &str) -> Result<Client, Failure> {
    let stream = secured(name, [certificate()?]).await?;
    let endpoint = Endpoint { host: name.to_owned(), ..Endpoint::given()? };
    let mut client = Client::over(stream, endpoint, Some(SaslProfile::Anonymous)).await?;
    client.log_in(HUB).await?;
    Ok(client)
}

async fn describe() -> Result<(), Failure> {
    for name in ["localhost", "127.0.0.1", "::1"] {
        // The server listens on one address; its certificate is good for each of these names.
        drop(secured(name, [certificate()?]).await?);
    }
    let mut client = client("localhost").await?;
    equal(client.describe_hub(HUB).await?.contains_key("partition_ids"), true, "described")?;
    equal(client.last(HUB, "0").await? >= -1, true, "described")?;
    client.close().await;
    Ok(())
}

async fn send_and_receive() -> Result<(), Failure> {
    let mut client = client("localhost").await?;
    let before = client.last(HUB, "0").await?;
    let hundred: Vec<Event> = (0..100).map(|number| event(&format!("event {number}"))).collect();
    let mut sender = client.sender(PARTITION).await?;
    send(&mut sender, batch(&hundred, None)?).await?;
    sender.close().await?;
    let mut reader = reader(client, before).await?;
    equal(texts(&reader.take(100).await?)?, texts(&hundred)?, "received")?;
    reader.close().await
}

async fn megabyte() -> Result<(), Failure> {
    let mut client = client("127.0.0.1").await?;
    let before = client.last(HUB, "0").await?;
    let body: Vec<u8> = (0..1_048_000_usize).map(|index| (index * 7 % 251) as u8).collect();
    let mut sender = client.sender(PARTITION).await?;
    send(&mut sender, data(body.clone())).await?;
    sender.close().await?;
    let mut reader = reader(client, before).await?;
    equal(bytes(&reader.next().await?)? == body, true, "same bytes")?;
    reader.close().await
}

async fn reader(mut client: Client, before: i64) -> Result<Reader, Failure> {
    let start = format!("x-opt-sequence-number > '{before}'");
    let link = Reading::of(HUB).after(&start).attach(&mut client).await?;
    Ok(Reader::new(client, link))
}

async fn untrusted() -> Result<(), Failure> {
    for (name, trusted) in [("localhost", None), ("example.com", Some(certificate()?))] {
        match secured(name, trusted).await {
            Ok(_) => return Err(format!("connected to {name} without trust").into()),
            Err(error) if error.to_string().contains("certificate") => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub fn operations() -> Vec<Operation> {
    vec![
        operation("over TLS: describe the hub", describe()),
        operation("over TLS: send a batch and receive it", send_and_receive()),
        operation("over TLS: an event of 1 MB both ways", megabyte()),
        operation("over TLS: a certificate that is not trusted", untrusted()),
    ]
}
