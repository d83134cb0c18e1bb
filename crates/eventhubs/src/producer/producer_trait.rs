//! Implements `ephor_core`'s `Producer` interface, which all hubs share, for the Event Hubs client.

use ephor_core::BoxFuture;
use ephor_core::event::NewEvent;
use ephor_core::producer::{Producer, ProducerError, SendCause, Sent, Target};
use ephor_core::source::SourceError;
use ephor_wire::condition::source_error;

use super::EventHubProducer;
use super::error::{SendError, SendFailure};

impl Producer for EventHubProducer {
    fn send_batch<'a>(
        &'a self,
        target: Target<'a>,
        events: Vec<NewEvent>,
    ) -> BoxFuture<'a, Result<Sent, ProducerError>> {
        Box::pin(async move { Ok(Sent::new(EventHubProducer::send_batch(self, target, events).await?)) })
    }
}

impl From<SendError> for ProducerError {
    fn from(SendError { sent, failure }: SendError) -> Self {
        Self::new(sent, cause(failure))
    }
}

fn cause(failure: SendFailure) -> SendCause {
    match failure {
        SendFailure::Event { index, why } => SendCause::Event { index, error: why.into() },
        SendFailure::Refused(refusal) => match source_error(refusal) {
            // The client has retried what a retry can help.
            SourceError::Unavailable(refusal) => SendCause::Refused(refusal),
            known => known.into(),
        },
        SendFailure::Misconfigured(message) => SourceError::Misconfigured { message }.into(),
        unavailable @ SendFailure::Unavailable { .. } => SourceError::Unavailable(unavailable.into()).into(),
    }
}
