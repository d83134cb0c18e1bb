//! Runs a host until the operating system asks the process to end (SIGINT or SIGTERM), then stops it
//! gracefully.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ephor_runtime::os::EndSignals;

use super::{EventProcessorHost, StartError};
use crate::stop_report::StopReport;

impl EventProcessorHost {
    /// Starts, runs until the process receives SIGINT (Ctrl-C) or SIGTERM (as from `docker stop`, Kubernetes or systemd),
    /// and stops gracefully with `within` for calls in flight. A second signal ends the waiting: calls in flight are
    /// then given up. The next signal after that, or after the stop is over, ends the process at once, with the exit status
    /// 128 plus its number: a call that blocks its thread cannot be given up, and keeps the runtime from ending. (On a
    /// runtime of one thread such a call keeps the first signal from being heard.) A signal while the host still starts
    /// ends the start, and the report is empty.
    ///
    /// While it runs, these two signals do not end the process by themselves. Let `within` be shorter than the time after
    /// which whoever sent the signal kills the process (10 s for `docker stop`, 30 s for Kubernetes).
    pub async fn run_until_signal(&self, within: Duration) -> Result<StopReport, StartError> {
        let mut signals = listen();
        // A program that runs a host again wants its signals for that one.
        EXIT_THREAD.fetch_add(1, Ordering::SeqCst);
        tokio::select! {
            biased;
            started = self.start() => started?,
            signal = signals.next() => {
                tracing::info!(signal = signal.name, "stopped before it had started");
                return Ok(StopReport::default());
            }
        }
        let signal = signals.next().await;
        let over_at_first_signal = exit_at_signal_after_stop();
        tracing::info!(signal = signal.name, ?within, "stopping; a second signal gives up calls in flight");
        let stop = async { self.stop(within).await.unwrap_or_default() };
        tokio::pin!(stop);
        tokio::select! {
            biased;
            report = &mut stop => {
                over_at_first_signal.store(true, Ordering::SeqCst);
                return Ok(report);
            }
            signal = signals.next() => tracing::warn!(signal = signal.name, "giving up calls in flight"),
        }
        // A second stop gives less time, and both return the same report.
        let (report, _) = tokio::join!(stop, self.stop(Duration::ZERO));
        Ok(report)
    }
}

/// The number of the exit thread that may end the process; the ones before it may not.
static EXIT_THREAD: AtomicU64 = AtomicU64::new(0);

/// Ends the process at the second signal from now on, or at the first if the returned flag is set by then: the stop was
/// over before another signal came. On a thread and a runtime of its own, because those of the caller may be blocked.
///
/// The flag is not set after a stop that heard the other signal, because the thread may see that one only now.
fn exit_at_signal_after_stop() -> Arc<AtomicBool> {
    let number = EXIT_THREAD.fetch_add(1, Ordering::SeqCst) + 1;
    let over_at_first_signal: Arc<AtomicBool> = Arc::default();
    let is_over = over_at_first_signal.clone();
    let mut signals = listen();
    let wait = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let Ok(runtime) = runtime else { return };
        let mut signal = runtime.block_on(signals.next());
        if !is_over.load(Ordering::SeqCst) {
            signal = runtime.block_on(signals.next());
        }
        if EXIT_THREAD.load(Ordering::SeqCst) == number {
            std::process::exit(signal.exit_status);
        }
    };
    let thread = std::thread::Builder::new().name("ephor-signals".into()).spawn(wait);
    if let Err(error) = thread {
        tracing::warn!(%error, "cannot start a thread that ends the process at a further signal");
    }
    over_at_first_signal
}

fn listen() -> EndSignals {
    EndSignals::listen(|name, error| tracing::warn!(%error, "cannot listen for {name}"))
}
