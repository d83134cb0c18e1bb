//! Detects, after a reconnect, that a hub was deleted and created again, by the id of its log.
//!
//! A recreated hub has the same name and another log. A receiver that reattaches would continue in the new
//! log at a position of the old one, and skip the events before it. So it asks for the log id *after* it was
//! attached, also the first time, and before it returns any event.
//!
//! Receivers that attach together share one request and its result, be it a log id or a failure: an
//! unresponsive hub delays all of them no longer than one. Each of them polls the shared request, so that one
//! that is not polled delays no other. A request has a time limit, which is extended while the connection
//! carries anything; after a failure a receiver reattaches.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::ids::LogId;
use ephor_core::source::SourceError;
use futures_util::FutureExt;
use futures_util::future::{Shared as SharedFuture, WeakShared};
use tokio::time::Instant;

use crate::client::Shared;
use crate::connection::{Deadline, Traffic};

/// The hub's log id, or the reason why it is unknown.
pub(crate) type LogAnswer = Result<Option<LogId>, Arc<str>>;

/// An answer, and the time of its request.
#[derive(Clone)]
struct Known {
    log: LogId,
    asked: Instant,
}

/// A request that some receivers wait for. Only they keep it alive, because it keeps the connections open.
struct LogRequest {
    asked: Instant,
    answer: WeakShared<BoxFuture<'static, LogAnswer>>,
}

/// The last known log id, and the request that is under way.
#[derive(Default)]
pub(crate) struct RecreationWatch {
    known: Mutex<Option<Known>>,
    request: Mutex<Option<LogRequest>>,
    /// Of the connection over which is asked.
    traffic: Arc<Traffic>,
}

impl RecreationWatch {
    pub(crate) fn new(traffic: Arc<Traffic>) -> Self {
        Self { traffic, ..Self::default() }
    }

    /// Records the log id that the hub reported to a request of this time.
    pub(crate) fn record(&self, log: LogId, asked: Instant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|known| known.asked <= asked) {
            *known = Some(Known { log, asked });
        }
    }

    fn known(&self) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The log id that the hub has at `time` or later. A request is answered within `limit` or fails;
    /// receivers that began to wait before it failed share the failure.
    async fn since(
        &self,
        time: Instant,
        limit: Duration,
        ask: impl Fn() -> BoxFuture<'static, LogAnswer>,
    ) -> LogAnswer {
        loop {
            if let Some(known) = self.known().filter(|known| known.asked >= time) {
                return Ok(Some(known.log));
            }
            let (asked, answer) = self.request(time, limit, &ask);
            let answer = answer.await;
            if answer.is_err() || asked >= time {
                return answer;
            }
        }
    }

    /// The request that is under way or is recent enough for this time; a new one if there is none.
    fn request(
        &self,
        time: Instant,
        limit: Duration,
        ask: impl Fn() -> BoxFuture<'static, LogAnswer>,
    ) -> (Instant, SharedFuture<BoxFuture<'static, LogAnswer>>) {
        let now = Instant::now();
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        let is_under_way = |asked: Instant, answer: &SharedFuture<_>| {
            answer.peek().is_none() && now.saturating_duration_since(asked) < limit
        };
        if let Some(LogRequest { asked, answer }) = &*request
            && let Some(answer) = answer.upgrade()
            && (*asked >= time || is_under_way(*asked, &answer))
        {
            return (*asked, answer);
        }
        let asking = ask();
        let traffic = self.traffic.clone();
        let bounded: BoxFuture<'static, LogAnswer> = Box::pin(async move {
            let answer = Deadline::new(limit, &traffic).wait(&traffic, asking).await;
            answer.unwrap_or_else(|| Err(format!("it did not answer within {limit:?}").into()))
        });
        let answer = bounded.shared();
        *request = answer.downgrade().map(|answer| LogRequest { asked: now, answer });
        (now, answer)
    }
}

/// The log id that the hub has at this time or later.
pub(crate) async fn log_since(shared: Arc<Shared>, time: Instant) -> LogAnswer {
    let ask = || -> BoxFuture<'static, LogAnswer> {
        let shared = shared.clone();
        Box::pin(async move {
            match shared.hub_properties().await {
                Ok(properties) => Ok(properties.log),
                // Whoever may read events may not always ask this. Then the log is unknown.
                Err(SourceError::Unauthorized { .. }) => Ok(None),
                Err(error) => Err(error.to_string().into()),
            }
        })
    };
    shared.recreation_watch.since(time, shared.options.answer_time, ask).await
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "time is the runtime's, and paused")]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use tokio::time::sleep;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// A hub that answers after this time, and counts the requests.
    struct Slow(Duration, LogAnswer, Arc<AtomicUsize>);

    impl Slow {
        fn new(after: Duration, answer: LogAnswer) -> Self {
            Self(after, answer, Arc::default())
        }

        fn ask(&self) -> BoxFuture<'static, LogAnswer> {
            let (after, answer, asked) = (self.0, self.1.clone(), self.2.clone());
            Box::pin(async move {
                asked.fetch_add(1, Ordering::Relaxed);
                sleep(after).await;
                answer
            })
        }

        fn asked(&self) -> usize {
            self.2.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn receivers_that_come_back_together_share_a_failure() {
        let (watch, busy) =
            (RecreationWatch::default(), Slow::new(Duration::from_secs(3), Err("server-busy".into())));
        let began = Instant::now();
        let waits = (0..100).map(|number| {
            let (watch, busy) = (&watch, &busy);
            async move {
                // The receivers do not attach at the same moment.
                sleep(Duration::from_millis(10 * number)).await;
                watch.since(Instant::now(), LIMIT, || busy.ask()).await
            }
        });
        for answer in join_all(waits).await {
            assert_eq!(answer, Err("server-busy".into()));
        }
        let took = began.elapsed();
        assert!(took < Duration::from_secs(7), "{took:?} and {} requests for 100 receivers", busy.asked());
        // A later receiver asks again.
        let before = busy.asked();
        watch.since(Instant::now(), LIMIT, || busy.ask()).await.unwrap_err();
        assert_eq!(busy.asked(), before + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_never_answers_fails_all_within_the_limit() {
        let watch = RecreationWatch::default();
        let began = Instant::now();
        let waits = (0..10).map(|_| watch.since(began, LIMIT, || Box::pin(pending())));
        let answer = tokio::time::timeout(LIMIT * 2, join_all(waits)).await.expect("there is no limit");
        assert!(answer.iter().all(Result::is_err), "{answer:?}");
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_that_nobody_polls_holds_up_no_other() {
        let log = LogId::new("one");
        let (watch, slow) =
            (RecreationWatch::default(), Slow::new(Duration::from_secs(1), Ok(Some(log.clone()))));
        let now = Instant::now();
        let mut idle = Box::pin(watch.since(now, LIMIT, || slow.ask()));
        assert!(idle.as_mut().now_or_never().is_none());
        let answer = tokio::time::timeout(LIMIT * 2, watch.since(now, LIMIT, || slow.ask())).await;
        assert_eq!(answer.expect("it waits for one that nobody polls"), Ok(Some(log.clone())));
        assert_eq!(idle.await, Ok(Some(log)));
        assert_eq!(slow.asked(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_an_older_request_does_not_count() {
        let (old, new) = (LogId::new("old"), LogId::new("new"));
        let watch = RecreationWatch::default();
        let (before, after) = (
            Slow::new(Duration::from_secs(2), Ok(Some(old.clone()))),
            Slow::new(Duration::from_secs(2), Ok(Some(new.clone()))),
        );
        let later = async {
            sleep(Duration::from_secs(1)).await;
            watch.since(Instant::now(), LIMIT, || after.ask()).await
        };
        let both =
            futures_util::future::join(watch.since(Instant::now(), LIMIT, || before.ask()), later).await;
        assert_eq!(both, (Ok(Some(old)), Ok(Some(new))));
    }
}
