//! Interoperability tests of operations that the hub refuses, and the AMQP condition that the client gets.

use fe2o3_amqp::link::{LinkStateError, ReceiverAttachError, RecvError, SenderAttachError};
use fe2o3_amqp_management::error::Error as ManagementError;
use fe2o3_amqp_types::definitions;
use fe2o3_amqp_types::primitives::Value;

use crate::client::{Client, Endpoint, Failure};
use crate::events::{event, send};
use crate::reader::{Reader, Reading};
use crate::{Operation, operation};

const HUB: &str = "fe2o3-refusals";
const UNAUTHORIZED: &str = "amqp:unauthorized-access";
const NOT_FOUND: &str = "amqp:not-found";
const NO_ENTITY: [&str; 2] = ["The messaging entity", "could not be found"];

/// A condition, and its text.
pub struct Refusal {
    condition: String,
    text: String,
}

pub fn describe(error: &definitions::Error) -> Result<Refusal, Failure> {
    match serde_amqp::to_value(&error.condition)? {
        Value::Symbol(symbol) => Ok(Refusal {
            condition: symbol.as_str().to_owned(),
            text: error.description.clone().unwrap_or_default(),
        }),
        other => Err(format!("a condition that is {other:?}").into()),
    }
}

/// Fails unless the condition begins so and the text has these words.
pub fn is_refused(refusal: &Refusal, condition: &str, words: &[&str]) -> Result<(), Failure> {
    let Refusal { condition: found, text } = refusal;
    if !found.starts_with(condition) {
        return Err(format!("{found} instead of {condition}: {text}").into());
    }
    match words.iter().find(|word| !text.contains(**word)) {
        Some(word) => Err(format!("{word:?} is not in: {text}").into()),
        None => Ok(()),
    }
}

/// The link of a reader ends like this.
pub async fn link_ended(reader: &mut Reader, condition: &str, words: &[&str]) -> Result<(), Failure> {
    let error = reader.error().await?;
    let RecvError::LinkStateError(
        LinkStateError::RemoteClosedWithError(reason) | LinkStateError::RemoteDetachedWithError(reason),
    ) = error
    else {
        return Err(format!("ended by {error:?}").into());
    };
    is_refused(&describe(&reason)?, condition, words)
}

/// How often an attach is tried again whose reason got lost. The hub answers with attach and detach at once; if this
/// library reads the detach before it has sent its own, it knows nothing but that the link is gone, and its session
/// can no longer be used.
const TRIES: usize = 50;

/// A client with a token, valid or not, that tries everything.
struct Asking {
    hub: &'static str,
    token: String,
}

impl Asking {
    fn with(hub: &'static str, token: &str) -> Self {
        Self { hub, token: token.to_owned() }
    }

    fn of(hub: &'static str) -> Result<Self, Failure> {
        Ok(Self { hub, token: Endpoint::given()?.token(hub, 600)? })
    }

    async fn client(&self) -> Result<Client, Failure> {
        let mut client = Client::anonymous().await?;
        drop(client.put_token(self.hub, &self.token).await);
        Ok(client)
    }

    async fn receiver_refused(
        &self,
        reading: &Reading,
        condition: &str,
        words: &[&str],
    ) -> Result<(), Failure> {
        for _ in 0..TRIES {
            let mut client = self.client().await?;
            let reason = match reading.attach(&mut client).await {
                Err(ReceiverAttachError::RemoteClosedWithError(error)) => Some(error),
                Err(ReceiverAttachError::IllegalState) => None,
                Err(error) => return Err(format!("the receiver was refused by {error:?}").into()),
                Ok(_) => return Err("the receiver was let in".into()),
            };
            client.close().await;
            if let Some(reason) = reason {
                return is_refused(&describe(&reason)?, condition, words);
            }
        }
        Err("the receiver was refused without a reason".into())
    }

    async fn sender_refused(&self, address: &str, condition: &str, words: &[&str]) -> Result<(), Failure> {
        for _ in 0..TRIES {
            let mut client = self.client().await?;
            let reason = match client.sender(address).await {
                Err(SenderAttachError::RemoteClosedWithError(error)) => Some(error),
                Err(SenderAttachError::IllegalState) => None,
                Err(error) => return Err(format!("the sender was refused by {error:?}").into()),
                Ok(_) => return Err("the sender was let in".into()),
            };
            client.close().await;
            if let Some(reason) = reason {
                return is_refused(&describe(&reason)?, condition, words);
            }
        }
        Err("the sender was refused without a reason".into())
    }

    async fn description_refused(&self, code: u16, words: &[&str]) -> Result<(), Failure> {
        let mut client = self.client().await?;
        let answer = client.describe_hub(self.hub).await;
        client.close().await;
        status(answer, code, words)
    }

    /// Without a token that counts, nothing is permitted.
    async fn everything_refused(&self) -> Result<(), Failure> {
        self.sender_refused(self.hub, UNAUTHORIZED, &["'Send' claim"]).await?;
        self.receiver_refused(&Reading::of(self.hub), UNAUTHORIZED, &["'Listen' claim"]).await?;
        self.description_refused(401, &[]).await
    }
}

/// Such a receiver is refused, and its client is let in.
pub async fn attach_refused(
    hub: &'static str,
    reading: &Reading,
    condition: &str,
    words: &[&str],
) -> Result<(), Failure> {
    Asking::of(hub)?.receiver_refused(reading, condition, words).await
}

/// A request is answered with this status.
pub fn status(answer: Result<impl Sized, ManagementError>, code: u16, words: &[&str]) -> Result<(), Failure> {
    let error = match answer {
        Err(ManagementError::Status(error)) => error,
        Err(other) => return Err(other.into()),
        Ok(_) => return Err(format!("no error {code}")).map_err(Into::into),
    };
    let text = error.description.unwrap_or_default();
    is_refused(&Refusal { condition: error.code.0.get().to_string(), text }, &code.to_string(), words)
}

/// Checks that `$cbs` refuses a token with these words.
async fn token_refused(token: &str, words: &[&str]) -> Result<(), Failure> {
    let mut client = Client::anonymous().await?;
    let answer = client.put_token(HUB, token).await;
    client.close().await;
    status(answer, 401, words)
}

async fn bad_key() -> Result<(), Failure> {
    let given = Endpoint::given()?;
    let other_key = Endpoint { key: "bm90IHRoZSBrZXk=".to_owned(), ..given.clone() };
    let other_name = Endpoint { key_name: "nobody".to_owned(), ..given };
    for forger in [other_key, other_name] {
        let token = forger.token(HUB, 600)?;
        token_refused(&token, &["InvalidSignature"]).await?;
        Asking::with(HUB, &token).everything_refused().await?;
    }
    Ok(())
}

async fn expired() -> Result<(), Failure> {
    let token = Endpoint::given()?.token(HUB, -600)?;
    token_refused(&token, &["ExpiredToken"]).await?;
    Asking::with(HUB, &token).everything_refused().await?;
    let mut client = Client::open(HUB).await?;
    let mut sender = client.sender(HUB).await?;
    send(&mut sender, event("let in")).await?;
    sender.close().await?;
    client.close().await;
    Ok(())
}

async fn runs_out() -> Result<(), Failure> {
    let mut client = Client::anonymous().await?;
    let token = client.endpoint.token(HUB, 3)?;
    client.put_token(HUB, &token).await?;
    let link = Reading::of(HUB).partition("3").attach(&mut client).await?;
    let mut reader = Reader::new(client, link);
    link_ended(&mut reader, UNAUTHORIZED, &["ExpiredToken"]).await?;
    reader.close().await
}

async fn unknown_hub() -> Result<(), Failure> {
    let token = Endpoint::given()?.token("nowhere", 600)?;
    let mut client = Client::anonymous().await?;
    let answer = client.put_token("nowhere", &token).await;
    client.close().await;
    status(answer, 404, &NO_ENTITY)?;
    // A token that is not taken permits nothing.
    Asking::with("nowhere", &token).everything_refused().await
}

async fn unknown_group() -> Result<(), Failure> {
    attach_refused(HUB, &Reading::of(HUB).group("nobody"), NOT_FOUND, &NO_ENTITY).await
}

async fn unknown_partition() -> Result<(), Failure> {
    let condition = "com.microsoft:argument-out-of-range";
    let words = ["The specified partition is invalid", "between 0 and 3"];
    let asking = Asking::of(HUB)?;
    asking.receiver_refused(&Reading::of(HUB).partition("4"), condition, &words).await?;
    asking.sender_refused(&format!("{HUB}/Partitions/4"), condition, &words).await?;
    let mut client = Client::open(HUB).await?;
    let answer = client.describe_partition(HUB, "4").await;
    client.close().await;
    status(answer, 400, &words)
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
