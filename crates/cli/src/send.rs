//! `ephor send`: sends events from the arguments, or from the lines of standard input.

use std::io;

use bytes::Bytes;
use ephor_core::BoxError;
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_eventhubs::{EventHubProducer, SendError, SendFailure, Target};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::arguments::Send;
use crate::open_client;
use crate::store_commands::arguments::Output;
use crate::table::{counted, object, pretty, say};

/// The maximum number of lines that are sent together, if they come fast enough.
const MAX_LINES_PER_BATCH: usize = 100;

pub(crate) async fn run(options: Send) -> Result<(), BoxError> {
    let hub = open_client::open(&options.to, &options.hub)?;
    let target = match (options.partition, &options.key) {
        (Some(partition), _) => Target::Partition(PartitionId(partition)),
        (None, Some(key)) => Target::Key(key),
        (None, None) => Target::Any,
    };
    let mut sending = Sending { producer: hub.producer(), target, sent: 0 };
    let outcome = match options.bodies.is_empty() {
        true => sending.send_lines(BufReader::new(tokio::io::stdin())).await,
        false => {
            let events: Vec<_> = options.bodies.into_iter().map(NewEvent::new).collect();
            sending.send(&events, "event").await.map_err(BoxError::from)
        }
    };
    match options.output {
        // Also after a failure: a caller that continues has to know from where.
        Output::Json => say(&pretty(&object([
            ("hub", options.hub.as_str().into()),
            ("sent", sending.sent.into()),
            ("done", outcome.is_ok().into()),
        ])))?,
        Output::Table if outcome.is_ok() => {
            eprintln!("{} sent to {}", counted(sending.sent, "event"), options.hub);
        }
        Output::Table => {}
    }
    outcome
}

/// A failed send, with the number of events before it in its message.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct SendingFailed {
    message: String,
    source: SendFailure,
}

/// A send in progress, with the number of events sent so far.
struct Sending<'a> {
    producer: EventHubProducer,
    target: Target<'a>,
    sent: usize,
}

impl Sending<'_> {
    async fn send_lines(&mut self, mut input: BufReader<impl AsyncRead + Unpin>) -> Result<(), BoxError> {
        loop {
            let mut events = Vec::new();
            let read = read_lines(&mut input, &mut events).await;
            // Lines that were read before an error are sent nevertheless.
            self.send(&events, "line").await?;
            read.map_err(|error| {
                format!(
                    "{} sent; line {} cannot be read: {error}",
                    counted(self.sent, "event"),
                    self.sent + 1
                )
            })?;
            if events.is_empty() {
                return Ok(());
            }
        }
    }

    /// Sends all events, or those before the first that cannot be sent.
    async fn send(&mut self, events: &[NewEvent], word: &str) -> Result<(), SendingFailed> {
        let Err(SendError { sent, failure, .. }) = self.try_send(events).await else { return Ok(()) };
        let SendFailure::Event { index, why } = &failure else {
            return Err(self.failed(word, &failure.to_string(), failure));
        };
        // Send the good events that would have shared a message with the bad one.
        if let Err(SendError { failure, .. }) = self.try_send(&events[sent..*index]).await {
            return Err(self.failed(word, &failure.to_string(), failure));
        }
        Err(self.failed(word, &format!("cannot be sent: {why}"), failure))
    }

    async fn try_send(&mut self, events: &[NewEvent]) -> Result<(), SendError> {
        if events.is_empty() {
            return Ok(());
        }
        let outcome = self.producer.send_batch(self.target, events.iter().cloned()).await;
        self.sent += outcome.as_ref().map_or_else(|error| error.sent, |sent| *sent);
        outcome.map(|_| ())
    }

    /// The error for the next event: everything before it is sent.
    fn failed(&self, word: &str, why: &str, source: SendFailure) -> SendingFailed {
        let message = format!("{} sent; {word} {}: {why}", counted(self.sent, "event"), self.sent + 1);
        SendingFailed { message, source }
    }
}

/// Waits for a line, and also takes those that are already buffered. No events: the input has ended.
async fn read_lines(
    input: &mut BufReader<impl AsyncRead + Unpin>,
    events: &mut Vec<NewEvent>,
) -> io::Result<()> {
    while events.is_empty() || (events.len() < MAX_LINES_PER_BATCH && input.buffer().contains(&b'\n')) {
        let mut line = Vec::new();
        if input.read_until(b'\n', &mut line).await? == 0 {
            break;
        }
        events.push(NewEvent::new(Bytes::from(without_end(line))));
    }
    Ok(())
}

/// Removes the line ending. A line is bytes, not necessarily text.
fn without_end(mut line: Vec<u8>) -> Vec<u8> {
    if line.ends_with(b"\n") {
        line.pop();
        if line.ends_with(b"\r") {
            line.pop();
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(input: &[u8]) -> Vec<Vec<Bytes>> {
        let mut input = BufReader::new(input);
        let mut batches = Vec::new();
        loop {
            let mut events = Vec::new();
            read_lines(&mut input, &mut events).await.unwrap();
            if events.is_empty() {
                return batches;
            }
            batches.push(events.into_iter().map(|event| event.body).collect());
        }
    }

    #[tokio::test]
    async fn lines_are_bytes_without_their_ends() {
        let found = all(b"one\r\n\xff\xfe\r\r\n\n a \r\nlast\r").await;
        assert_eq!(found.concat(), [&b"one"[..], b"\xff\xfe\r", b"", b" a ", b"last\r"]);
        assert!(all(b"").await.is_empty());
    }

    #[tokio::test]
    async fn so_many_are_sent_together_and_a_half_line_keeps_nobody_waiting() {
        let found = all("x\n".repeat(250).as_bytes()).await;
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [100, 100, 50]);
        let found = all(b"one\ntwo\nhal").await;
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    }
}
