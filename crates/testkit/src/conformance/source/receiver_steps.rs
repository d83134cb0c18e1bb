//! Helpers of the source suite: opens receivers, sends, and waits for results.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use ephor_core::epoch::Epoch;
use ephor_core::event::Event;
use ephor_core::event::NewEvent;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::StartPosition;
use ephor_core::source::{OpenError, OpenRequest, ReceiveError, Receiver};
use tokio::sync::Notify;

use super::SourceFixture;

/// The partition of those properties that need one.
pub(super) const HERE: PartitionId = PartitionId(0);

/// The number of checks for a change that takes effect soon.
const LOOKS: usize = 10_000;

/// More events than any property leaves waiting.
const PLENTY: usize = 1_000;

/// A request for a receiver of `$Default` on the first partition, from the earliest event on.
pub(super) fn request(receiver: &str, epoch: Option<u64>) -> OpenRequest {
    OpenRequest {
        group: ConsumerGroup::default_group(),
        partition: HERE,
        start: StartPosition::Earliest,
        epoch: epoch.map(Epoch::from_stored),
        receiver: receiver.into(),
        prefetch_events: 300,
        prefetch_bytes: 1 << 20,
    }
}

/// Opens a receiver that must open.
pub(super) async fn open<F: SourceFixture>(fixture: &F, request: OpenRequest) -> Box<dyn Receiver> {
    let asked = format!("{request:?}");
    match fixture.source().open(request).await {
        Ok(receiver) => receiver,
        Err(error) => panic!("does not open: {error} ({asked})"),
    }
}

/// Opens a receiver at this position, with no epoch.
pub(super) async fn open_at<F: SourceFixture>(fixture: &F, start: StartPosition) -> Box<dyn Receiver> {
    open(fixture, OpenRequest { start, ..request("reader", None) }).await
}

/// Opens a receiver that must be refused, and returns the error.
pub(super) async fn refusal<F: SourceFixture>(fixture: &F, request: OpenRequest) -> OpenError {
    let asked = format!("{request:?}");
    match fixture.source().open(request).await {
        Ok(_) => panic!("opens, and should not: {asked}"),
        Err(error) => error,
    }
}

/// Opens a receiver that must open soon: the hub learns of a dropped receiver a little later.
pub(super) async fn open_soon<F: SourceFixture>(fixture: &F, request: OpenRequest) -> Box<dyn Receiver> {
    for _ in 0..LOOKS {
        match fixture.source().open(request.clone()).await {
            Ok(receiver) => return receiver,
            Err(OpenError::Refused { .. }) => fixture.pause().await,
            Err(error) => panic!("does not open: {error}"),
        }
    }
    panic!("still refused after {LOOKS} attempts: {request:?}");
}

/// Sends events to the first partition whose bodies are these numbers.
pub(super) async fn send_numbers<F: SourceFixture>(fixture: &F, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        fixture.send(HERE, NewEvent::new(number.to_string())).await;
    }
}

/// The numbers in the bodies.
pub(super) fn numbers(events: &[Event]) -> Vec<u64> {
    let number = |event: &Event| event.text().and_then(|text| text.parse().ok());
    events.iter().map(|event| number(event).expect("the body is a number")).collect()
}

/// Receives until there are this many events.
pub(super) async fn receive(receiver: &mut Box<dyn Receiver>, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        let before = events.len();
        receiver.receive(&mut events, count - before).await.expect("the receiver is alive");
        assert!(events.len() > before, "a receive ends with at least one event");
    }
    assert_eq!(events.len(), count, "no more than asked for");
    events
}

/// Receives until the receiver gets its final error. Prefetched events may come before.
pub(super) async fn ending(receiver: &mut Box<dyn Receiver>) -> (Vec<Event>, ReceiveError) {
    let mut events = Vec::new();
    loop {
        if let Err(error) = receiver.receive(&mut events, PLENTY).await {
            return (events, error);
        }
        assert!(events.len() < PLENTY, "the receiver does not end");
    }
}

/// The parts of a disconnection: the other's epoch and name, and the hub's message.
pub(super) fn disconnected(error: ReceiveError) -> (Option<u64>, Option<String>, String) {
    match error {
        ReceiveError::Disconnected { epoch, by, message } => (epoch.map(Epoch::get), by, message),
        error => panic!("not disconnected by another, but: {error}"),
    }
}

/// The parts of a refusal: the epoch and name of the present receiver, and the hub's message.
pub(super) fn refused(error: OpenError) -> (Option<u64>, Option<String>, String) {
    match error {
        OpenError::Refused { epoch, by, message } => (epoch.map(Epoch::get), by, message),
        error => panic!("not refused for another's sake, but: {error}"),
    }
}

/// Checks the beginning of a message, because the hub may append tracking ids.
#[track_caller]
pub(super) fn assert_says(message: &str, expected: &str) {
    assert!(message.starts_with(expected), "the hub says    {message:?}\nand should say  {expected:?}");
}

/// A waker that can be awaited: it shows that a future was really woken, because the test does not
/// poll it otherwise.
pub(super) struct Alarm(Arc<Bell>);

struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl Alarm {
    pub(super) fn new() -> Self {
        Self(Arc::new(Bell(Notify::new())))
    }

    /// Polls once. From then on the alarm is notified when there is a reason to poll again.
    pub(super) fn poll<T>(&self, future: &mut Pin<Box<dyn Future<Output = T> + Send + '_>>) -> Poll<T> {
        let waker = Waker::from(self.0.clone());
        future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polls only when woken, until the future is done.
    pub(super) async fn finish<T>(&self, future: &mut Pin<Box<dyn Future<Output = T> + Send + '_>>) -> T {
        loop {
            self.0.0.notified().await;
            if let Poll::Ready(value) = self.poll(future) {
                return value;
            }
        }
    }
}
