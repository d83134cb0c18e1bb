//! Recognizes stale links: abandoned links of this receiver whose `attach` reaches the hub late.
//!
//! An abandoned connection may deliver its last bytes late: an `attach` for the partition that the receiver
//! reads over a new link by now. The hub then disconnects the new link, in favour of a receiver with its own
//! name and its own epoch. Epochs are not reused, so that can only be a stale link; but at most as
//! many are assumed to be stale as links were lost, so that two receivers that share name and epoch do not
//! displace each other for ever.

use std::sync::Arc;

use ephor_core::source::ReceiveError;
use ephor_wire::condition::{Condition, Refusal, name_in_errors, receive_error};

use crate::connection::ReceiverSpec;
use crate::failure_classes::Failure;

/// The maximum number of lost links that are remembered.
const MAX_STALE_LINKS: u32 = 8;

/// The number of stale links that may exist.
#[derive(Default)]
pub(super) struct StaleLinks {
    left: u32,
    /// The next failure was caused by a stale link, and is no further lost link.
    reclassified: bool,
}

impl StaleLinks {
    /// A link failed or ended; if the hub did not end it, the hub may not know.
    pub(super) fn note_failure(&mut self, failure: &Failure) {
        let reclassified = std::mem::take(&mut self.reclassified);
        if matches!(failure, Failure::Lost(_) | Failure::NotConnected(_)) && !reclassified {
            self.left = (self.left + 1).min(MAX_STALE_LINKS);
        }
    }

    /// Turns a failure that a stale link caused into a transient one.
    pub(super) fn reclassify(&mut self, failure: Failure, spec: &ReceiverSpec) -> Failure {
        match &failure {
            Failure::Refused(refusal) if self.left > 0 && is_by_itself(refusal, spec) => {
                self.left -= 1;
                self.reclassified = true;
                Failure::lost("a stale link of this receiver was attached late and replaced it")
            }
            _ => failure,
        }
    }
}

fn is_by_itself(refusal: &Arc<Refusal>, spec: &ReceiverSpec) -> bool {
    if refusal.condition != Condition::LinkStolen {
        return false;
    }
    match receive_error(Refusal::clone(refusal)) {
        ReceiveError::Disconnected { epoch: Some(epoch), by, .. } => {
            Some(epoch) == spec.epoch && by == name_in_errors(&spec.name)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ephor_core::epoch::Epoch;
    use ephor_core::ids::{ConsumerGroup, PartitionId};
    use ephor_wire::address::Address;
    use ephor_wire::selector::Start;

    fn spec() -> ReceiverSpec {
        let address = Address::Consumer {
            hub: "homes".parse().unwrap(),
            group: ConsumerGroup::default_group(),
            partition: PartitionId(0),
        };
        let epoch = Some(Epoch::from_stored(3));
        ReceiverSpec { address, start: Start::Earliest, epoch, name: "reader".into() }
    }

    fn stolen_by(name: &str, epoch: u64) -> Failure {
        let text = format!(
            "New receiver '{name}' with higher epoch of '{epoch}' is created hence current receiver 'reader' with \
             epoch '3' is getting disconnected."
        );
        Failure::refused(Refusal::new(Condition::LinkStolen, text))
    }

    #[test]
    fn only_a_lost_link_of_its_own_is_stale_and_only_once() {
        let mut stale_links = StaleLinks::default();
        let passes = |stale_links: &mut StaleLinks, failure| {
            matches!(stale_links.reclassify(failure, &spec()), Failure::Lost(_))
        };
        assert!(!passes(&mut stale_links, stolen_by("reader", 3)), "none was lost");
        stale_links.note_failure(&stolen_by("reader", 3));
        assert!(!passes(&mut stale_links, stolen_by("reader", 3)), "the hub itself ended it");
        stale_links.note_failure(&Failure::lost("cut"));
        assert!(!passes(&mut stale_links, stolen_by("another", 3)));
        assert!(!passes(&mut stale_links, stolen_by("reader", 4)));
        assert!(passes(&mut stale_links, stolen_by("reader", 3)));
        assert!(!passes(&mut stale_links, stolen_by("reader", 3)), "there was one");
    }

    #[test]
    fn a_recognized_stale_link_is_not_counted_as_another_lost_link() {
        let mut stale_links = StaleLinks::default();
        stale_links.note_failure(&Failure::lost("cut"));
        stale_links.note_failure(&Failure::lost("cut"));
        // Two receivers with one name and one epoch displace each other: each gets the other's error, and
        // retries.
        let mut returns = 0;
        loop {
            let failure = stale_links.reclassify(stolen_by("reader", 3), &spec());
            stale_links.note_failure(&failure);
            if !matches!(failure, Failure::Lost(_)) {
                break;
            }
            returns += 1;
            assert!(returns < 100, "they would go on for ever");
        }
        assert_eq!(returns, 2);
    }
}
