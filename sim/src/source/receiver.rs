//! A simulated receiver whose events arrive after a network delay.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::event::Event;
use ephor_core::ids::PartitionId;
use ephor_core::source::{LastEnqueued, ReceiveError, Receiver, SourceError};
use ephor_core::time::Monotonic;
use futures_util::FutureExt;

use super::{Network, SourceCall};
use crate::call_faults::FaultKind;
use crate::executor::Machine;

/// The interval at which a deaf receiver checks for arrivals.
const DEAF_CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct FaultyReceiver {
    network: Arc<Network>,
    partition: PartitionId,
    /// `None` once the link broke.
    inner: Option<Box<dyn Receiver>>,
    /// At most this many events are prefetched.
    prefetch: usize,
    /// The arrival of the events that were fetched from the hub. It is decided once: dropping a receive and
    /// starting another changes nothing.
    arrival: Option<Arrival>,
    arriving: Vec<Event>,
    ending: Option<ReceiveError>,
}

/// The time of an arrival, unless the link breaks before.
#[derive(Clone, Copy)]
struct Arrival {
    due: Monotonic,
    breaks: bool,
}

impl FaultyReceiver {
    pub(super) fn new(
        network: Arc<Network>,
        partition: PartitionId,
        prefetch: usize,
        inner: Box<dyn Receiver>,
    ) -> Self {
        let (arrival, arriving, ending) = (None, Vec::new(), None);
        Self { network, partition, prefetch, inner: Some(inner), arrival, arriving, ending }
    }

    async fn next(&mut self, into: &mut Vec<Event>, max: usize) -> Result<(), ReceiveError> {
        let Some(inner) = &mut self.inner else { return Err(broken()) };
        let network = self.network.clone();
        let report = |fault| (network.observer)(fault, SourceCall::Receive, Some(self.partition));
        let arrival = match self.arrival {
            Some(arrival) => arrival,
            None => {
                // Prefetched events stay first, even if the hub has removed them since.
                let fetched = self.arriving.len();
                let room = self.prefetch.max(max).saturating_sub(fetched).max(1);
                let fetch = inner.receive(&mut self.arriving, room);
                let fetch = if fetched == 0 { Some(fetch.await) } else { fetch.now_or_never() };
                self.ending = fetch.and_then(Result::err);
                let fate = network.fate(SourceCall::Receive);
                if fate.slow {
                    report(FaultKind::Slow);
                }
                let due = network.handle.now() + fate.request_delay;
                let breaks = fate.fault == Some(FaultKind::BrokenLink);
                *self.arrival.insert(Arrival { due, breaks })
            }
        };
        network.handle.sleep_until(arrival.due).await;
        if network.is_deaf() {
            report(FaultKind::Deaf);
            while network.is_deaf() {
                network.handle.sleep(DEAF_CHECK_INTERVAL).await;
            }
        }
        if arrival.breaks {
            report(FaultKind::BrokenLink);
            self.drop_link();
            return Err(broken());
        }
        let here = max.min(self.arriving.len());
        into.extend(self.arriving.drain(..here));
        if here == 0 || (self.arriving.len() < max && self.ending.is_none()) {
            self.arrival = None;
        }
        let ending = if here == 0 { self.ending.take() } else { None };
        if let Some(ReceiveError::Disconnected { epoch, .. }) = &ending {
            network.displaced(self.partition, *epoch);
        }
        ending.map_or(Ok(()), Err)
    }

    /// Drops the link; the hub notices a little later.
    fn drop_link(&mut self) {
        if let Some(inner) = self.inner.take() {
            let (handle, fate) = (self.network.handle.clone(), self.network.fate(SourceCall::Close));
            self.network.handle.spawn_on(Machine::WORLD, async move {
                handle.sleep(fate.request_delay).await;
                drop(inner);
            });
        }
    }
}

impl Receiver for FaultyReceiver {
    fn receive<'a>(
        &'a mut self,
        into: &'a mut Vec<Event>,
        max: usize,
    ) -> BoxFuture<'a, Result<(), ReceiveError>> {
        Box::pin(self.next(into, max))
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
            self.network.transmit(SourceCall::Close, Some(self.partition), apply).await.ok();
        })
    }
}

impl Drop for FaultyReceiver {
    fn drop(&mut self) {
        self.drop_link();
    }
}

fn broken() -> ReceiveError {
    SourceError::Unavailable("the simulated link broke".into()).into()
}
