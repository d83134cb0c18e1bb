//! Tests that every error condition has its symbol, its class and the text of the service.

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;
use ephor_core::position::SequenceNumber;
use ephor_core::receivers::Receivers;
use ephor_core::receivers::error_texts as receivers;
use ephor_core::source::{OpenError, ReceiveError, SourceError};
use ephor_core::time::{Monotonic, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::address::InvalidAddress;
use crate::sas::{Claims, InvalidToken};
use crate::selector::Start;

const TRACKING: Tracking<'_> = Tracking {
    id: "7f_G1",
    namespace: "ns",
    hub: Some("homes"),
    partition: Some(PartitionId(3)),
    group: Some("$default"),
    at: Timestamp(1_523_755_425_678),
};

#[test]
fn every_symbol_reads_back_as_its_condition() {
    for condition in Condition::ALL {
        assert_eq!(&Condition::of(condition.symbol()), condition);
        assert!((400..=599).contains(&condition.status()), "{condition}");
    }
    let other = Condition::of("com.example:other");
    assert_eq!((other.symbol(), other.status()), ("com.example:other", 500));
    assert!(Condition::of(&"x".repeat(5_000)).symbol().len() < 800);
}

#[test]
fn a_client_tries_again_where_that_may_help() {
    let class = |symbol: &str, text: &str| Refusal::new(Condition::of(symbol), text).class();
    for (symbol, expected) in [
        ("amqp:link:stolen", Class::GiveUp),
        ("amqp:resource-limit-exceeded", Class::GiveUp),
        ("com.microsoft:argument-out-of-range", Class::GiveUp),
        ("com.microsoft:argument-error", Class::GiveUp),
        ("amqp:unauthorized-access", Class::GiveUp),
        ("com.microsoft:server-busy", Class::Retry),
        ("com.microsoft:timeout", Class::Retry),
        ("com.microsoft:operation-cancelled", Class::Retry),
        ("amqp:internal-error", Class::Reopen),
        ("amqp:link:message-size-exceeded", Class::GiveUp),
        ("com.microsoft:entity-disabled", Class::GiveUp),
        ("com.microsoft:entity-updated", Class::Reopen),
        ("amqp:link:detach-forced", Class::Reopen),
        ("amqp:connection:forced", Class::Reopen),
        ("amqp:not-allowed", Class::GiveUp),
        ("com.example:whatever", Class::Reopen),
    ] {
        assert_eq!(class(symbol, ""), expected, "{symbol}");
    }
    assert_eq!(error_texts::not_found("sb://ns/hub").class(), Class::GiveUp);
    assert_eq!(class("amqp:not-found", "moving"), Class::Reopen, "without the phrase it may pass");
    assert_eq!(Refusal::from(InvalidToken::Expired).class(), Class::Reopen, "a new token may help");
    assert_eq!(Refusal::from(InvalidToken::Signature).class(), Class::GiveUp);
}

#[test]
fn texts_are_those_of_the_service() {
    for (refusal, condition, text) in [
        (
            error_texts::not_found("sb://ns/homes"),
            "amqp:not-found",
            "The messaging entity 'sb://ns/homes' could not be found. To know more visit \
             https://aka.ms/sbResourceMgrExceptions. ",
        ),
        (
            error_texts::too_large(0, 262_279, 262_144),
            "amqp:link:message-size-exceeded",
            "The received message (delivery-id:0, size:262279 bytes) exceeds the limit (262144 bytes) currently \
             allowed on the link.",
        ),
        (
            error_texts::no_such_partition(4),
            "com.microsoft:argument-out-of-range",
            "The specified partition is invalid for an EventHub partition sender or receiver. It should be between \
             0 and 3.",
        ),
        (
            error_texts::missing_claim(Claims::SEND, "sb://ns/homes"),
            "amqp:unauthorized-access",
            "Unauthorized access. 'Send' claim(s) are required to perform this operation. Resource: 'sb://ns/homes'.",
        ),
        (
            error_texts::beyond_the_end(SequenceNumber(488), Some(SequenceNumber(482))),
            "com.microsoft:argument-error",
            "The supplied sequence number '488' is invalid. The last sequence number in the system is '482'",
        ),
        (
            Refusal::from(&Start::parse("nonsense").unwrap_err()),
            "com.microsoft:argument-error",
            "The filter 'nonsense' is not a valid amqp filter for EventHub entities",
        ),
        (
            error_texts::idle_connection(60_000),
            "amqp:connection:forced",
            "The connection was inactive for more than the allowed 60000 milliseconds and is closed by container \
             'LinkTracker'.",
        ),
    ] {
        assert_eq!((refusal.condition.symbol(), &*refusal.text), (condition, text));
    }
    assert!(error_texts::idle_link("l", 30).text.ends_with("Idle timeout: 00:30:00."));
    assert_eq!(error_texts::throttled(4).condition, Condition::ServerBusy);
    assert_eq!(
        error_texts::internal().tracked(&TRACKING).to_string(),
        "amqp:internal-error: The service was unable to \
        process the request; please retry the operation. TrackingId:7f_G1, SystemTracker:ns:eventhub:homes~3|$default, \
        Timestamp:2018-04-15T01:23:45.678Z"
    );
    let bare = Tracking { hub: None, partition: None, group: None, ..TRACKING };
    assert!(bare.to_string().starts_with(" TrackingId:7f_G1, SystemTracker:ns, Timestamp:"));
}

#[test]
fn an_impossible_address_is_not_found_or_out_of_range() {
    let of = |invalid| Refusal::of_address(invalid, "a b").condition;
    assert_eq!(of(InvalidAddress::Partition), Condition::ArgumentOutOfRange);
    assert_eq!(of(InvalidAddress::HubName), Condition::NotFound);
    assert_eq!(of(InvalidAddress::TooLong), Condition::InvalidField);
}

/// Sends the error over the wire and back.
fn opened(error: &OpenError) -> OpenError {
    open_error(Refusal::from(error).tracked(&TRACKING))
}

#[test]
fn the_holder_of_a_partition_is_named_across_the_wire() {
    let mut present = Receivers::default();
    present.enter("it's mine".into(), Some(Epoch::from_stored(7)), Monotonic(0));
    let lower = present.admit("new", Some(Epoch::from_stored(6))).unwrap_err();
    let OpenError::Refused { epoch, by, .. } = opened(&lower) else { panic!("refused") };
    assert_eq!((epoch, by.as_deref()), (Some(Epoch::from_stored(7)), Some("it's mine")));
    let without = present.admit("new", None).unwrap_err();
    let OpenError::Refused { epoch, by, message } = opened(&without) else { panic!("refused") };
    assert_eq!((epoch, by), (Some(Epoch::from_stored(7)), None));
    assert!(message.starts_with("At least one receiver") && message.contains("TrackingId:7f_G1"));
    let nameless = OpenError::Refused {
        epoch: None,
        by: None,
        message: receivers::lower_epoch("", Epoch::from_stored(2), "", Epoch::from_stored(1)),
    };
    let OpenError::Refused { epoch, by, .. } = opened(&nameless) else { panic!("refused") };
    assert_eq!((epoch, by), (Some(Epoch::from_stored(2)), None), "nil is no name");
}

#[test]
fn the_new_owner_of_a_partition_is_named_across_the_wire() {
    for (old, old_epoch) in [("old", Some(Epoch::from_stored(0))), ("", None)] {
        let message = receivers::stolen("new", Epoch::from_stored(0), old, old_epoch);
        let error = ReceiveError::Disconnected { epoch: None, by: None, message };
        let ReceiveError::Disconnected { epoch, by, .. } =
            receive_error(Refusal::from(&error).tracked(&TRACKING))
        else {
            panic!("disconnected")
        };
        assert_eq!((epoch, by.as_deref()), (Some(Epoch::from_stored(0)), Some("new")));
    }
}

#[test]
fn other_errors_keep_their_kind_across_the_wire() {
    let many = OpenError::TooManyReceivers { message: receivers::too_many(["a", ""].into_iter()) };
    assert!(matches!(opened(&many), OpenError::TooManyReceivers { message } if message.contains("a, nil")));
    let position = OpenError::InvalidPosition { message: "where?".into() };
    assert!(matches!(opened(&position), OpenError::InvalidPosition { .. }));
    let source = |error| opened(&OpenError::Source(error));
    let missing = source(SourceError::NotFound { what: "sb://ns/homes".into() });
    assert_eq!(missing.to_string(), "the entity 'sb://ns/homes' does not exist");
    let forbidden = source(SourceError::Unauthorized { message: "no".into() });
    assert!(matches!(forbidden, OpenError::Source(SourceError::Unauthorized { .. })));
    let secret = source(SourceError::Unavailable("/var/lib/file: broken".into()));
    assert!(matches!(&secret, OpenError::Source(SourceError::Unavailable(_))));
    assert!(!secret.to_string().contains("/var/lib"), "what happened inside stays inside: {secret}");
    let partition = open_error(error_texts::no_such_partition(4));
    assert!(matches!(partition, OpenError::Source(SourceError::NotFound { .. })));
    let beyond = error_texts::beyond_the_end(SequenceNumber(9), None);
    assert!(matches!(open_error(beyond), OpenError::InvalidPosition { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_means_something(symbol in any::<String>(), text in any::<String>()) {
        for condition in Condition::ALL.iter().cloned().chain([Condition::of(&symbol)]) {
            for text in [text.clone(), format!("New receiver '{text}' with higher epoch of '{text}' is created")] {
                let refusal = Refusal::new(condition.clone(), text);
                let _ = refusal.class();
                let _ = open_error(refusal.clone());
                let _ = receive_error(refusal);
            }
        }
    }
}
