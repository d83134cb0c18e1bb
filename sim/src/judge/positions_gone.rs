//! Checks hosts' reports of positions that no longer exist: the events are gone, and they are the ones that
//! the host would have read next.

use ephor::{OnInvalidPosition, PartitionId, PositionGone, SequenceNumber};

use super::partition_facts::{LogPosition, PartitionFacts, ReadProgress};
use super::{Check, Exemption, Judge, Promise};
use crate::executor::Machine;

impl Judge {
    /// Checks a host's report that a position does not exist any more, and that it goes on at `resumes_at`.
    pub fn position_gone(
        &self,
        machine: Machine,
        partition: PartitionId,
        cause: &PositionGone,
        resumes_at: SequenceNumber,
    ) {
        self.history.append(format_args!(
            "{} reports about {partition:?}: {cause}; it goes on at {resumes_at}",
            self.handle.name_of(machine)
        ));
        let violation = {
            let mut state = self.state();
            let present = state.log_generation();
            let restore_grace = state.in_restore_grace(self.handle.now());
            let facts = state.partitions.entry(partition).or_default();
            // The host may have lost the partition without knowing it yet: its own last epoch counts.
            let Some(epoch) = facts.last_epoch_of(machine) else { return };
            // A host that skips to the end stores where that is; one that goes on at the next event does not.
            let at_the_next =
                matches!(cause, PositionGone::EventsGone { oldest, .. } if *oldest == resumes_at);
            let oldest_instead = self.on_invalid == OnInvalidPosition::Earliest || at_the_next;
            let mut progress = facts.read_progress.get(&epoch).copied().unwrap_or_default();
            // One that has lost the partition without knowing it read its checkpoint before the next owner saved one.
            let lost = epoch < facts.epoch;
            let earlier = still_of_an_earlier_log(facts, &mut progress, cause, present, oldest_instead);
            self.is_exempt(
                Check::PositionGone,
                [
                    (Exemption::EarlierLog, earlier),
                    (Exemption::PartitionLost, lost),
                    (Exemption::StoreRestored, restore_grace),
                ],
            );
            if earlier {
                facts.read_progress.insert(epoch, progress);
                return;
            }
            // Also the first events of a log may be gone, as in one that was compacted.
            let first_kept = (facts.oldest_kept.0..).map(SequenceNumber).find(|event| !facts.is_gone(*event));
            let (kept, stored) = (first_kept.unwrap_or(facts.oldest_kept), facts.stored_position);
            let gone = match cause {
                PositionGone::EventsGone { wanted, oldest } => {
                    (wanted.0..oldest.0).all(|event| facts.is_gone(SequenceNumber(event)))
                }
                _ => false,
            };
            // Events that exist are skipped only if the host wants the latest, and everything before its
            // position is gone.
            let may_skip = match cause {
                PositionGone::EventsGone { wanted, .. } => {
                    let older_exist = (kept.0..wanted.0).any(|event| !facts.is_gone(SequenceNumber(event)));
                    at_the_next || (self.on_invalid == OnInvalidPosition::Latest && !older_exist)
                }
                _ => true,
            };
            let mut progress = facts.read_progress.entry(epoch).or_default();
            let mut expected =
                progress.next.filter(|position| position.log_generation == present).map(|it| it.next);
            // Exempt for 60 s after a restore: the store may have given this epoch to another host, too, and
            // then the position of this one is unknown.
            let mut of_another = ReadProgress::default();
            if let PositionGone::EventsGone { wanted, .. } = cause
                && restore_grace
                && expected.is_some_and(|expected| expected != *wanted)
            {
                (progress, expected) = (&mut of_another, None);
            }
            progress.moving = !oldest_instead;
            progress.gap_reports += u32::from(matches!(cause, PositionGone::EventsGone { .. }));
            let (next, is_true) = match cause {
                PositionGone::EventsGone { wanted, oldest } => {
                    // A repeated report may name more events, because more may be gone by then.
                    let again = expected == Some(*oldest) || progress.reported_gone == Some(*wanted);
                    progress.reported_gone = Some(*wanted);
                    let in_turn = again || expected.is_none_or(|expected| expected == *wanted);
                    (*oldest, gone && in_turn && may_skip)
                }
                PositionGone::AnotherLog { .. } => {
                    let read_on = progress.unsaved.is_some();
                    // Exempt for 60 s after a restore: it may have read its checkpoint right before the old
                    // copy was put back.
                    let had_one =
                        stored.is_some_and(|stored| stored.log_generation < present) || restore_grace || lost;
                    (kept, had_one && !read_on)
                }
                _ => (kept, false),
            };
            if oldest_instead {
                progress.next = Some(LogPosition { log_generation: present, next });
            }
            (!is_true)
                .then(|| {
                    format!(
                        "reported events as gone: {cause}, going on at {resumes_at}; expected {expected:?}, kept from {kept:?}"
                    )
                })
        };
        if let Some(what) = violation {
            self.report_violation(Promise::AtLeastOnceInOrder, Some(partition), what);
        }
    }
}

/// True if the report is right about a former log of the hub. A host that still works through events that it
/// fetched before does not know yet that the hub was deleted and created again.
///
/// Exempt by this, as long as the host has finished nothing of the present log: a report that would be wrong
/// there.
fn still_of_an_earlier_log(
    facts: &PartitionFacts,
    progress: &mut ReadProgress,
    cause: &PositionGone,
    present: usize,
    oldest_instead: bool,
) -> bool {
    let PositionGone::EventsGone { wanted, oldest } = cause else { return false };
    let gone = |log_generation: &usize| {
        facts
            .earlier
            .get(log_generation)
            .is_some_and(|log| (wanted.0..oldest.0).all(|event| log.is_gone(SequenceNumber(event))))
    };
    match progress.next {
        // The epoch has no known position, so it may read any of the former logs.
        None => facts.earlier.keys().any(gone),
        Some(LogPosition { log_generation, next }) => {
            let said = progress.reported_gone == Some(*wanted) || next == *wanted || next == *oldest;
            let of_it = log_generation < present && gone(&log_generation) && said;
            if of_it {
                progress.reported_gone = Some(*wanted);
                progress.gap_reports += 1;
                if oldest_instead {
                    progress.next = Some(LogPosition { log_generation, next: *oldest });
                }
            }
            of_it
        }
    }
}
