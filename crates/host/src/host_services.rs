//! The services that a running host gives to all of its tasks, pumps included: clock, hub, store,
//! options, reports and counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ephor_core::ids::HostId;
use ephor_core::rules::Rules;
use ephor_core::source::EventSource;
use ephor_core::store::View;
use ephor_core::time::Monotonic;

use crate::environment::Environment;
use crate::error_reports::Reporter;
use crate::hub_health::HubHealth;
use crate::options::{EventProcessorOptions, PartitionManagerOptions};
use crate::store_calls::StoreCalls;

pub(crate) struct HostServices {
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) source: Arc<dyn EventSource>,
    pub(crate) store: StoreCalls,
    pub(crate) me: HostId,
    pub(crate) options: EventProcessorOptions,
    pub(crate) manager: PartitionManagerOptions,
    pub(crate) rules: Rules,
    pub(crate) reporter: Reporter,
    pub(crate) hub_health: Arc<HubHealth>,
    /// The last view that was read for a lost partition, and its time; the inner `None` if the
    /// store did not answer.
    pub(crate) loss_view: tokio::sync::Mutex<Option<(Monotonic, Option<Arc<View>>)>>,
    pub(crate) counters: Counters,
}

/// The numbers since the start of the host.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    events: AtomicU64,
    failures: AtomicU64,
}

impl HostServices {
    pub(crate) fn now(&self) -> Monotonic {
        self.environment.now()
    }

    /// The time from which a deadline counts. The mutation counts from the arrival of the reply.
    pub(crate) fn counts_from(&self, sent: Monotonic) -> Monotonic {
        if self.rules.deadlines_count_from_the_request() { sent } else { self.now() }
    }

    pub(crate) fn count_events(&self, events: u64) {
        self.counters.events.fetch_add(events, Ordering::Relaxed);
    }

    pub(crate) fn count_failure(&self) {
        self.counters.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of events that were finished.
    pub(crate) fn events(&self) -> u64 {
        self.counters.events.load(Ordering::Relaxed)
    }

    /// The number of calls to processors that failed.
    pub(crate) fn failures(&self) -> u64 {
        self.counters.failures.load(Ordering::Relaxed)
    }
}
