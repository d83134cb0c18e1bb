//! Interoperability tests of operations that the hub refuses, and the error that the client gets.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use azure_core_amqp::error::AmqpErrorKind;
use azure_core_amqp::{AmqpDescribedError, AmqpError};
use azure_messaging_eventhubs::EventHubsError;
use azure_messaging_eventhubs::error::ErrorKind;
use base64::Engine;
use hmac::{Hmac, Mac};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::Sha256;

use crate::client::{Failure, Way, field, to};
use crate::reader::Reading;
use crate::{Operation, operation};

const HUB: &str = "rust-sdk-refusals";

/// The kind of an error with its condition and text, as an application finds them.
pub fn kind(error: &EventHubsError) -> String {
    match &error.kind {
        ErrorKind::ConsumerDisconnected(told) => format!("ConsumerDisconnected {}", described(told.as_ref())),
        ErrorKind::SendRejected(told) => format!("SendRejected {}", described(told.as_ref())),
        ErrorKind::AmqpError(error) => of_amqp(error),
        ErrorKind::AzureCore(error) => sources(error),
        other => format!("{other:?}"),
    }
}

fn described(error: Option<&AmqpDescribedError>) -> String {
    error.map_or_else(String::new, |error| {
        format!("{:?}: {}", error.condition, error.description.as_deref().unwrap_or_default())
    })
}

fn of_amqp(error: &AmqpError) -> String {
    match error.kind() {
        AmqpErrorKind::AmqpDescribedError(error) => described(Some(error)),
        AmqpErrorKind::ManagementStatusCode(code, text) => {
            format!("status {}: {}", u16::from(*code), text.as_deref().unwrap_or_default())
        }
        _ => sources(error),
    }
}

/// This client wraps some errors into others: all of their texts.
fn sources(error: &(dyn std::error::Error + 'static)) -> String {
    let (mut text, mut next) = (String::new(), Some(error));
    while let Some(error) = next {
        match error.downcast_ref::<AmqpError>() {
            Some(error) if matches!(error.kind(), AmqpErrorKind::AmqpDescribedError(_)) => {
                return of_amqp(error);
            }
            Some(error) if matches!(error.kind(), AmqpErrorKind::ManagementStatusCode(..)) => {
                return of_amqp(error);
            }
            _ => drop(write!(text, "{error}; ")),
        }
        next = error.source();
    }
    text
}

/// It is this kind of error, and these words are in its text.
pub fn is_refused(error: &EventHubsError, expected: &str, words: &[&str]) -> Result<(), Failure> {
    let found = kind(error);
    for word in [expected].iter().chain(words) {
        if !found.contains(word) {
            return Err(format!("'{word}' is not in: {found}").into());
        }
    }
    Ok(())
}

fn raises<T>(result: Result<T, Failure>, expected: &str, words: &[&str]) -> Result<(), Failure> {
    match result {
        Ok(_) => Err(format!("no {expected} was raised").into()),
        Err(failure) => match failure.downcast::<EventHubsError>() {
            Ok(error) => is_refused(&error, expected, words),
            Err(other) => Err(other),
        },
    }
}

async fn send(way: &Way, hub: &str, partition: &str) -> Result<(), Failure> {
    let client = way.producer(hub).await?;
    Ok(client.send_event("refused", to(partition)).await?)
}

async fn describe(way: &Way, hub: &str) -> Result<(), Failure> {
    let client = way.consumer(hub, "$Default").await?;
    client.get_eventhub_properties().await?;
    Ok(())
}

async fn receive(reading: Reading) -> Result<(), Failure> {
    let mut reader = reading.open().await?;
    Err(reader.error().await?.into())
}

async fn everything_refused(way: &Way, expected: &str, words: &[&str]) -> Result<(), Failure> {
    raises(send(way, HUB, "0").await, expected, words)?;
    raises(describe(way, HUB).await, expected, words)?;
    raises(receive(Reading::of(HUB).by(way.clone())).await, expected, words)
}

async fn bad_key() -> Result<(), Failure> {
    let way = Way::given()?;
    let (name, key) =
        (field(&way.connection, "SharedAccessKeyName")?, field(&way.connection, "SharedAccessKey")?);
    let wrong_key = way.connection.replace(&key, "bm90IHRoZSBrZXk=");
    let wrong_name = way.connection.replace(&name, "nobody");
    for connection in [wrong_key, wrong_name] {
        everything_refused(&Way { connection, ..way.clone() }, "status 401", &[]).await?;
    }
    Ok(())
}

/// A connection string with a token that ends so many seconds from now.
fn signed(way: &Way, seconds: i64) -> Result<Way, Failure> {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
    let (expiry, endpoint) = (now + seconds, field(&way.connection, "Endpoint")?);
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let resource = encoded(&format!("{}/{HUB}", endpoint.trim_end_matches('/')));
    let mut mac = Hmac::<Sha256>::new_from_slice(field(&way.connection, "SharedAccessKey")?.as_bytes())?;
    mac.update(format!("{resource}\n{expiry}").as_bytes());
    let signature = encoded(&base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes()));
    let name = field(&way.connection, "SharedAccessKeyName")?;
    let token = format!("SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={name}");
    let connection = format!("Endpoint={endpoint};SharedAccessSignature={token}");
    Ok(Way { connection, ..way.clone() })
}

/// This client sees it by itself, and asks nobody.
async fn expired() -> Result<(), Failure> {
    let way = Way::given()?;
    send(&signed(&way, 600)?, HUB, "0").await?;
    everything_refused(&signed(&way, -600)?, "has expired", &[]).await
}

async fn runs_out() -> Result<(), Failure> {
    let way = signed(&Way::given()?, 5)?;
    let mut reader = Reading::of(HUB).partition("3").latest().by(way).open().await?;
    reader.attached().await?;
    is_refused(&reader.error().await?, "UnauthorizedAccess", &[])?;
    reader.close().await
}

const NOT_FOUND: [&str; 2] = ["The messaging entity", "could not be found"];

async fn unknown_hub() -> Result<(), Failure> {
    let way = Way::given()?;
    raises(send(&way, "nowhere", "0").await, "status 404", &NOT_FOUND)?;
    raises(describe(&way, "nowhere").await, "status 404", &NOT_FOUND)?;
    raises(receive(Reading::of("nowhere")).await, "status 404", &NOT_FOUND)
}

async fn unknown_group() -> Result<(), Failure> {
    raises(receive(Reading::of(HUB).group("nobody")).await, "NotFound", &NOT_FOUND)
}

async fn unknown_partition() -> Result<(), Failure> {
    let (way, words) = (Way::given()?, ["The specified partition is invalid", "between 0 and 3"]);
    raises(send(&way, HUB, "4").await, "ArgumentOutOfRange", &words)?;
    raises(receive(Reading::of(HUB).partition("4")).await, "ArgumentOutOfRange", &words)?;
    let client = way.producer(HUB).await?;
    raises(client.get_partition_properties("4").await.map_err(Failure::from), "status 400", &words)
}

pub fn operations() -> Vec<Operation> {
    vec![
        operation("a bad key", bad_key()),
        operation("an expired token", expired()),
        operation("a token that runs out while receiving", runs_out()),
        operation("an unknown hub", unknown_hub()),
        operation("an unknown group", unknown_group()),
        operation("an unknown partition", unknown_partition()),
    ]
}
