//! A receiver whose events take their time to arrive.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::event::Event;
use ephor_core::ids::PartitionId;
use ephor_core::source::{LastEnqueued, ReceiveError, Receiver, SourceError};
use ephor_core::time::Monotonic;
use futures_util::FutureExt;

use super::{Network, SourceCall};
use crate::executor::Machine;
use crate::faults::FaultKind;

/// The interval at which a deaf receiver checks for arrivals.
const DEAF_STEP: Duration = Duration::from_secs(1);

pub(super) struct SlowReceiver {
    network: Arc<Network>,
    partition: PartitionId,
    /// `None` once the link broke.
    inner: Option<Box<dyn Receiver>>,
    /// At most this many events are prefetched.
    prefetch: usize,
    /// The arrival of the events that were fetched from the hub. It is decided once: dropping a receive and
    /// starting another changes nothing.
    under_way: Option<UnderWay>,
    arriving: Vec<Event>,
    ending: Option<ReceiveError>,
}

/// The time of an arrival, unless the link breaks before.
#[derive(Clone, Copy)]
struct UnderWay {
    due: Monotonic,
    breaks: bool,
}

impl SlowReceiver {
    pub(super) fn new(
        network: Arc<Network>,
        partition: PartitionId,
        prefetch: usize,
        inner: Box<dyn Receiver>,
    ) -> Self {
        let (under_way, arriving, ending) = (None, Vec::new(), None);
        Self { network, partition, prefetch, inner: Some(inner), under_way, arriving, ending }
    }

    async fn next(&mut self, into: &mut Vec<Event>, most: usize) -> Result<(), ReceiveError> {
        let Some(inner) = &mut self.inner else { return Err(broken()) };
        let network = self.network.clone();
        let report = |fault| (network.observer)(fault, SourceCall::Receive, Some(self.partition));
        let under_way = match self.under_way {
            Some(under_way) => under_way,
            None => {
                // Prefetched events stay first, even if the hub has removed them since.
                let fetched = self.arriving.len();
                let room = self.prefetch.max(most).saturating_sub(fetched).max(1);
                let fetch = inner.receive(&mut self.arriving, room);
                let fetch = if fetched == 0 { Some(fetch.await) } else { fetch.now_or_never() };
                self.ending = fetch.and_then(Result::err);
                let journey = network.journey(SourceCall::Receive);
                if journey.slow {
                    report(FaultKind::Slow);
                }
                let due = network.handle.now() + journey.there;
                let breaks = journey.fault == Some(FaultKind::BrokenLink);
                *self.under_way.insert(UnderWay { due, breaks })
            }
        };
        network.handle.sleep_until(under_way.due).await;
        if network.is_deaf() {
            report(FaultKind::Deaf);
            while network.is_deaf() {
                network.handle.sleep(DEAF_STEP).await;
            }
        }
        if under_way.breaks {
            report(FaultKind::BrokenLink);
            self.hang_up();
            return Err(broken());
        }
        let here = most.min(self.arriving.len());
        into.extend(self.arriving.drain(..here));
        if here == 0 || (self.arriving.len() < most && self.ending.is_none()) {
            self.under_way = None;
        }
        let ending = if here == 0 { self.ending.take() } else { None };
        if let Some(ReceiveError::Disconnected { epoch, .. }) = &ending {
            network.displaced(self.partition, *epoch);
        }
        ending.map_or(Ok(()), Err)
    }

    /// Drops the link; the hub notices a little later.
    fn hang_up(&mut self) {
        if let Some(inner) = self.inner.take() {
            let (handle, journey) = (self.network.handle.clone(), self.network.journey(SourceCall::Close));
            self.network.handle.spawn_on(Machine::WORLD, async move {
                handle.sleep(journey.there).await;
                drop(inner);
            });
        }
    }
}

impl Receiver for SlowReceiver {
    fn receive<'a>(
        &'a mut self,
        into: &'a mut Vec<Event>,
        most: usize,
    ) -> BoxFuture<'a, Result<(), ReceiveError>> {
        Box::pin(self.next(into, most))
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.inner.as_ref()?.last_enqueued()
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Some(inner) = self.inner.take() else { return };
            let apply = async move {
                inner.close().await;
                Ok::<(), SourceError>(())
            };
            // The link is closed, whatever the answer.
            self.network.carry(SourceCall::Close, Some(self.partition), apply).await.ok();
        })
    }
}

impl Drop for SlowReceiver {
    fn drop(&mut self) {
        self.hang_up();
    }
}

fn broken() -> ReceiveError {
    SourceError::Unavailable("the simulated link broke".into()).into()
}
