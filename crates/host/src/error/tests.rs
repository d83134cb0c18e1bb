//! Tests of the texts of errors.

use super::*;

#[test]
fn errors_say_what_to_do_next() {
    let skew = HostError::ClockSkew.to_string();
    assert!(skew.contains("if this repeats, check the time synchronisation"), "{skew}");
    let group = GroupId {
        namespace: "local".parse().unwrap(),
        hub: "homes".parse().unwrap(),
        group: "$Default".parse().unwrap(),
    };
    let partition = PartitionId(3);
    let halted = |ground| HostError::Halted { group: group.clone(), partition, ground }.to_string();
    let gap = LostGround::Overtaken { wanted: SequenceNumber(10), oldest: SequenceNumber(20) };
    let told = halted(gap);
    let command = "`ephor checkpoint seek 'homes/$Default' --partition 3 --to seq:20`";
    assert!(told.contains(command), "{told}");
    let beyond = LostGround::BeyondTheEnd { wanted: SequenceNumber(10), next: SequenceNumber(5) };
    assert!(halted(beyond).contains("--to earliest`"));
}

#[test]
fn skipped_events_are_named() {
    let skipped = |skipped| {
        let ground = LostGround::Overtaken { wanted: SequenceNumber(4), oldest: SequenceNumber(5) };
        let resumes_at = SequenceNumber(9);
        PartitionError::LostGround { ground, resumes_at, skipped }.to_string()
    };
    assert!(skipped(0).starts_with("1 event is gone ("), "{}", skipped(0));
    assert!(skipped(0).ends_with("; reading goes on at 9"), "{}", skipped(0));
    let one =
        "; reading goes on at 9, and 1 event that the hub keeps (8) is skipped, because on_invalid_position";
    assert!(skipped(1).contains(one), "{}", skipped(1));
    let four =
        ", and 4 events that the hub keeps (5 to 8) are skipped, because on_invalid_position is Latest";
    assert!(skipped(4).ends_with(four), "{}", skipped(4));
}

#[test]
fn the_cause_of_an_error_is_its_source_and_can_be_matched() {
    let cause = SourceError::NotFound { what: "the hub homes".into() };
    let error = PartitionError::Source { error: Arc::new(cause.into()) };
    let error = HostError::Partition { partition: PartitionId(3), error };
    assert_eq!(
        error.to_string(),
        "partition 3: the partition could not be read: the hub homes does not exist",
        "the message is complete by itself"
    );
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
    let Some(PartitionError::Source { error }) = source else { panic!("{source:?}") };
    assert!(matches!(**error, OpenError::Source(SourceError::NotFound { .. })), "{error:?}");
}
