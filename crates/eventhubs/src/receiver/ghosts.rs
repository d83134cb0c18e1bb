//! Recognizes stale links: own links that were abandoned, and of which the hub hears late.
//!
//! An abandoned connection may deliver its last bytes late: an `attach` for the partition that the receiver
//! reads over a new link by now. The hub then disconnects the new link, in favour of a receiver with its own
//! name and its own epoch. Epochs are not reused, so that can only be a stale link ("ghost"); but at most as
//! many are assumed to be stale as links were lost, so that two receivers that share name and epoch do not
//! displace each other for ever.

use std::sync::Arc;

use ephor_core::source::ReceiveError;
use ephor_wire::condition::{Condition, Refusal, receive_error, told_name};

use crate::failure::Failure;
use crate::line::ReceiverWish;

/// The maximum number of lost links that are remembered.
const MOST: u32 = 8;

/// The number of stale links that may exist.
#[derive(Default)]
pub(super) struct Ghosts {
    left: u32,
    /// The next failure was caused by a stale link, and is no further lost link.
    unmasked: bool,
}

impl Ghosts {
    /// A link failed or ended; if the hub did not end it, the hub may not know.
    pub(super) fn after(&mut self, failure: &Failure) {
        let unmasked = std::mem::take(&mut self.unmasked);
        if matches!(failure, Failure::Lost(_)) && !unmasked {
            self.left = (self.left + 1).min(MOST);
        }
    }

    /// Turns a failure that a stale link caused into a transient one.
    pub(super) fn unmask(&mut self, failure: Failure, wish: &ReceiverWish) -> Failure {
        match &failure {
            Failure::Refused(refusal) if self.left > 0 && is_by_itself(refusal, wish) => {
                self.left -= 1;
                self.unmasked = true;
                Failure::lost("an earlier link of this receiver came late and took its place")
            }
            _ => failure,
        }
    }
}

fn is_by_itself(refusal: &Arc<Refusal>, wish: &ReceiverWish) -> bool {
    if refusal.condition != Condition::LinkStolen {
        return false;
    }
    match receive_error(Refusal::clone(refusal)) {
        ReceiveError::Disconnected { epoch: Some(epoch), by, .. } => {
            Some(epoch) == wish.epoch && by == told_name(&wish.name)
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

    fn wish() -> ReceiverWish {
        let address = Address::Consumer {
            hub: "homes".parse().unwrap(),
            group: ConsumerGroup::default_group(),
            partition: PartitionId(0),
        };
        let epoch = Some(Epoch::from_stored(3));
        ReceiverWish { address, start: Start::Earliest, epoch, name: "reader".into() }
    }

    fn stolen_by(name: &str, epoch: u64) -> Failure {
        let text = format!(
            "New receiver '{name}' with higher epoch of '{epoch}' is created hence current receiver 'reader' with \
             epoch '3' is getting disconnected."
        );
        Failure::refused(Refusal::new(Condition::LinkStolen, text))
    }

    #[test]
    fn only_a_lost_link_of_its_own_is_a_ghost_and_only_once() {
        let mut ghosts = Ghosts::default();
        let passes =
            |ghosts: &mut Ghosts, failure| matches!(ghosts.unmask(failure, &wish()), Failure::Lost(_));
        assert!(!passes(&mut ghosts, stolen_by("reader", 3)), "none was lost");
        ghosts.after(&stolen_by("reader", 3));
        assert!(!passes(&mut ghosts, stolen_by("reader", 3)), "the hub itself ended it");
        ghosts.after(&Failure::lost("cut"));
        assert!(!passes(&mut ghosts, stolen_by("another", 3)));
        assert!(!passes(&mut ghosts, stolen_by("reader", 4)));
        assert!(passes(&mut ghosts, stolen_by("reader", 3)));
        assert!(!passes(&mut ghosts, stolen_by("reader", 3)), "there was one");
    }

    #[test]
    fn a_ghost_that_was_laid_is_not_counted_as_another_lost_link() {
        let mut ghosts = Ghosts::default();
        ghosts.after(&Failure::lost("cut"));
        ghosts.after(&Failure::lost("cut"));
        // Two receivers with one name and one epoch displace each other: each gets the other's error, and
        // retries.
        let mut returns = 0;
        loop {
            let failure = ghosts.unmask(stolen_by("reader", 3), &wish());
            ghosts.after(&failure);
            if !matches!(failure, Failure::Lost(_)) {
                break;
            }
            returns += 1;
            assert!(returns < 100, "they would go on for ever");
        }
        assert_eq!(returns, 2);
    }
}
