//! Tests of saves: only the owner with the fenced epoch saves a checkpoint, and never an earlier position.

use super::*;

#[test]
fn only_the_fenced_epoch_saves_and_never_backwards() {
    let rules = Rules::default();
    let first = owned("a", at(0));
    let mut record = CheckpointRecord { fence: first.epoch, checkpoint: None };
    let SaveVerdict::Write(written) =
        save(&record, &SaveRequest::new(&token(&first), &finished(5), None), at(1), &rules)
    else {
        panic!("the owner may save")
    };
    assert_eq!((written.epoch, written.saved_at), (first.epoch, at(1)));
    record.checkpoint = Some(written.clone());
    let back = save(&record, &SaveRequest::new(&token(&first), &finished(4), None), at(2), &rules);
    assert_eq!(back, SaveVerdict::Behind(written));
    let rewind = SaveRequest { rewind: true, ..SaveRequest::new(&token(&first), &finished(4), None) };
    let rewound = save(&record, &rewind, at(2), &rules);
    assert!(matches!(rewound, SaveVerdict::Write(_)), "the owner may, where the position does not exist");
    record.fence = record.fence.next().unwrap();
    assert!(matches!(save(&record, &rewind, at(2), &rules), SaveVerdict::Fenced { .. }));
    let late = save(&record, &SaveRequest::new(&token(&first), &finished(6), None), at(2), &rules);
    assert_eq!(late, SaveVerdict::Fenced { epoch: record.fence });
    let early = LeaseToken { epoch: record.fence.next().unwrap(), ..token(&first) };
    let future = save(&record, &SaveRequest::new(&early, &finished(6), None), at(2), &rules);
    assert_eq!(future, SaveVerdict::Fenced { epoch: record.fence });
}

#[test]
fn a_save_without_log_keeps_the_log_that_is_stored() {
    let rules = Rules::default();
    let first = owned("a", at(0));
    let mut record = CheckpointRecord { fence: first.epoch, checkpoint: None };
    let log = LogId::new("a");
    for (sequence, log) in [(7, Some(&log)), (8, None)] {
        let verdict =
            save(&record, &SaveRequest::new(&token(&first), &finished(sequence), log), at(1), &rules);
        let SaveVerdict::Write(written) = verdict else { panic!("the owner may save") };
        record.checkpoint = Some(written);
    }
    let back = save(&record, &SaveRequest::new(&token(&first), &finished(0), Some(&log)), at(1), &rules);
    assert!(matches!(back, SaveVerdict::Behind(_)));
}

#[test]
fn nobody_saves_before_the_first_claim() {
    let first = owned("a", at(0));
    let nobody = LeaseToken { epoch: Epoch::NONE, ..token(&first) };
    let verdict = save(
        &CheckpointRecord::default(),
        &SaveRequest::new(&nobody, &finished(0), None),
        at(1),
        &Rules::default(),
    );
    assert_eq!(verdict, SaveVerdict::Fenced { epoch: Epoch::NONE });
}
