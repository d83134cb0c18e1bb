//! Tests that each of the four rules that `record.rs` itself keeps can be switched off by a mutation. The
//! others are kept elsewhere.

use super::*;

#[test]
fn the_mutation_leaves_the_epoch_where_it_was() {
    let first = owned("a", at(0));
    let rules = Rules { takeover_raises_the_epoch: false, ..Rules::default() };
    for (cause, epoch) in [
        (ClaimCause::Expired, 1),
        (ClaimCause::Unresponsive, 1),
        (ClaimCause::Unowned, 2),
        (ClaimCause::AboveForeignReader, 2),
    ] {
        let change =
            claim(Some(&first), first.epoch, &request("b", Some(&first), cause), at(40), &rules).unwrap();
        assert_eq!(change.lease.epoch.get(), epoch, "{cause:?}");
    }
}

#[test]
fn the_mutation_lets_a_late_save_through() {
    let rules = Rules { checkpoints_are_fenced: false, ..Rules::default() };
    let first = owned("a", at(0));
    let record = CheckpointRecord {
        fence: first.epoch.next().unwrap(),
        checkpoint: Some(Checkpoint {
            position: Position::Start(StartPosition::after(SequenceNumber(9))),
            log: None,
            epoch: first.epoch,
            saved_at: at(0),
        }),
    };
    let late = save(&record, &SaveRequest::new(&token(&first), &finished(4), None), at(2), &rules);
    assert!(matches!(late, SaveVerdict::Write(_)));
}

#[test]
fn the_mutation_forgets_the_epochs_of_a_partition_that_nobody_owns() {
    let rules = Rules { epochs_never_restart: false, ..Rules::default() };
    let mut record = LeaseRecord { epoch: Epoch::from_stored(7), ..owned("a", at(0)) };
    let next = |record: &LeaseRecord, rules: &Rules| {
        let request = request("b", Some(record), ClaimCause::Unowned);
        claim(Some(record), Epoch::from_stored(7), &request, at(40), rules).unwrap().lease.epoch.get()
    };
    assert_eq!(next(&record, &rules), 8, "not where it is taken from an owner");
    record.owner = None;
    assert_eq!((next(&record, &rules), next(&record, &Rules::default())), (1, 8));
}

#[test]
fn the_mutation_lets_the_owners_next_save_undo_a_seek() {
    let first = owned("a", at(0));
    let undone = |rules: &Rules| {
        let sought = seek(Some(&first), first.epoch, P, "ada", at(10), rules);
        let record = CheckpointRecord { fence: sought.fence, checkpoint: None };
        let request = SaveRequest::new(&token(&first), &finished(5), None);
        matches!(save(&record, &request, at(11), &Rules::default()), SaveVerdict::Write(_))
    };
    assert!(undone(&Rules { seeks_take_a_new_epoch: false, ..Rules::default() }));
    assert!(!undone(&Rules::default()));
}
