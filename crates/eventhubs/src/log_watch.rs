//! Detects, after a reconnect, that a hub was deleted and created again, by the id of its log.
//!
//! A recreated hub has the same name and another log. A receiver that reattaches would continue in the new
//! log at a position of the old one, and skip the events before it. So it asks for the log id *after* it was
//! attached, and before it returns any event.
//!
//! Receivers that reattach together share one request and its result, be it a log id or a failure: an
//! unresponsive hub delays all of them no longer than one. Each of them polls the shared request, so that one
//! that is not polled delays no other. A request has a time limit; after a failure a receiver reattaches.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::ids::LogId;
use futures_util::FutureExt;
use futures_util::future::{Shared as SharedFuture, WeakShared};
use tokio::time::{Instant, timeout_at};

use crate::client::Shared;

/// The hub's log id, or the reason why it is unknown.
pub(crate) type Told = Result<Option<LogId>, Arc<str>>;

/// An answer, and the time of its request.
#[derive(Clone)]
struct Known {
    log: LogId,
    asked: Instant,
}

/// A request that some receivers wait for. Only they keep it alive, because it keeps the connections open.
struct Question {
    asked: Instant,
    answer: WeakShared<BoxFuture<'static, Told>>,
}

/// The last known log id, and the request that is under way.
#[derive(Default)]
pub(crate) struct LogWatch {
    known: Mutex<Option<Known>>,
    question: Mutex<Option<Question>>,
}

impl LogWatch {
    /// The log id that the hub last reported; none if it was never asked.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.known().map(|known| known.log)
    }

    /// Records the log id that the hub reported to a request of this time.
    pub(crate) fn tell(&self, log: LogId, asked: Instant) {
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
        ask: impl Fn() -> BoxFuture<'static, Told>,
    ) -> Told {
        loop {
            if let Some(known) = self.known().filter(|known| known.asked >= time) {
                return Ok(Some(known.log));
            }
            let (asked, answer) = self.question(time, limit, &ask);
            let told = answer.await;
            if told.is_err() || asked >= time {
                return told;
            }
        }
    }

    /// The request that is under way or is recent enough for this time; a new one if there is none.
    fn question(
        &self,
        time: Instant,
        limit: Duration,
        ask: impl Fn() -> BoxFuture<'static, Told>,
    ) -> (Instant, SharedFuture<BoxFuture<'static, Told>>) {
        let now = Instant::now();
        let mut question = self.question.lock().unwrap_or_else(PoisonError::into_inner);
        let is_under_way = |asked: Instant, answer: &SharedFuture<_>| {
            answer.peek().is_none() && now.saturating_duration_since(asked) < limit
        };
        if let Some(Question { asked, answer }) = &*question
            && let Some(answer) = answer.upgrade()
            && (*asked >= time || is_under_way(*asked, &answer))
        {
            return (*asked, answer);
        }
        let asking = ask();
        let bounded: BoxFuture<'static, Told> = Box::pin(async move {
            let unanswered = |_| Err(format!("it did not answer within {limit:?}").into());
            timeout_at(now + limit, asking).await.unwrap_or_else(unanswered)
        });
        let answer = bounded.shared();
        *question = answer.downgrade().map(|answer| Question { asked: now, answer });
        (now, answer)
    }
}

/// The log id that the hub has at this time or later.
pub(crate) async fn log_since(shared: Arc<Shared>, time: Instant) -> Told {
    let ask = || -> BoxFuture<'static, Told> {
        let shared = shared.clone();
        Box::pin(async move {
            let properties = shared.hub_properties().await;
            properties.map(|properties| properties.log).map_err(|error| error.to_string().into())
        })
    };
    shared.log_watch.since(time, shared.options.answer_time, ask).await
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
    struct Slow(Duration, Told, Arc<AtomicUsize>);

    impl Slow {
        fn new(after: Duration, told: Told) -> Self {
            Self(after, told, Arc::default())
        }

        fn ask(&self) -> BoxFuture<'static, Told> {
            let (after, told, asked) = (self.0, self.1.clone(), self.2.clone());
            Box::pin(async move {
                asked.fetch_add(1, Ordering::Relaxed);
                sleep(after).await;
                told
            })
        }

        fn asked(&self) -> usize {
            self.2.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn receivers_that_come_back_together_share_a_failure() {
        let (watch, busy) =
            (LogWatch::default(), Slow::new(Duration::from_secs(3), Err("server-busy".into())));
        let began = Instant::now();
        let waits = (0..100).map(|number| {
            let (watch, busy) = (&watch, &busy);
            async move {
                // The receivers do not attach at the same moment.
                sleep(Duration::from_millis(10 * number)).await;
                watch.since(Instant::now(), LIMIT, || busy.ask()).await
            }
        });
        for told in join_all(waits).await {
            assert_eq!(told, Err("server-busy".into()));
        }
        let took = began.elapsed();
        assert!(took < Duration::from_secs(7), "{took:?} and {} questions for 100 receivers", busy.asked());
        // A later receiver asks again.
        let before = busy.asked();
        watch.since(Instant::now(), LIMIT, || busy.ask()).await.unwrap_err();
        assert_eq!(busy.asked(), before + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_never_answers_fails_all_within_the_limit() {
        let watch = LogWatch::default();
        let began = Instant::now();
        let waits = (0..10).map(|_| watch.since(began, LIMIT, || Box::pin(pending())));
        let told = tokio::time::timeout(LIMIT * 2, join_all(waits)).await.expect("there is no limit");
        assert!(told.iter().all(Result::is_err), "{told:?}");
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_that_nobody_polls_holds_up_no_other() {
        let log = LogId::new("one");
        let (watch, slow) = (LogWatch::default(), Slow::new(Duration::from_secs(1), Ok(Some(log.clone()))));
        let now = Instant::now();
        let mut idle = Box::pin(watch.since(now, LIMIT, || slow.ask()));
        assert!(idle.as_mut().now_or_never().is_none());
        let told = tokio::time::timeout(LIMIT * 2, watch.since(now, LIMIT, || slow.ask())).await;
        assert_eq!(told.expect("it waits for one that nobody polls"), Ok(Some(log.clone())));
        assert_eq!(idle.await, Ok(Some(log)));
        assert_eq!(slow.asked(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_an_older_question_does_not_count() {
        let (old, new) = (LogId::new("old"), LogId::new("new"));
        let watch = LogWatch::default();
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
