//! Simulates one call over the network: delays or loses its request and its response.
//!
//! ```text
//!   caller ──► world task: ── there ──► apply ── back ──► caller
//!                │               │        │        │
//!              Slow        LostRequest  ErrorAfter LostResponse
//!                          ErrorBefore
//! ```
//!
//! A call in flight is a task of the world. A caller that crashed, was paused or gave up does not stop it: a
//! request that was sent arrives, late or not.

use std::future::pending;
use std::time::Duration;

use ephor_core::BoxError;
use tokio::sync::oneshot;

use crate::call_faults::FaultKind;
use crate::executor::{Handle, Machine};

/// The fate of one call, decided when it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallFate {
    pub(crate) request_delay: Duration,
    pub(crate) answer_delay: Duration,
    pub(crate) slow: bool,
    pub(crate) slow_answer: bool,
    pub(crate) fault: Option<FaultKind>,
}

/// Carries a call to the place where it is applied, and its answer back. Never returns if either is lost.
pub(crate) async fn transmit<T, E>(
    handle: &Handle,
    fate: CallFate,
    report: impl Fn(FaultKind) + Send + 'static,
    error: fn(BoxError) -> E,
    apply: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let network = handle.clone();
    handle.spawn_on(Machine::WORLD, async move {
        if fate.slow {
            report(FaultKind::Slow);
        }
        network.sleep(fate.request_delay).await;
        if let Some(fault) = fate.fault {
            report(fault);
        }
        let failure = || error("a fault that the simulation injected".into());
        let answer = match fate.fault {
            Some(FaultKind::LostRequest) => return,
            Some(FaultKind::ErrorBefore | FaultKind::Throttled) => Err(failure()),
            Some(FaultKind::LostResponse) => {
                drop(apply.await);
                return;
            }
            Some(FaultKind::ErrorAfter) => apply.await.and(Err(failure())),
            _ => apply.await,
        };
        if fate.slow_answer {
            report(FaultKind::SlowAnswer);
        }
        network.sleep(fate.answer_delay).await;
        // The caller has given up: nobody receives the answer.
        drop(sender.send(answer));
    });
    match receiver.await {
        Ok(answer) => answer,
        Err(_) => pending().await,
    }
}
