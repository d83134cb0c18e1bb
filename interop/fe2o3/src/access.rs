//! Interoperability tests that connect and authenticate in ways that no SDK uses, but other AMQP libraries
//! do.

use fe2o3_amqp::sasl_profile::SaslProfile;

use crate::client::{Client, Endpoint, Failure, equal};
use crate::events::{event, send, texts};
use crate::reader::{Reader, Reading};
use crate::{Operation, operation};

const HUB: &str = "fe2o3-refusals";

async fn works(mut client: Client) -> Result<(), Failure> {
    let before = client.last(HUB, "2").await?;
    let mut sender = client.sender(&format!("{HUB}/Partitions/2")).await?;
    send(&mut sender, event("hello")).await?;
    sender.close().await?;
    let start = format!("x-opt-sequence-number > '{before}'");
    let link = Reading::of(HUB).partition("2").after(&start).attach(&mut client).await?;
    let mut reader = Reader::new(client, link);
    equal(texts(&reader.take(1).await?)?, vec!["hello".to_owned()], "received")?;
    reader.close().await
}

/// The name and the key themselves: no token is put.
async fn plain() -> Result<(), Failure> {
    let endpoint = Endpoint::given()?;
    let login = |name: &str, key: &str| {
        Some(SaslProfile::Plain { username: name.to_owned(), password: key.to_owned() })
    };
    let good = login(&endpoint.key_name, &endpoint.key);
    works(Client::connect(endpoint.clone(), good).await?).await?;
    for bad in [login(&endpoint.key_name, "bm90IHRoZSBrZXk="), login("nobody", &endpoint.key)] {
        if Client::connect(endpoint.clone(), bad).await.is_ok() {
            return Err("let in with a key that is none".into());
        }
    }
    Ok(())
}

/// AMQP from the first byte; a token is put as always.
async fn without_sasl() -> Result<(), Failure> {
    let mut client = Client::connect(Endpoint::given()?, None).await?;
    client.log_in(HUB).await?;
    works(client).await
}

pub fn operations() -> Vec<Operation> {
    vec![operation("log in by SASL PLAIN", plain()), operation("connect without SASL", without_sasl())]
}
