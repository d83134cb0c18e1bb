//! Limits the wait for an answer of the hub. The limit is longer on a slow connection, where an answer waits
//! behind the events of other partitions.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use ephor_core::source::{EventSource, ReceiveError, SourceError};

use crate::environment::Environment;

/// The timeout of a request.
const HUB_TIMEOUT: Duration = Duration::from_secs(15);

/// The timeout of a request if bytes come from the hub meanwhile.
const MAX_WAIT: Duration = Duration::from_secs(300);

/// Fewer bytes than this within [`HUB_TIMEOUT`] may be nothing but heartbeats.
const MIN_BYTES: u64 = 4 * 1024;

/// Awaits the hub's answer, at most this long.
pub(crate) async fn within_limit<T, E: From<SourceError>>(
    environment: &dyn Environment,
    limit: Duration,
    question: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    tokio::select! {
        biased;
        answer = question => answer,
        () = environment.sleep_until(environment.now() + limit) => {
            Err(no_answer_within(limit).into())
        }
    }
}

/// Awaits the hub's answer for [`HUB_TIMEOUT`], and longer while bytes come from the hub.
pub(crate) async fn while_bytes_come<T, E: From<SourceError>>(
    environment: &dyn Environment,
    source: &dyn EventSource,
    question: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let began = environment.now();
    let mut question = pin!(question);
    let mut before = source.received_bytes();
    let mut logged = false;
    loop {
        tokio::select! {
            biased;
            answer = &mut question => return answer,
            () = environment.sleep_until(environment.now() + HUB_TIMEOUT) => {}
        }
        let received = source.received_bytes();
        let came = received.saturating_sub(std::mem::replace(&mut before, received));
        let waited = environment.now().since(began);
        if came < MIN_BYTES || waited >= MAX_WAIT {
            return Err(no_answer_within(waited).into());
        }
        if !std::mem::replace(&mut logged, true) {
            tracing::warn!(
                "no answer of the hub within {waited:?}, but bytes come from it: waiting up to {MAX_WAIT:?}. The connection \
                 may be slow: then lower prefetch_bytes or prefetch_count"
            );
        }
    }
}

/// The error of the hub behind one of a receiver that is not disconnected.
pub(crate) fn source_error(error: ReceiveError) -> SourceError {
    match error {
        ReceiveError::Source(error) => error,
        other => SourceError::Unavailable(other.into()),
    }
}

/// The error for a question that the hub left unanswered.
fn no_answer_within(limit: Duration) -> SourceError {
    let silence = format!(
        "no answer within {limit:?}: the hub hangs, or the link is so slow that its answers wait behind prefetched \
         events; then lower prefetch_bytes or prefetch_count"
    );
    SourceError::Unavailable(silence.into())
}
