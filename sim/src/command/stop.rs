//! A flag that Ctrl-C or SIGTERM sets: `play_seeds.rs` then finishes the seeds in progress, and the progress
//! file keeps the rest for the next run. A second signal ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that is set when a stop is requested. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens for Ctrl-C and SIGTERM from now on. The second one ends the process at once.
    pub(crate) fn listen() -> Self {
        let stop = Self::default();
        let flag = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        match runtime {
            Ok(runtime) => drop(std::thread::spawn(move || {
                runtime.block_on(async {
                    next_signal().await;
                    flag.request();
                    next_signal().await;
                });
                std::process::exit(i32::from(super::EXIT_STOPPED));
            })),
            Err(error) => println!("Ctrl-C ends at once, without a summary: {error}"),
        }
        stop
    }

    /// Requests a stop.
    pub(crate) fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True if a stop was requested.
    pub(crate) fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Waits for the next signal. Waits forever if signals cannot be received.
async fn next_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let signals =
            signal(SignalKind::interrupt()).and_then(|int| Ok((int, signal(SignalKind::terminate())?)));
        match signals {
            Ok((mut interrupt, mut terminate)) => {
                futures_util::future::select(Box::pin(interrupt.recv()), Box::pin(terminate.recv())).await;
            }
            Err(_) => std::future::pending().await,
        }
    }
    #[cfg(not(unix))]
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
