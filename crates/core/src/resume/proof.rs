//! Decides when a position counts as beyond the end of its log.
//!
//! What a partition says of itself may lag behind what its receivers were handed, and a hub may refuse a position in
//! passing, so neither is proof by itself. A checkpoint that is written over without proof costs a replay of all that
//! is kept; one that is left standing beyond the end makes readers skip what comes before it. So:
//!
//! ```text
//!                  ┌─ refused ─► a pause, opened again, for half a minute ───────────► it does not exist
//!   open it there ─┤
//!                  └─ opened ─► properties reach it, or an event comes ─────────────► it exists
//!                            └► properties end before it, look after look, ─────────► it does not exist
//!                               for longer than they may lag
//! ```

use std::time::Duration;

use super::{LostGround, out_of_range};
use crate::position::StartPosition;
use crate::source::PartitionProperties;

/// How long to wait after the first refusal. The wait doubles with each of them.
pub const REFUSAL_PAUSE: Duration = Duration::from_secs(2);
/// So many refusals in a row are proof. The waits between them take 30 s together, longer than one witness may lag behind.
const REFUSALS_THAT_PROVE: u32 = 5;

/// So many looks in a row, at a partition that ends before a position where a receiver is open, are proof.
const LOOKS_THAT_PROVE: u32 = 3;
/// How far apart they are. All of them together take longer than a hub's properties may lag behind its receivers.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// What was seen of a position that may lie beyond the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    start: StartPosition,
    refusals: u32,
    looks: u32,
}

/// What the evidence says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The position exists.
    Exists,
    /// Nobody can tell yet: try again after this time.
    Unsure(Duration),
    /// It does not exist, for this reason.
    Missing(LostGround),
}

impl Evidence {
    /// Nothing was seen of this position yet.
    pub fn of(start: &StartPosition) -> Self {
        Self { start: start.clone(), refusals: 0, looks: 0 }
    }

    /// The position that it is about.
    pub fn start(&self) -> &StartPosition {
        &self.start
    }

    /// The hub refused to open a receiver there, in these words; afterwards the partition looked like this.
    pub fn refused(&mut self, message: &str, partition: &PartitionProperties) -> Finding {
        self.refusals += 1;
        self.looks = 0;
        match out_of_range(&self.start, partition) {
            // What retention took does not come back.
            Some(ground @ LostGround::Overtaken { .. }) => Finding::Missing(ground),
            _ if self.refusals < REFUSALS_THAT_PROVE => {
                Finding::Unsure(REFUSAL_PAUSE * 2_u32.pow(self.refusals - 1))
            }
            Some(ground) => Finding::Missing(ground),
            None => Finding::Missing(LostGround::Unknown { message: message.to_owned() }),
        }
    }

    /// The hub opened a receiver there.
    pub fn opened(&mut self) {
        self.refusals = 0;
    }

    /// A receiver has been open there for a while, no event came, and the partition looks like this.
    pub fn looked(&mut self, partition: &PartitionProperties) -> Finding {
        match out_of_range(&self.start, partition) {
            Some(ground @ LostGround::BeyondTheEnd { .. }) => {
                self.looks += 1;
                if self.looks < LOOKS_THAT_PROVE {
                    Finding::Unsure(LOOK_INTERVAL)
                } else {
                    Finding::Missing(ground)
                }
            }
            // What was overtaken meanwhile is noticed with the next event.
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
        Finding::Missing(LostGround::BeyondTheEnd {
            wanted: SequenceNumber(wanted),
            next: SequenceNumber(next),
        })
    }

    /// Refusals that are no proof yet, and how long they take together.
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
        let unknown = LostGround::Unknown { message: "why not".into() };
        assert_eq!(refuse_until_proven(&mut behind(5), "why not").1, Finding::Missing(unknown));
        let mut offset = Evidence::of(&StartPosition::Offset { offset: Offset::new("x"), inclusive: false });
        let unknown = LostGround::Unknown { message: "x?".into() };
        assert_eq!(refuse_until_proven(&mut offset, "x?").1, Finding::Missing(unknown));
    }

    #[test]
    fn what_retention_took_needs_no_second_refusal() {
        let overtaken = LostGround::Overtaken { wanted: SequenceNumber(6), oldest: SequenceNumber(8) };
        assert_eq!(behind(5).refused("no", &partition(8, 9)), Finding::Missing(overtaken));
    }

    #[test]
    fn looks_are_proof_only_when_all_of_them_agree() {
        let mut evidence = behind(20);
        assert_eq!(evidence.looked(&partition(0, 9)), Finding::Unsure(LOOK_INTERVAL));
        assert_eq!(evidence.looked(&partition(0, 12)), Finding::Unsure(LOOK_INTERVAL));
        assert_eq!(evidence.looked(&partition(0, 12)), beyond(21, 13));
        let mut evidence = behind(20);
        evidence.looked(&partition(0, 9));
        evidence.looked(&partition(0, 9));
        assert_eq!(evidence.looked(&partition(0, 20)), Finding::Exists);
        assert_eq!(behind(20).looked(&partition(30, 40)), Finding::Exists);
    }

    #[test]
    fn numbers_that_were_passed_over_are_not_beyond_the_end() {
        let jumped = PartitionProperties { next: SequenceNumber(30), ..partition(0, 9) };
        assert_eq!(behind(20).looked(&jumped), Finding::Exists);
        assert_eq!(behind(29).looked(&jumped), Finding::Exists);
        assert_eq!(behind(30).looked(&jumped), Finding::Unsure(LOOK_INTERVAL));
    }
}
