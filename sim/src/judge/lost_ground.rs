//! What hosts report as gone: it is gone, and it is what they would have read next.

use ephor::{LostGround, OnInvalidPosition, PartitionId, SequenceNumber};

use super::case::{Case, Reading, Standing};
use super::{Judge, Promise};
use crate::executor::Machine;

impl Judge {
    /// A host reports that a position does not exist any more.
    pub fn lost_ground(&self, machine: Machine, partition: PartitionId, ground: &LostGround) {
        self.history.tell(format_args!("{} says of {partition:?}: {ground}", self.handle.name_of(machine)));
        let objection = {
            let mut docket = self.docket();
            let present = docket.life();
            let amnesty = docket.in_amnesty(self.handle.now());
            let case = docket.cases.entry(partition).or_default();
            // Somebody may have lost it without knowing yet.
            let own = case.granted.iter().filter(|(_, grant)| grant.machine == Some(machine));
            let Some(epoch) = own.max_by_key(|(_, grant)| grant.at).map(|(epoch, _)| *epoch) else { return };
            let oldest_instead = self.on_invalid == OnInvalidPosition::Earliest;
            let mut reading = case.readings.get(&epoch).copied().unwrap_or_default();
            if still_of_an_earlier_log(case, &mut reading, ground, present, oldest_instead) {
                case.readings.insert(epoch, reading);
                return;
            }
            let (kept, standing) = (case.kept, case.standing);
            let gone = match ground {
                LostGround::Overtaken { wanted, oldest } => {
                    (wanted.0..oldest.0).all(|event| case.is_gone(SequenceNumber(event)))
                }
                _ => false,
            };
            let mut reading = case.readings.entry(epoch).or_default();
            let mut expected = reading.next.filter(|standing| standing.life == present).map(|it| it.next);
            // A restored store may have given its epoch to another host, too: then where this one reads, only it knows.
            let mut of_another = Reading::default();
            if let LostGround::Overtaken { wanted, .. } = ground
                && amnesty
                && expected.is_some_and(|expected| expected != *wanted)
            {
                (reading, expected) = (&mut of_another, None);
            }
            reading.moving = !oldest_instead;
            let (next, true_word) = match ground {
                LostGround::Overtaken { wanted, oldest } => {
                    // More may be gone by the time that it says so again.
                    let again = expected == Some(*oldest) || reading.said_at == Some(*wanted);
                    reading.said_at = Some(*wanted);
                    (*oldest, gone && (again || expected.is_none_or(|expected| expected == *wanted)))
                }
                LostGround::AnotherLog { .. } => {
                    let read_on = reading.unsaved.is_some();
                    // It may have read its checkpoint right before an old copy of the store was put back.
                    let had_one = standing.is_some_and(|standing| standing.life < present) || amnesty;
                    (kept, had_one && !read_on)
                }
                _ => (kept, false),
            };
            if oldest_instead {
                reading.next = Some(Standing { life: present, next });
            }
            (!true_word)
                .then(|| format!("said to be gone: {ground}; expected {expected:?}, kept from {kept:?}"))
        };
        if let Some(what) = objection {
            self.object(Promise::AtLeastOnceInOrder, Some(partition), what);
        }
    }
}

/// Whether this is true of a log that the hub had before: who is in the middle of what it fetched does not know yet
/// that the hub was made anew.
fn still_of_an_earlier_log(
    case: &Case,
    reading: &mut Reading,
    ground: &LostGround,
    present: usize,
    oldest_instead: bool,
) -> bool {
    let LostGround::Overtaken { wanted, oldest } = ground else { return false };
    let gone = |life: &usize| {
        case.earlier
            .get(life)
            .is_some_and(|log| (wanted.0..oldest.0).all(|event| log.is_gone(SequenceNumber(event))))
    };
    match reading.next {
        // It has not finished anything: which log it reads, only it knows.
        None => case.earlier.keys().any(gone),
        Some(Standing { life, next }) => {
            let said = reading.said_at == Some(*wanted) || next == *wanted || next == *oldest;
            let of_it = life < present && gone(&life) && said;
            if of_it {
                reading.said_at = Some(*wanted);
                if oldest_instead {
                    reading.next = Some(Standing { life, next: *oldest });
                }
            }
            of_it
        }
    }
}
