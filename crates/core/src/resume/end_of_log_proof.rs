//! Decides whether it is proven that a position lies beyond the end of its log.
//!
//! The properties of a partition may lag behind its receivers, and a hub may refuse a position
//! temporarily, so neither is proof by itself. A checkpoint that is overwritten without proof costs
//! a replay of everything that is kept. One that is left beyond the end makes readers skip the
//! events before it. Therefore:
//!
//! ```text
//!                  ┌─ refused ─► a pause, opened again, for half a minute ───────────► it does not exist
//!   open it there ─┤
//!                  └─ opened ─► properties reach it, or an event comes ─────────────► it exists
//!                            └► properties end before it, check after check, ────────► it does not exist
//!                               for longer than they may lag
//! ```

use std::time::Duration;

use super::{PositionGone, out_of_range};
use crate::position::StartPosition;
use crate::source::PartitionProperties;

/// The pause after the first refusal. It doubles with each further one.
pub const REFUSAL_PAUSE: Duration = Duration::from_secs(2);
/// The number of refusals in a row that are proof. The pauses between them take 30 s together,
/// longer than the hub's answers may be out of date.
const REFUSALS_THAT_PROVE: u32 = 5;

/// The number of checks in a row that are proof, of a partition that ends before a position at
/// which a receiver is open.
const CHECKS_THAT_PROVE: u32 = 3;
/// The time between two checks. All checks together take longer than a hub's properties may lag
/// behind its receivers.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The observations of a position that may lie beyond the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    start: StartPosition,
    refusals: u32,
    checks: u32,
}

/// The conclusion from the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The position exists.
    Exists,
    /// Unknown yet: try again after this time.
    Unsure(Duration),
    /// It does not exist, for this reason.
    Missing(PositionGone),
}

impl Evidence {
    /// No observations of this position yet.
    pub fn of(start: &StartPosition) -> Self {
        Self { start: start.clone(), refusals: 0, checks: 0 }
    }

    /// The position in question.
    pub fn start(&self) -> &StartPosition {
        &self.start
    }

    /// Notes that the hub refused to open a receiver there, with this message; the properties were
    /// read after that.
    pub fn refused(&mut self, message: &str, partition: &PartitionProperties) -> Finding {
        self.refusals += 1;
        self.checks = 0;
        match out_of_range(&self.start, partition) {
            // Events that retention removed do not come back.
            Some(cause @ PositionGone::EventsGone { .. }) => Finding::Missing(cause),
            _ if self.refusals < REFUSALS_THAT_PROVE => {
                Finding::Unsure(REFUSAL_PAUSE * 2_u32.pow(self.refusals - 1))
            }
            Some(cause) => Finding::Missing(cause),
            None => Finding::Missing(PositionGone::Unknown { message: message.to_owned() }),
        }
    }

    /// Notes that the hub opened a receiver there.
    pub fn opened(&mut self) {
        self.refusals = 0;
    }

    /// Notes that a receiver has been open there for a while without an event; these are the
    /// current properties.
    pub fn checked(&mut self, partition: &PartitionProperties) -> Finding {
        match out_of_range(&self.start, partition) {
            Some(cause @ PositionGone::BeyondTheEnd { .. }) => {
                self.checks += 1;
                if self.checks < CHECKS_THAT_PROVE {
                    Finding::Unsure(CHECK_INTERVAL)
                } else {
                    Finding::Missing(cause)
                }
            }
            // Retention that overtakes the position meanwhile is noticed with the next event.
            _ => Finding::Exists,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PartitionId;
    use crate::position::{Offset, SequenceNumber};
    use crate::source::LastEnqueued;
    use crate::time::Timestamp;

    /// A partition that keeps the events from `first` to `last`.
    fn partition(first: u64, last: u64) -> PartitionProperties {
        let last = LastEnqueued {
            sequence: SequenceNumber(last),
            offset: Offset::number(last),
            enqueued_at: Timestamp(0),
        };
        PartitionProperties::without_gap(PartitionId(0), SequenceNumber(first), Some(last))
    }

    fn behind(number: u64) -> Evidence {
        Evidence::of(&StartPosition::after(SequenceNumber(number)))
    }

    fn beyond(wanted: u64, next: u64) -> Finding {
        Finding::Missing(PositionGone::BeyondTheEnd {
            wanted: SequenceNumber(wanted),
            next: SequenceNumber(next),
        })
    }

    /// The refusals that are no proof yet, and the time that they take together.
    fn refuse_until_proven(evidence: &mut Evidence, message: &str) -> (Duration, Finding) {
        let mut span = Duration::ZERO;
        loop {
            match evidence.refused(message, &partition(0, 9)) {
                Finding::Unsure(pause) => span += pause,
                proven => return (span, proven),
            }
        }
    }

    #[test]
    fn refusals_are_proof_if_they_go_on_for_half_a_minute() {
        let half_a_minute = Duration::from_secs(30);
        assert_eq!(refuse_until_proven(&mut behind(20), "no"), (half_a_minute, beyond(21, 10)));
        let mut evidence = behind(20);
        evidence.refused("no", &partition(0, 9));
        evidence.opened();
        assert_eq!(evidence.refused("no", &partition(0, 9)), Finding::Unsure(REFUSAL_PAUSE));
    }

    #[test]
    fn a_refusal_that_the_properties_contradict_is_told_in_the_hubs_own_words() {
        let unknown = PositionGone::Unknown { message: "why not".into() };
        assert_eq!(refuse_until_proven(&mut behind(5), "why not").1, Finding::Missing(unknown));
        let mut offset = Evidence::of(&StartPosition::Offset { offset: Offset::new("x"), inclusive: false });
        let unknown = PositionGone::Unknown { message: "x?".into() };
        assert_eq!(refuse_until_proven(&mut offset, "x?").1, Finding::Missing(unknown));
    }

    #[test]
    fn what_retention_took_needs_no_second_refusal() {
        let overtaken = PositionGone::EventsGone { wanted: SequenceNumber(6), oldest: SequenceNumber(8) };
        assert_eq!(behind(5).refused("no", &partition(8, 9)), Finding::Missing(overtaken));
    }

    #[test]
    fn checks_are_proof_only_when_all_of_them_agree() {
        let mut evidence = behind(20);
        assert_eq!(evidence.checked(&partition(0, 9)), Finding::Unsure(CHECK_INTERVAL));
        assert_eq!(evidence.checked(&partition(0, 12)), Finding::Unsure(CHECK_INTERVAL));
        assert_eq!(evidence.checked(&partition(0, 12)), beyond(21, 13));
        let mut evidence = behind(20);
        evidence.checked(&partition(0, 9));
        evidence.checked(&partition(0, 9));
        assert_eq!(evidence.checked(&partition(0, 20)), Finding::Exists);
        assert_eq!(behind(20).checked(&partition(30, 40)), Finding::Exists);
    }

    #[test]
    fn numbers_that_were_passed_over_are_not_beyond_the_end() {
        let jumped = PartitionProperties { next: SequenceNumber(30), ..partition(0, 9) };
        assert_eq!(behind(20).checked(&jumped), Finding::Exists);
        assert_eq!(behind(29).checked(&jumped), Finding::Exists);
        assert_eq!(behind(30).checked(&jumped), Finding::Unsure(CHECK_INTERVAL));
    }
}
