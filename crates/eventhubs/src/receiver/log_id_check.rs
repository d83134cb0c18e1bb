//! Handles the hub's answer to a check of its log id after each attach: the receiver starts, ends because the
//! hub was deleted and created again, or attaches again. `recreation_watch.rs` asks the hub.

use std::sync::Arc;

use tokio::time::Instant;

use super::{RemoteReceiver, State, placeholder};
use crate::failure_classes::{Failure, LogReplaced};
use crate::recreation_watch::LogAnswer;

impl RemoteReceiver {
    /// Handles the hub's answer: its current log id, or the reason why it is unknown.
    pub(super) fn on_checked(&mut self, answer: LogAnswer) -> Option<Failure> {
        let failure = match answer {
            Ok(is) if self.log.is_none() || is == self.log => {
                self.log = is;
                let checked = std::mem::replace(&mut self.state, placeholder());
                if let State::Checking { link, .. } = checked {
                    link.queue.start();
                    link.connection.refill(link.key);
                    self.state = State::Attached { link, since: Instant::now() };
                }
                return None;
            }
            Ok(is) => match (self.log.clone(), is) {
                (Some(was), Some(is)) => Failure::Replaced(Arc::new(LogReplaced { was, is })),
                _ => Failure::lost("the hub no longer reports the id of its log"),
            },
            Err(error) => Failure::lost(format!("the hub does not report the id of its log: {error}")),
        };
        match &failure {
            Failure::Replaced(replaced) => {
                tracing::warn!(partition = %self.partition, %replaced, "receiver ended");
                self.state = State::Ended(failure.clone());
            }
            _ => self.wait_after(&failure),
        }
        Some(failure)
    }
}
