//! The interface between a host and its pumps: arguments, requests, and the result.
//!
//! ```text
//!   host ── PumpArgs ──► pump        host ── Control ──► pump        pump ── PumpEnd ──► host
//! ```
//!
//! Host and pump know this module, and not each other.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::epoch::Epoch;
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::store::GroupOrigin;
use ephor_core::time::Monotonic;
use tokio::sync::watch;

use crate::context::PartitionContext;
use crate::host_services::HostServices;
use crate::processor::CloseReason;
use crate::pump_activity::PumpActivity;

/// Runs a pump. It hides the type of the processor.
pub(crate) type RunPump = Arc<dyn Fn(PumpArgs) -> BoxFuture<'static, PumpEnd> + Send + Sync>;

/// The arguments of a pump.
pub(crate) struct PumpArgs {
    pub(crate) services: Arc<HostServices>,
    pub(crate) context: PartitionContext,
    pub(crate) activity: Arc<PumpActivity>,
    pub(crate) control: watch::Receiver<Control>,
    pub(crate) origin: Option<GroupOrigin>,
    /// Nothing is delivered before this time, because the last owner may not know yet that it lost
    /// the lease.
    pub(crate) deliver_from: Monotonic,
}

/// The result of a pump, for the manager.
#[derive(Debug)]
pub(crate) struct PumpEnd {
    pub(crate) partition: PartitionId,
    pub(crate) epoch: Epoch,
    /// True if the processor was opened.
    pub(crate) opened: bool,
    /// True if everything finished was saved.
    pub(crate) checkpoint_saved: bool,
    /// True if a batch was given up half-way.
    pub(crate) given_up: bool,
    pub(crate) outcome: Outcome,
}

/// The outcome for the partition.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Transferred to another host, or released. `confirmed`: the store confirmed it.
    GivenAway { reason: CloseReason, to: Option<HostId>, confirmed: bool },
    /// Lost.
    Lost { reason: CloseReason },
    /// A receiver with a newer epoch took our place at the hub.
    Displaced { epoch: Option<Epoch>, by: Option<String> },
    /// Released, with a cooldown.
    Failed { reason: CloseReason, pause: Duration, confirmed: bool },
}

/// The requests of a host to one of its pumps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Control {
    pub(crate) paused: bool,
    pub(crate) stop: Option<Stop>,
}

/// A request to stop. A loss overrides a drain; neither is withdrawn.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    Drain(Drain),
    Lost(CloseReason),
}

/// Gives the partition away gracefully.
#[derive(Clone, Debug)]
pub(crate) struct Drain {
    /// The call in flight is given up at this time.
    pub(crate) until: Monotonic,
    pub(crate) disposition: Disposition,
}

/// How a partition is given away.
#[derive(Clone, Debug)]
pub(crate) enum Disposition {
    HandOver {
        to: HostId,
        duration: Duration,
    },
    Release {
        successor: Option<HostId>,
    },
    /// Released, with a successor that is being computed meanwhile.
    Undecided,
}
