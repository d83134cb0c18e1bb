//! A simulated receiver that attaches again by itself when its link breaks, as the Event Hubs client does:
//! in the same epoch, after the last delivered event, and only to the log in which it was opened.

use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::event::Event;
use ephor_core::ids::LogId;
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::{
    EventSource, LastEnqueued, OpenError, OpenRequest, ReceiveError, Receiver, SourceError,
};

use super::FaultySource;

/// The most attempts in a row before it yields the error.
const MAX_ATTEMPTS: u32 = 4;
/// The pause before an attempt, for each attempt before it.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest time for an attempt: its answer may be lost.
const ATTEMPT_TIME: Duration = Duration::from_secs(10);

/// The result of an attempt: a receiver, an error after which another attempt may help, or the last error.
type Attached = Result<Box<dyn Receiver>, (ReceiveError, bool)>;

pub(super) struct ReattachingReceiver {
    source: FaultySource,
    request: OpenRequest,
    log: Option<LogId>,
    state: State,
    /// The last event that it delivered.
    last: Option<SequenceNumber>,
    /// The number of failures since then.
    failures: u32,
}

enum State {
    Attached(Box<dyn Receiver>),
    Attaching(BoxFuture<'static, Attached>),
    Ended,
}

impl ReattachingReceiver {
    /// Opens a receiver, and learns which log it reads.
    pub(super) async fn open(source: FaultySource, request: OpenRequest) -> Result<Self, OpenError> {
        let receiver = source.open_once(request.clone()).await?;
        let log = source.hub_properties().await?.log;
        Ok(Self { source, request, log, state: State::Attached(receiver), last: None, failures: 0 })
    }

    async fn next(&mut self, into: &mut Vec<Event>, max: usize) -> Result<(), ReceiveError> {
        loop {
            let (error, may_help) = match &mut self.state {
                State::Attached(receiver) => match receiver.receive(into, max).await {
                    Ok(()) => {
                        self.last = into.last().map(|event| event.sequence).or(self.last);
                        self.failures = 0;
                        return Ok(());
                    }
                    Err(error) => classified(error),
                },
                // Kept between calls: a receive that is dropped does not end it.
                State::Attaching(attempt) => match attempt.await {
                    Ok(receiver) => {
                        self.state = State::Attached(receiver);
                        continue;
                    }
                    Err(failed) => failed,
                },
                State::Ended => (SourceError::Unavailable("the receiver has ended".into()).into(), false),
            };
            self.failures += 1;
            self.state = match self.start().filter(|_| may_help && self.failures <= MAX_ATTEMPTS) {
                Some(start) => State::Attaching(self.attach(start)),
                None => {
                    self.state = State::Ended;
                    return Err(error);
                }
            };
        }
    }

    /// The position at which it goes on. `None` if that would pass over events that it has not seen.
    fn start(&self) -> Option<StartPosition> {
        match (self.last, &self.request.start) {
            (Some(number), _) => Some(StartPosition::Sequence { number, inclusive: false }),
            (None, StartPosition::Latest) => None,
            (None, start) => Some(start.clone()),
        }
    }

    fn attach(&self, start: StartPosition) -> BoxFuture<'static, Attached> {
        let (source, log) = (self.source.clone(), self.log.clone());
        let request = OpenRequest { start, ..self.request.clone() };
        let at = source.network.handle.now() + PAUSE * (self.failures - 1);
        let handle = source.network.handle.clone();
        let attempt = async move {
            let receiver = source.open_once(request).await.map_err(|error| match error {
                OpenError::Refused { epoch, by, message } => {
                    (ReceiveError::Disconnected { epoch, by, message }, false)
                }
                OpenError::Source(error) => classified(error.into()),
                other => (SourceError::Unavailable(other.to_string().into()).into(), false),
            })?;
            let now = source.hub_properties().await.map_err(|error| classified(error.into()))?.log;
            if now != log {
                let what = "the hub was deleted and created again";
                return Err((SourceError::Unavailable(what.into()).into(), false));
            }
            Ok(receiver)
        };
        Box::pin(async move {
            handle.sleep_until(at).await;
            tokio::select! {
                biased;
                attached = attempt => attached,
                () = handle.sleep(ATTEMPT_TIME) => {
                    Err((SourceError::Unavailable("no answer from the hub".into()).into(), true))
                }
            }
        })
    }
}

/// An error, and true if another attempt may help.
fn classified(error: ReceiveError) -> (ReceiveError, bool) {
    let may_help = matches!(error, ReceiveError::Source(SourceError::Unavailable(_)));
    (error, may_help)
}

impl Receiver for ReattachingReceiver {
    fn receive<'a>(
        &'a mut self,
        into: &'a mut Vec<Event>,
        max: usize,
    ) -> BoxFuture<'a, Result<(), ReceiveError>> {
        Box::pin(self.next(into, max))
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        match &self.state {
            State::Attached(receiver) => receiver.last_enqueued(),
            _ => None,
        }
    }

    fn log(&self) -> Option<LogId> {
        self.log.clone()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        match self.state {
            State::Attached(receiver) => receiver.close(),
            _ => Box::pin(async {}),
        }
    }
}
