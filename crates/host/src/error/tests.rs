//! Tests of the message texts of errors.

use super::*;

#[test]
fn errors_say_what_to_do_next() {
    let skew = HostError::ClockSkew.to_string();
    assert!(skew.contains("if this repeats, check the time synchronisation"), "{skew}");
    let group = GroupId::new("local", "homes", "$Default").unwrap();
    let partition = PartitionId(3);
    let halted = |cause| HostError::Halted { group: group.clone(), partition, cause }.to_string();
    let gap = PositionGone::EventsGone { wanted: SequenceNumber(10), oldest: SequenceNumber(20) };
    let told = halted(gap);
    let command = "`ephor checkpoint seek 'homes/$Default' --partition 3 --to seq:20`";
    assert!(told.contains(command), "{told}");
    let beyond = PositionGone::BeyondTheEnd { wanted: SequenceNumber(10), next: SequenceNumber(5) };
    assert!(halted(beyond).contains("--to earliest`"));
}

#[test]
fn skipped_events_are_named() {
    let skipped = |skipped| {
        let cause = PositionGone::EventsGone { wanted: SequenceNumber(4), oldest: SequenceNumber(5) };
        let resumes_at = SequenceNumber(9);
        PartitionError::PositionGone { cause, resumes_at, skipped }.to_string()
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

/// An error of a user's processor whose message does not contain that of its cause.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the reading")]
struct CannotWrite(#[source] std::io::Error);

fn failed() -> ProcessorError {
    let cause = CannotWrite(std::io::Error::other("the disk is full"));
    ProcessorError::from(BoxError::from(cause))
}

#[test]
fn a_message_has_every_cause_and_the_cause_can_be_matched() {
    let cause = SourceError::NotFound { what: "the hub homes".into() };
    let error = PartitionError::Source { error: Arc::new(cause.into()) };
    let error = HostError::Partition { partition: PartitionId(3), error };
    assert_eq!(
        error.to_string(),
        "partition 3: the partition could not be read: the hub homes does not exist"
    );
    let HostError::Partition { error: PartitionError::Source { error }, .. } = error else { panic!() };
    assert!(matches!(*error, OpenError::Source(SourceError::NotFound { .. })), "{error:?}");

    let error = HostError::OpenFailed { partition: PartitionId(3), error: failed() };
    let message = "partition 3: the processor does not open: cannot write the reading: the disk is full";
    assert_eq!(error.to_string(), message);
}

#[test]
fn a_cause_is_the_source_and_is_printed_once() {
    let call = || StoreCallError::Failed(Arc::new(StoreError::Unavailable("no answer".into())));
    let (first, last, attempt) = (SequenceNumber(1), SequenceNumber(2), 1);
    let partition = PartitionId(3);
    let processing = PartitionError::Processing { first, last, attempt, error: failed() };
    let error = SourceError::Unavailable("no answer".into());
    let errors: Vec<Box<dyn std::error::Error>> = vec![
        Box::new(call()),
        Box::new(CheckpointError::from(call())),
        Box::new(failed()),
        Box::new(processing.clone()),
        Box::new(PartitionError::Skipped { sequence: first, attempts: 3, error: failed() }),
        Box::new(PartitionError::Source { error: Arc::new(error.into()) }),
        Box::new(PartitionError::Checkpoint { error: call().into() }),
        Box::new(HostError::Store {
            operation: "view",
            partition: None,
            failing_for: Duration::ZERO,
            error: call(),
        }),
        Box::new(HostError::Hub { error: SourceError::Unavailable("no answer".into()) }),
        Box::new(HostError::OpenFailed { partition, error: failed() }),
        Box::new(HostError::CloseFailed { partition, error: failed() }),
        Box::new(HostError::Partition { partition, error: processing }),
        Box::new(crate::StartError::Hub {
            hub: "homes".into(),
            error: SourceError::Unavailable("no answer".into()),
        }),
    ];
    for error in errors {
        let message = error.to_string();
        assert!(message.contains("no answer") || message.contains("the disk is full"), "{message}");
        assert!(error.source().is_some(), "{message} has no source");
        assert_eq!(with_causes(&*error), message, "nothing is printed twice");
    }
}
