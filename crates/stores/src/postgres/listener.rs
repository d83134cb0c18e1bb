//! Listens for wake-up notifications (`LISTEN`) on one connection for each store, which it opens with the
//! store's first heartbeat or wait for a wake-up.
//!
//! Nothing relies on it: a wake is a hint. It reconnects with a backoff, which starts again at the
//! shortest after a stable connection. After each reconnect it wakes all waiting hosts once, because it
//! may have missed notifications.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ephor_core::panics;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::waiting_hosts::{Wake, Wakers};

/// After this long without a notification the connection is probed.
const PROBE_AFTER: Duration = Duration::from_secs(30);
/// The limit for the server's answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How long the first heartbeat waits for the first attempt to connect.
const FIRST_WAIT: Duration = Duration::from_secs(2);
const MIN_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// A connection is stable if it lasts at least this long.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// The task that listens. It starts with its first use, and ends with its store.
pub(super) struct Listener {
    options: PgConnectOptions,
    channel: String,
    wakers: Arc<Wakers>,
    /// Whether the first attempt to connect has ended.
    tried: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Listener {
    pub(super) fn new(options: PgConnectOptions, channel: String, wakers: Arc<Wakers>) -> Self {
        Self { options, channel, wakers, tried: watch::Sender::new(false), task: Mutex::default() }
    }

    /// Starts the task, and waits a limited time for its first attempt to connect, so that the caller
    /// misses no later wake.
    #[expect(clippy::disallowed_methods, reason = "it waits for a database, in real time")]
    pub(super) async fn start(&self) {
        self.run();
        let mut tried = self.tried.subscribe();
        let _ = tokio::time::timeout(FIRST_WAIT, tried.wait_for(|tried| *tried)).await;
        // Later callers need not wait.
        self.tried.send_if_modified(|tried| !std::mem::replace(tried, true));
    }

    #[expect(clippy::disallowed_methods, reason = "it waits for a database, in real time")]
    fn run(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // The runtime that it ran on may have ended.
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let (options, channel) = (self.options.clone(), self.channel.clone());
        *task = Some(tokio::spawn(listen(options, channel, self.wakers.clone(), self.tried.clone())));
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
        }
    }
}

/// The pauses between attempts to connect.
struct Backoff {
    next: Duration,
}

impl Backoff {
    /// The pause after a connection that lasted for `listened`, which is zero if it failed. A connection
    /// that is closed again and again wakes all hosts each time, so the pauses must grow.
    fn after(&mut self, listened: Duration) -> Duration {
        let pause = if listened >= STABLE_AFTER { MIN_PAUSE } else { self.next };
        self.next = (pause * 2).min(MAX_PAUSE);
        pause
    }
}

async fn listen(options: PgConnectOptions, channel: String, wakers: Arc<Wakers>, tried: watch::Sender<bool>) {
    repeat(|| listen_once(options.clone(), &channel, &wakers, &tried), &tried).await;
}

/// Repeats attempts with pauses. Each returns how long it listened; a panic ends only its own attempt.
#[expect(clippy::disallowed_methods, reason = "it waits for a database, in real time")]
async fn repeat<F: Future<Output = Duration>>(attempt: impl Fn() -> F, tried: &watch::Sender<bool>) {
    let mut backoff = Backoff { next: MIN_PAUSE };
    loop {
        let began = Instant::now();
        let listened = panics::caught_async(attempt()).await.unwrap_or_else(|panicked| {
            tracing::error!(%panicked, "listening for wakes panicked; continuing with a new connection");
            began.elapsed()
        });
        tried.send_replace(true);
        tokio::time::sleep(backoff.after(listened)).await;
    }
}

/// Connects, and passes notifications on until the connection is lost. Returns how long it listened.
#[expect(clippy::disallowed_methods, reason = "it waits for a database, in real time")]
async fn listen_once(
    options: PgConnectOptions,
    channel: &str,
    wakers: &Wakers,
    tried: &watch::Sender<bool>,
) -> Duration {
    match tokio::time::timeout(ANSWER_LIMIT, connect(options, channel)).await {
        Ok(Ok(mut listener)) => {
            let since = Instant::now();
            wakers.notify_all();
            tried.send_replace(true);
            forward_notifications(&mut listener, wakers).await;
            tracing::debug!("the connection that listens for wakes is lost");
            return since.elapsed();
        }
        Ok(Err(error)) => tracing::debug!(%error, "cannot listen for wakes"),
        Err(_) => tracing::debug!("cannot listen for wakes: no answer"),
    }
    Duration::ZERO
}

async fn connect(options: PgConnectOptions, channel: &str) -> Result<PgListener, sqlx::Error> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    listener.listen(channel).await?;
    Ok(listener)
}

/// Passes notifications on until the connection is lost.
#[expect(clippy::disallowed_methods, reason = "it waits for a database, in real time")]
async fn forward_notifications(listener: &mut PgListener, wakers: &Wakers) {
    loop {
        match tokio::time::timeout(PROBE_AFTER, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => {
                if let Some(wake) = Wake::read(notification.payload()) {
                    wakers.notify(wake);
                }
            }
            Ok(Ok(None) | Err(_)) => return,
            Err(_) => {
                let asked = sqlx::raw_sql("SELECT 1").execute(&mut *listener);
                if !matches!(tokio::time::timeout(ANSWER_LIMIT, asked).await, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_connection_has_held() {
        let mut backoff = Backoff { next: MIN_PAUSE };
        let moment = Duration::from_millis(5);
        // Whether it could not be made or was closed at once is the same.
        for (listened, expected) in [(Duration::ZERO, 250), (moment, 500), (moment, 1_000), (moment, 2_000)] {
            assert_eq!(backoff.after(listened), Duration::from_millis(expected));
        }
        for _ in 0..10 {
            backoff.after(moment);
        }
        assert_eq!(backoff.after(moment), MAX_PAUSE);
        assert_eq!(backoff.after(STABLE_AFTER), MIN_PAUSE);
        assert_eq!(backoff.after(moment), MIN_PAUSE * 2);
    }

    #[tokio::test]
    async fn a_panic_ends_one_attempt_to_listen_and_no_more() {
        let (tried, attempts) = (watch::Sender::new(false), watch::Sender::new(0));
        let attempt = || async {
            attempts.send_modify(|attempts| *attempts += 1);
            assert!(*attempts.borrow() > 1, "the first attempt panics");
            Duration::ZERO
        };
        let mut seen = attempts.subscribe();
        tokio::select! {
            () = repeat(attempt, &tried) => {}
            second = seen.wait_for(|attempts| *attempts == 2) => drop(second.unwrap()),
        }
        assert!(*tried.borrow(), "the first heartbeat does not wait for what has failed");
    }
}
