//! Checks hosts' reports of lost positions: the events are gone, and they are the ones that the host would
//! have read next.

use ephor::{LostGround, OnInvalidPosition, PartitionId, SequenceNumber};

use super::case::{Case, Reading, Standing};
use super::{Judge, Promise};
use crate::executor::Machine;

impl Judge {
    /// Checks a host's report that a position does not exist any more.
    pub fn lost_ground(&self, machine: Machine, partition: PartitionId, ground: &LostGround) {
        self.history.tell(format_args!("{} says of {partition:?}: {ground}", self.handle.name_of(machine)));
        let objection = {
            let mut docket = self.docket();
            let present = docket.life();
            let amnesty = docket.in_amnesty(self.handle.now());
            let case = docket.cases.entry(partition).or_default();
            // The host may have lost the partition without knowing it yet: its own last epoch counts.
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
            // Exempt for 60 s after a restore: the store may have given this epoch to another host, too, and
            // then the position of this one is unknown.
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
                    // A repeated report may name more events, because more may be gone by then.
                    let again = expected == Some(*oldest) || reading.said_at == Some(*wanted);
                    reading.said_at = Some(*wanted);
                    (*oldest, gone && (again || expected.is_none_or(|expected| expected == *wanted)))
                }
                LostGround::AnotherLog { .. } => {
                    let read_on = reading.unsaved.is_some();
                    // Exempt for 60 s after a restore: it may have read its checkpoint right before the old
                    // copy was put back.
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

/// True if the report is right about a former log of the hub. A host that still works through events that it
/// fetched before does not know yet that the hub was deleted and created again.
///
/// Exempt by this, as long as the host has finished nothing of the present log: a report that would be wrong
/// there.
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
        // The epoch has no known position, so it may read any of the former logs.
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
