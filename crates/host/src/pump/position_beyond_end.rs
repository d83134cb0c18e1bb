//! Reads at a position that may lie beyond the end of the log, until this is proved or disproved.
//!
//! `core/resume/end_of_log_proof.rs` defines the proof.

use ephor_core::position::StartPosition;
use ephor_core::resume;
use ephor_core::resume::end_of_log_proof::{CHECK_INTERVAL, Evidence, Finding};
use ephor_core::source::PartitionProperties;
use ephor_core::time::Monotonic;

use super::{Ending, Pump};
use crate::processor::EventProcessor;

/// A position that may not exist.
pub(super) struct Doubt {
    evidence: Evidence,
    check_at: Monotonic,
}

impl Doubt {
    fn of(start: &StartPosition) -> Self {
        Self { evidence: Evidence::of(start), check_at: Monotonic::NEVER }
    }

    /// The time of the next check of the partition's properties.
    pub(super) fn check_at(&self) -> Monotonic {
        self.check_at
    }
}

impl<P: EventProcessor> Pump<P> {
    /// Starts to doubt a position that the partition's properties do not reach. Earlier evidence
    /// about it is kept.
    pub(super) fn doubt_if_beyond_the_end(
        &mut self,
        start: &StartPosition,
        properties: &PartitionProperties,
    ) {
        let known = self.doubt.take().filter(|doubt| doubt.evidence.start() == start);
        if resume::beyond_the_end(start, properties).is_some() {
            self.doubt = Some(known.unwrap_or_else(|| Doubt::of(start)));
        }
    }

    /// Notes that a receiver is open at the position: from now on, checks whether the log reaches
    /// it.
    pub(super) fn doubt_from_now_on(&mut self) {
        let now = self.now();
        if let Some(doubt) = &mut self.doubt {
            doubt.evidence.opened();
            doubt.check_at = now + CHECK_INTERVAL;
        }
    }

    /// Handles a position that the hub refused. Returns the replacement, if the position is proven
    /// not to exist; otherwise it is to be retried.
    pub(super) async fn position_refused(
        &mut self,
        start: &StartPosition,
        message: &str,
    ) -> Result<Option<StartPosition>, Ending> {
        let properties = self.properties().await?;
        let known = self.doubt.take().filter(|doubt| doubt.evidence.start() == start);
        let mut doubt = known.unwrap_or_else(|| Doubt::of(start));
        match doubt.evidence.refused(message, &properties) {
            Finding::Missing(cause) => self.begin_at_replacement(cause, &properties).await.map(Some),
            Finding::Unsure(pause) => {
                self.doubt = Some(doubt);
                self.wait(self.now() + pause).await?;
                Ok(None)
            }
            Finding::Exists => Ok(None),
        }
    }

    /// Checks the partition's properties if that is due. Returns the replacement, if the position
    /// is proven not to exist.
    pub(super) async fn check_if_in_doubt(&mut self) -> Result<Option<StartPosition>, Ending> {
        let now = self.now();
        if self.doubt.as_ref().is_none_or(|doubt| now < doubt.check_at) {
            return Ok(None);
        }
        let Ok(properties) = self.ask_properties().await? else {
            // The receiver reports a hub that cannot be read.
            self.doubt_from_now_on();
            return Ok(None);
        };
        let Some(doubt) = &mut self.doubt else { return Ok(None) };
        match doubt.evidence.checked(&properties) {
            Finding::Missing(cause) => {
                return self.begin_at_replacement(cause, &properties).await.map(Some);
            }
            Finding::Unsure(pause) => doubt.check_at = now + pause,
            Finding::Exists => self.doubt = None,
        }
        Ok(None)
    }
}
