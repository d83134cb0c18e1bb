//! Opens clients of the Rust SDK, with helper functions to send, receive and describe that every operation
//! uses.

use std::error::Error;
use std::fmt::Debug;

use azure_core::time::Duration;
use azure_messaging_eventhubs::models::EventData;
use azure_messaging_eventhubs::{
    ConsumerClient, EventDataBatchOptions, ProducerClient, RetryOptions, SendEventOptions,
};

pub type Failure = Box<dyn Error + Send + Sync>;

/// Where a hub is and how to get in.
#[derive(Clone)]
pub struct Way {
    /// This client drops the port and knows no emulator: it takes everything but the address from here.
    pub connection: String,
    /// Where it connects to instead.
    pub endpoint: String,
    pub retries: RetryOptions,
}

/// A field of a connection string.
pub fn field(connection: &str, name: &str) -> Result<String, Failure> {
    let parts = connection.split(';').filter_map(|part| part.split_once('='));
    let found = parts.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
    found.ok_or_else(|| format!("no {name} in the connection string").into())
}

impl Way {
    /// The one in `EPHOR_CONNECTION`, giving up soon: it tries eight times otherwise.
    pub fn given() -> Result<Self, Failure> {
        let connection = std::env::var("EPHOR_CONNECTION")?;
        let endpoint = field(&connection, "Endpoint")?.replace("sb://", "amqp://");
        Ok(Self { connection, endpoint, retries: tries(3) })
    }

    pub async fn producer(&self, hub: &str) -> Result<ProducerClient, Failure> {
        let builder = ProducerClient::builder()
            .with_custom_endpoint(self.endpoint.clone())
            .with_retry_options(self.retries.clone());
        Ok(builder.open_with_connection_string(&self.connection, Some(hub)).await?)
    }

    pub async fn consumer(&self, hub: &str, group: &str) -> Result<ConsumerClient, Failure> {
        let builder = ConsumerClient::builder()
            .with_custom_endpoint(self.endpoint.clone())
            .with_retry_options(self.retries.clone())
            .with_consumer_group(group.to_owned());
        Ok(builder.open_with_connection_string(&self.connection, Some(hub)).await?)
    }
}

/// So many tries more, one soon after the other.
pub fn tries(more: u32) -> RetryOptions {
    RetryOptions {
        initial_delay: Duration::milliseconds(50),
        max_delay: Duration::milliseconds(200),
        max_retries: more,
        max_total_elapsed: Duration::seconds(60),
    }
}

pub async fn producer(hub: &str) -> Result<ProducerClient, Failure> {
    Way::given()?.producer(hub).await
}

pub fn to(partition: &str) -> Option<SendEventOptions> {
    Some(SendEventOptions { partition_id: Some(partition.to_owned()) })
}

/// Sends one event to partition 0.
pub async fn say(hub: &str, text: &str) -> Result<(), Failure> {
    let client = producer(hub).await?;
    client.send_event(text, to("0")).await?;
    Ok(client.close().await?)
}

/// Sends all of these as one batch.
pub async fn send_all<E: Into<EventData>>(
    client: &ProducerClient,
    events: impl IntoIterator<Item = E>,
    options: EventDataBatchOptions,
) -> Result<(), Failure> {
    let batch = client.create_batch(Some(options)).await?;
    for event in events {
        equal(batch.try_add_event_data(event, None)?, true, "room in the batch")?;
    }
    Ok(client.send_batch(batch, None).await?)
}

/// The sequence number of the last event, -1 if there is none.
pub async fn last(hub: &str, partition: &str) -> Result<i64, Failure> {
    let client = producer(hub).await?;
    let found = client.get_partition_properties(partition).await?.last_enqueued_sequence_number;
    client.close().await?;
    Ok(found)
}

pub fn equal<T: PartialEq + Debug>(found: T, expected: T, what: &str) -> Result<(), Failure> {
    match found == expected {
        true => Ok(()),
        false => {
            let show = |value: &T| format!("{value:?}").chars().take(200).collect::<String>();
            Err(format!("{what}: expected {}, found {}", show(&expected), show(&found)).into())
        }
    }
}
