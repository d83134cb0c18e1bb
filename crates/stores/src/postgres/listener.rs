//! One connection of the process that listens for wakes.
//!
//! Nothing relies on it. It reconnects with growing pauses, which begin anew once a connection has held; each time it is up again everybody who waits is
//! woken once, for what may have been missed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ephor_core::panics;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::bells::{Bells, Wake};

/// If nothing is heard for this long, the connection is asked whether it is still there.
const QUIET: Duration = Duration::from_secs(30);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the first heartbeat waits for it.
const FIRST_WAIT: Duration = Duration::from_secs(2);
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A connection that is lost sooner than this after it was made has not held.
const HELD: Duration = Duration::from_secs(60);

/// Starts when it is first needed, and ends with its store.
pub(super) struct Listener {
    options: PgConnectOptions,
    channel: String,
    bells: Arc<Bells>,
    /// Whether the first attempt to connect is over.
    tried: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Listener {
    pub(super) fn new(options: PgConnectOptions, channel: String, bells: Arc<Bells>) -> Self {
        Self { options, channel, bells, tried: watch::Sender::new(false), task: Mutex::default() }
    }

    /// Waits for the first attempt to connect, though not for long, so that who asks for wakes misses none
    /// from then on.
    #[expect(clippy::disallowed_methods, reason = "it waits for a database, in real time")]
    pub(super) async fn start(&self) {
        self.run();
        let mut tried = self.tried.subscribe();
        let _ = tokio::time::timeout(FIRST_WAIT, tried.wait_for(|tried| *tried)).await;
        // Whoever comes now need not wait again.
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
        *task = Some(tokio::spawn(listen(options, channel, self.bells.clone(), self.tried.clone())));
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

/// How long to wait until the next attempt.
struct Pauses {
    next: Duration,
}

impl Pauses {
    /// After a connection that was there for so long; for no time at all if it could not be made. One that is
    /// closed again and again wakes everybody each time, and must not do so for ever at the shortest pace.
    fn after(&mut self, listened: Duration) -> Duration {
        let pause = if listened >= HELD { SHORTEST_PAUSE } else { self.next };
        self.next = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

#[expect(clippy::disallowed_methods, reason = "it waits for a database, in real time")]
async fn listen(options: PgConnectOptions, channel: String, bells: Arc<Bells>, tried: watch::Sender<bool>) {
    let mut pauses = Pauses { next: SHORTEST_PAUSE };
    loop {
        let mut listened = Duration::ZERO;
        match tokio::time::timeout(PATIENCE, connect(options.clone(), &channel)).await {
            Ok(Ok(mut listener)) => {
                let since = Instant::now();
                bells.ring_all();
                tried.send_replace(true);
                if let Err(panicked) = panics::caught_async(hear(&mut listener, &bells)).await {
                    tracing::error!(%panicked, "listening for wakes panicked, and goes on with a new connection");
                }
                listened = since.elapsed();
                tracing::debug!("the connection that listens for wakes is lost");
            }
            Ok(Err(error)) => tracing::debug!(%error, "cannot listen for wakes"),
            Err(_) => tracing::debug!("cannot listen for wakes: no answer"),
        }
        tried.send_replace(true);
        tokio::time::sleep(pauses.after(listened)).await;
    }
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

/// Returns when the connection is lost.
#[expect(clippy::disallowed_methods, reason = "it waits for a database, in real time")]
async fn hear(listener: &mut PgListener, bells: &Bells) {
    loop {
        match tokio::time::timeout(QUIET, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => {
                if let Some(wake) = Wake::read(notification.payload()) {
                    bells.ring(wake);
                }
            }
            Ok(Ok(None) | Err(_)) => return,
            Err(_) => {
                let asked = sqlx::raw_sql("SELECT 1").execute(&mut *listener);
                if !matches!(tokio::time::timeout(PATIENCE, asked).await, Ok(Ok(_))) {
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
        let mut pauses = Pauses { next: SHORTEST_PAUSE };
        let moment = Duration::from_millis(5);
        // Whether it could not be made or was closed at once is the same.
        for (listened, expected) in [(Duration::ZERO, 250), (moment, 500), (moment, 1_000), (moment, 2_000)] {
            assert_eq!(pauses.after(listened), Duration::from_millis(expected));
        }
        for _ in 0..10 {
            pauses.after(moment);
        }
        assert_eq!(pauses.after(moment), LONGEST_PAUSE);
        assert_eq!(pauses.after(HELD), SHORTEST_PAUSE);
        assert_eq!(pauses.after(moment), SHORTEST_PAUSE * 2);
    }
}
