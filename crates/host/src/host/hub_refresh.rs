//! The manager's copy of the hub's properties: its partitions and its log id, refreshed periodically,
//! because a hub may grow, or be deleted and created again.

use std::time::Duration;

use ephor_core::hub_tracker::HUB_REFRESH;
use ephor_core::ids::{LogId, PartitionId};
use ephor_core::source::HubProperties;
use ephor_core::time::Monotonic;

use super::running_host::RunningHost;
use crate::error::HostError;
use crate::hub_calls::within_limit;

/// The properties of the hub, with their time.
pub(super) struct HubAnswer {
    pub(super) hub: HubProperties,
    /// The time of the request. The properties are not older than that, but may have been long on
    /// their way.
    pub(super) asked: Monotonic,
}

/// The news in an answer of the hub.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HubNews {
    /// The hub did not answer the last request, and answers again.
    pub(super) is_back: bool,
    /// The hub was deleted and created again.
    pub(super) has_new_log: bool,
}

#[derive(Debug)]
pub(super) struct HubRefresh {
    partitions: Vec<PartitionId>,
    log: Option<LogId>,
    due_at: Monotonic,
    /// True if the hub did not answer the last request.
    is_away: bool,
}

impl HubRefresh {
    /// Begins with the answer that the start of the host got, if it got one.
    pub(super) fn new(answer: Option<HubAnswer>, now: Monotonic) -> Self {
        let mut refresh = Self { partitions: vec![], log: None, due_at: now, is_away: false };
        if let Some(answer) = answer {
            let is_empty = answer.hub.partitions.is_empty();
            refresh.answered(answer);
            if is_empty {
                refresh.due_at = now;
            }
        }
        refresh
    }

    /// The partitions, in order; none if the hub has not answered yet.
    pub(super) fn partitions(&self) -> &[PartitionId] {
        &self.partitions
    }

    pub(super) fn log(&self) -> Option<&LogId> {
        self.log.as_ref()
    }

    /// Makes the next request due, because the hub may have changed.
    pub(super) fn make_due(&mut self, now: Monotonic) {
        self.due_at = now;
    }

    /// True unless the hub is unreachable or its refresh is overdue by more than `tolerance`, which
    /// a slow store causes, too.
    pub(super) fn is_current(&self, now: Monotonic, tolerance: Duration) -> bool {
        !self.is_away && now <= self.due_at + tolerance
    }

    /// Asks the hub, if that is due. Returns the news, if it answered.
    pub(super) async fn refresh(&mut self, running: &RunningHost) -> Option<HubNews> {
        let asked = running.now();
        if asked < self.due_at {
            return None;
        }
        let (environment, limit) = (&*running.environment, running.manager.store_timeout);
        match within_limit(environment, limit, running.source.hub_properties()).await {
            Ok(hub) => {
                running.hub_health.reads(None, running.now());
                Some(self.answered(HubAnswer { hub, asked }))
            }
            // The pumps will report whether the hub is really unreachable.
            Err(error) => {
                self.failed(running.now() + running.manager.slow_scan);
                running.hub_health.failed(None, running.now(), &error);
                running.reporter.report_one_of_many(&HostError::Hub { error });
                None
            }
        }
    }

    fn answered(&mut self, HubAnswer { hub, asked }: HubAnswer) -> HubNews {
        self.due_at = asked + HUB_REFRESH;
        self.partitions = hub.partitions;
        self.partitions.sort_unstable();
        let is_back = std::mem::take(&mut self.is_away);
        let has_new_log = self.log != hub.log;
        self.log = hub.log;
        HubNews { is_back, has_new_log }
    }

    fn failed(&mut self, retry_at: Monotonic) {
        self.is_away = true;
        self.due_at = retry_at;
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_values::at;
    use super::*;

    const TOLERANCE: Duration = Duration::from_secs(5);

    fn answer(partitions: &[u32], log: &str, asked: u64) -> HubAnswer {
        let partitions = partitions.iter().copied().map(PartitionId).collect();
        HubAnswer { hub: HubProperties { partitions, log: Some(LogId::new(log)) }, asked: at(asked) }
    }

    #[test]
    fn a_hub_that_grows_is_known_in_order_and_is_no_new_log() {
        let mut hub = HubRefresh::new(Some(answer(&[0, 1], "x", 0)), at(1));
        assert_eq!(hub.due_at, at(30), "it counts from the request");
        assert_eq!(hub.answered(answer(&[2, 0, 1], "x", 30)), HubNews::default());
        assert_eq!(hub.partitions(), [0, 1, 2].map(PartitionId));
    }

    #[test]
    fn a_hub_that_was_created_again_is_news() {
        let mut hub = HubRefresh::new(Some(answer(&[0], "x", 0)), at(0));
        assert!(hub.answered(answer(&[0], "y", 30)).has_new_log);
        assert_eq!(hub.log(), Some(&LogId::new("y")));
        assert!(!hub.answered(answer(&[0], "y", 60)).has_new_log);
    }

    #[test]
    fn an_outage_of_the_hub_ends_once() {
        let mut hub = HubRefresh::new(Some(answer(&[0], "x", 0)), at(0));
        hub.failed(at(35));
        assert_eq!((hub.due_at, hub.is_current(at(31), TOLERANCE)), (at(35), false));
        assert_eq!(hub.partitions(), [PartitionId(0)], "it is kept meanwhile");
        assert!(hub.answered(answer(&[0], "x", 35)).is_back);
        assert!(hub.is_current(at(36), TOLERANCE));
        assert!(!hub.answered(answer(&[0], "x", 65)).is_back);
    }

    #[test]
    fn knowledge_is_no_longer_current_when_its_refresh_is_overdue() {
        let hub = HubRefresh::new(Some(answer(&[0], "x", 0)), at(0));
        assert!(hub.is_current(at(35), TOLERANCE));
        assert!(!hub.is_current(at(36), TOLERANCE));
    }

    #[test]
    fn a_hub_that_did_not_answer_or_has_no_partitions_is_asked_at_once() {
        assert_eq!(HubRefresh::new(None, at(7)).due_at, at(7));
        assert_eq!(HubRefresh::new(Some(answer(&[], "x", 0)), at(7)).due_at, at(7));
    }
}
