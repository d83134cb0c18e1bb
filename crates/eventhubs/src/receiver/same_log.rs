//! Checks that a hub still has the log that a reattached receiver was opened in.

use std::sync::Arc;

use tokio::time::Instant;

use super::{HubReceiver, State, waiting_for_nothing};
use crate::failure::{Failure, LogReplaced};
use crate::log_watch::Told;

impl HubReceiver {
    /// Handles the hub's answer: its current log id, or the reason why it is unknown.
    pub(super) fn on_checked(&mut self, told: Told) -> Option<Failure> {
        let failure = match told {
            Ok(is) if is == self.log => {
                let checked = std::mem::replace(&mut self.state, waiting_for_nothing());
                if let State::Checking { link, .. } = checked {
                    self.state = State::Attached { link, since: Instant::now() };
                }
                return None;
            }
            Ok(is) => match (self.log.clone(), is) {
                (Some(was), Some(is)) => Failure::Replaced(Arc::new(LogReplaced { was, is })),
                _ => Failure::lost("the hub does not say any more which log it has"),
            },
            Err(error) => Failure::lost(format!("the hub does not say which log it has: {error}")),
        };
        match &failure {
            Failure::Replaced(replaced) => {
                tracing::warn!(partition = %self.partition, %replaced, "a receiver ends");
                self.state = State::Ended(failure.clone());
            }
            _ => self.wait_after(&failure),
        }
        Some(failure)
    }
}
