//! Simulates one machine's connection to a hub over an unreliable network.
//!
//! Requests for properties and for receivers travel as tasks of the world, like those to the store. Events,
//! and the notice that a receiver was disconnected, take their time to arrive and wait on this side until
//! they are fetched: dropping a receive loses nothing. A link that breaks is gone for good, and the hub
//! notices a little later than its user; in some runs the receiver then attaches again by itself.

mod reattaching;
mod receiver;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use ephor_core::BoxFuture;
use ephor_core::epoch::Epoch;
use ephor_core::ids::{HubName, Namespace, PartitionId};
use ephor_core::source::{
    EventSource, HubProperties, OpenError, OpenRequest, PartitionProperties, Receiver, SourceCapabilities,
    SourceError,
};
use fastrand::Rng;

use crate::call_faults::{FaultKind, FaultObserver, Latency, happens};
use crate::executor::Handle;
use crate::network::{CallFate, transmit};
use reattaching::ReattachingReceiver;
use receiver::FaultyReceiver;

/// The calls to a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named after the methods")]
pub enum SourceCall {
    HubProperties,
    PartitionProperties,
    Open,
    Receive,
    Close,
}

/// The faults of the network between one machine and the hub. Numbers without a unit are probabilities, per
/// call; of a receive, per batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceFaults {
    /// The duration of one way.
    pub latency: Latency,
    /// A way takes [`SourceFaults::slow_latency`] instead.
    pub slow: f64,
    /// The duration of a slow way.
    pub slow_latency: Latency,
    /// A request for properties or for a receiver is answered with an error.
    pub unavailable: f64,
    /// A link breaks while a batch is awaited.
    pub broken_link: f64,
    /// True if nothing from the hub arrives: no answers, no events, no notice that the link is gone.
    pub deaf: bool,
}

impl Default for SourceFaults {
    /// A good network.
    fn default() -> Self {
        Self {
            latency: Latency::milliseconds(1, 5),
            slow: 0.0,
            slow_latency: Latency::milliseconds(1_000, 20_000),
            unavailable: 0.0,
            broken_link: 0.0,
            deaf: false,
        }
    }
}

impl SourceFaults {
    /// Cut off: links break, and nothing new is answered.
    pub fn cut_off() -> Self {
        Self { unavailable: 1.0, broken_link: 1.0, ..Self::default() }
    }

    /// Deaf: links stay open, and nothing arrives.
    pub fn deaf() -> Self {
        Self { deaf: true, ..Self::default() }
    }

    fn fate(&self, random: &mut Rng, call: SourceCall) -> CallFate {
        let slow = happens(random, self.slow);
        let request_delay = if slow { self.slow_latency } else { self.latency }.draw(random);
        let answer_delay = self.latency.draw(random);
        let (kind, probability) = match call {
            SourceCall::Receive => (FaultKind::BrokenLink, self.broken_link),
            SourceCall::Close => (FaultKind::LostRequest, 0.0),
            _ if self.deaf => (FaultKind::LostResponse, 1.0),
            _ => (FaultKind::ErrorBefore, self.unavailable),
        };
        let fault = happens(random, probability).then_some(kind);
        CallFate { request_delay, answer_delay, slow, slow_answer: false, fault }
    }
}

/// The state that a source and its receivers share.
struct Network {
    handle: Handle,
    faults: Arc<Mutex<SourceFaults>>,
    observer: FaultObserver<SourceCall>,
    random: Mutex<Rng>,
    on_message: MessageObserver,
}

impl Network {
    fn displaced(&self, partition: PartitionId, by: Option<Epoch>) {
        if let Some(epoch) = by {
            (self.on_message)(HubMessage::Displaced(partition, epoch));
        }
    }

    fn is_deaf(&self) -> bool {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).deaf
    }

    fn fate(&self, call: SourceCall) -> CallFate {
        let faults = *self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.fate(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner), call)
    }

    async fn transmit<T, E>(
        &self,
        call: SourceCall,
        partition: Option<PartitionId>,
        apply: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<SourceError> + Send + 'static,
    {
        let observer = self.observer.clone();
        let report = move |fault| observer(fault, call, partition);
        let error = |cause| E::from(SourceError::Unavailable(cause));
        transmit(&self.handle, self.fate(call), report, error, apply).await
    }
}

/// One machine's connection to a hub.
#[derive(Clone)]
pub struct FaultySource {
    inner: Arc<dyn EventSource>,
    network: Arc<Network>,
    /// True if its receivers attach again by themselves.
    reattaches: bool,
}

/// A message between a machine and the hub, at the moment when the machine sends or receives it.
#[derive(Clone, Copy, Debug)]
pub enum HubMessage<'a> {
    /// The machine opens a receiver.
    Opens(&'a OpenRequest),
    /// The hub reports another reader of this partition, in this epoch.
    Displaced(PartitionId, Epoch),
}

/// Called with every such message.
type MessageObserver = Arc<dyn Fn(HubMessage<'_>) + Send + Sync>;

impl FaultySource {
    /// A connection to `inner` with these faults, which may change at any time.
    pub fn new(handle: &Handle, inner: Arc<dyn EventSource>, faults: Arc<Mutex<SourceFaults>>) -> Self {
        Self::observed(handle, inner, faults, Arc::new(|_, _, _| {}), Arc::new(|_| {}))
    }

    /// The same; calls `observer` with every fault, and `on_message` with every message.
    pub fn observed(
        handle: &Handle,
        inner: Arc<dyn EventSource>,
        faults: Arc<Mutex<SourceFaults>>,
        observer: FaultObserver<SourceCall>,
        on_message: MessageObserver,
    ) -> Self {
        let random = Mutex::new(handle.fork_random());
        let network = Network { handle: handle.clone(), faults, observer, random, on_message };
        Self { inner, network: Arc::new(network), reattaches: false }
    }

    /// The same, with receivers that attach again by themselves, or without.
    pub fn with_reattaching(self, reattaches: bool) -> Self {
        Self { reattaches, ..self }
    }

    /// Opens a receiver that has ended when its link breaks.
    async fn open_once(&self, request: OpenRequest) -> Result<Box<dyn Receiver>, OpenError> {
        (self.network.on_message)(HubMessage::Opens(&request));
        let (inner, network, partition) = (self.inner.clone(), self.network.clone(), request.partition);
        let prefetch = request.prefetch_events;
        let apply = async move {
            let receiver = inner.open(request).await?;
            Ok(Box::new(FaultyReceiver::new(network, partition, prefetch, receiver)) as Box<dyn Receiver>)
        };
        let opened = self.network.transmit(SourceCall::Open, Some(partition), apply).await;
        if let Err(OpenError::Refused { epoch, .. }) = &opened {
            self.network.displaced(partition, *epoch);
        }
        opened
    }
}

impl std::fmt::Debug for FaultySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultySource({}/{})", self.namespace(), self.hub())
    }
}

impl EventSource for FaultySource {
    fn namespace(&self) -> &Namespace {
        self.inner.namespace()
    }

    fn hub(&self) -> &HubName {
        self.inner.hub()
    }

    fn capabilities(&self) -> SourceCapabilities {
        self.inner.capabilities()
    }

    fn hub_properties(&self) -> BoxFuture<'_, Result<HubProperties, SourceError>> {
        let inner = self.inner.clone();
        let apply = async move { inner.hub_properties().await };
        Box::pin(self.network.transmit(SourceCall::HubProperties, None, apply))
    }

    fn partition_properties(
        &self,
        partition: PartitionId,
    ) -> BoxFuture<'_, Result<PartitionProperties, SourceError>> {
        let inner = self.inner.clone();
        let apply = async move { inner.partition_properties(partition).await };
        Box::pin(self.network.transmit(SourceCall::PartitionProperties, Some(partition), apply))
    }

    fn open(&self, request: OpenRequest) -> BoxFuture<'_, Result<Box<dyn Receiver>, OpenError>> {
        // A receiver without an epoch only probes, and without fencing its host has to confirm the lease first.
        if !self.reattaches || request.epoch.is_none() || !self.capabilities().fences_readers {
            return Box::pin(self.open_once(request));
        }
        let source = self.clone();
        Box::pin(async move {
            let receiver = ReattachingReceiver::open(source, request).await?;
            Ok(Box::new(receiver) as Box<dyn Receiver>)
        })
    }
}
