//! A receiver link of one partition, on a connection of its own, with the library fe2o3-amqp.

use std::time::Duration;

use fe2o3_amqp::Receiver;
use fe2o3_amqp::link::{ReceiverAttachError, RecvError};
use fe2o3_amqp_types::definitions::Fields;
use fe2o3_amqp_types::messaging::{FilterSet, Source};
use fe2o3_amqp_types::primitives::{Symbol, Value};
use serde_amqp::described::Described;
use serde_amqp::descriptor::Descriptor;

use crate::client::{Client, Failure, equal, unique};
use crate::events::Event;

const SELECTOR: &str = "apache.org:selector-filter:string";
const SELECTOR_CODE: u64 = 0x468C_0000_0004;
const RUNTIME_METRIC: &str = "com.microsoft:enable-receiver-runtime-metric";
/// Until something that should come counts as failed.
const PATIENCE: Duration = Duration::from_secs(50);

/// A request for events: which ones, and how to receive them.
#[derive(Clone)]
pub struct Reading {
    pub hub: String,
    pub group: String,
    pub partition: String,
    pub selector: String,
    pub named_selector: bool,
    pub level: Option<i64>,
    pub track: bool,
}

impl Reading {
    /// All of partition 0.
    pub fn of(hub: &str) -> Self {
        Self {
            hub: hub.to_owned(),
            group: "$Default".to_owned(),
            partition: "0".to_owned(),
            selector: "amqp.annotation.x-opt-offset > '-1'".to_owned(),
            named_selector: false,
            level: None,
            track: false,
        }
    }

    pub fn partition(self, id: &str) -> Self {
        Self { partition: id.to_owned(), ..self }
    }

    pub fn group(self, group: &str) -> Self {
        Self { group: group.to_owned(), ..self }
    }

    /// Only events of which this is true, such as `x-opt-sequence-number > '7'`.
    pub fn after(self, condition: &str) -> Self {
        Self { selector: format!("amqp.annotation.{condition}"), ..self }
    }

    pub fn latest(self) -> Self {
        self.after("x-opt-offset > '@latest'")
    }

    pub fn level(self, level: Option<i64>) -> Self {
        Self { level, ..self }
    }

    /// The link itself, on a client that is there.
    pub async fn attach(&self, client: &mut Client) -> Result<Receiver, ReceiverAttachError> {
        let descriptor = match self.named_selector {
            true => Descriptor::Name(Symbol::from(SELECTOR)),
            false => Descriptor::Code(SELECTOR_CODE),
        };
        let selector = Described { descriptor, value: Value::String(self.selector.clone()) };
        let mut filter = FilterSet::new();
        filter.insert(Symbol::from(SELECTOR), Value::Described(Box::new(selector)));
        let address = format!("{}/ConsumerGroups/{}/Partitions/{}", self.hub, self.group, self.partition);
        let source = Source::builder().address(address).filter(filter).build();
        let mut builder = Receiver::builder().name(unique("receiver")).source(source);
        if let Some(level) = self.level {
            let mut properties = Fields::new();
            properties.insert(Symbol::from("com.microsoft:epoch"), Value::Long(level));
            builder = builder.properties(properties);
        }
        if self.track {
            builder = builder.add_desired_capabilities(RUNTIME_METRIC);
        }
        builder.attach(client.session()).await
    }

    /// A link on a connection of its own.
    pub async fn open(self) -> Result<Reader, Failure> {
        let mut client = Client::open(&self.hub).await?;
        let link = self.attach(&mut client).await?;
        Ok(Reader { client, link })
    }
}

pub struct Reader {
    client: Client,
    link: Receiver,
}

impl Reader {
    pub fn new(client: Client, link: Receiver) -> Self {
        Self { client, link }
    }

    /// The next so many events.
    pub async fn take(&mut self, count: usize) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(self.next().await?);
        }
        Ok(events)
    }

    pub async fn next(&mut self) -> Result<Event, Failure> {
        take_one(&mut self.link).await
    }

    /// The error that ends the link.
    pub async fn error(&mut self) -> Result<RecvError, Failure> {
        match tokio::time::timeout(PATIENCE, self.link.recv::<fe2o3_amqp_types::messaging::Body<Value>>())
            .await
        {
            Ok(Err(error)) => Ok(error),
            Ok(Ok(_)) => Err("an event instead of an error".into()),
            Err(_) => Err(format!("no error within {} s", PATIENCE.as_secs()).into()),
        }
    }

    pub async fn close(self) -> Result<(), Failure> {
        drop(self.link.close().await);
        self.client.close().await;
        Ok(())
    }
}

/// The next event of a link. The hub settles what it sends; yet this library gives new credit only for what is accepted.
pub async fn take_one(link: &mut Receiver) -> Result<Event, Failure> {
    let Ok(delivery) = tokio::time::timeout(PATIENCE, link.recv()).await else {
        return Err(format!("no event within {} s", PATIENCE.as_secs()).into());
    };
    let delivery = delivery?;
    link.accept(&delivery).await?;
    Ok(delivery.into_message())
}

/// Reads so many events with a link of its own, and closes it.
pub async fn read(reading: Reading, count: usize) -> Result<Vec<Event>, Failure> {
    let mut reader = reading.open().await?;
    let events = reader.take(count).await?;
    reader.close().await?;
    equal(events.len(), count, "number of events")?;
    Ok(events)
}
