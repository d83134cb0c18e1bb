//! Conformance tests of epochs: concurrent receivers, disconnections, and their messages.

use ephor_core::ids::PartitionId;
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::{OpenError, OpenRequest, Receiver};

use super::SourceFixture;
use super::receiver_steps::{
    Alarm, assert_says, disconnected, ending, numbers, open, open_soon, receive, refusal, refused, request,
    send_numbers,
};

fn named(name: &str) -> Option<String> {
    Some(name.to_owned())
}

/// Five receivers without an epoch, named a to e.
async fn five<F: SourceFixture>(fixture: &F) -> Vec<Box<dyn Receiver>> {
    let mut receivers = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        receivers.push(open(fixture, request(name, None)).await);
    }
    receivers
}

/// The old owner learns the epoch and the name of the new one.
pub async fn a_higher_epoch_disconnects_the_owner_and_says_who<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut old = open(&fixture, request("old", Some(3))).await;
    let mut new = open(&fixture, request("new", Some(4))).await;
    let (epoch, by, message) = disconnected(ending(&mut old).await.1);
    assert_eq!((epoch, by), (Some(4), named("new")));
    assert_says(
        &message,
        "New receiver 'new' with higher epoch of '4' is created hence current receiver 'old' with epoch '3' is \
         getting disconnected. If you are recreating the receiver, make sure a higher epoch is used.",
    );
    send_numbers(&fixture, [0]).await;
    assert_eq!(numbers(&receive(&mut new, 1).await), [0]);
}

/// The SDKs' processors hand over to each other in this way.
pub async fn an_equal_epoch_disconnects_the_owner_too<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut old = open(&fixture, request("old", Some(0))).await;
    let _new = open(&fixture, request("new", Some(0))).await;
    let (epoch, by, message) = disconnected(ending(&mut old).await.1);
    assert_eq!((epoch, by), (Some(0), named("new")));
    assert_says(
        &message,
        "New receiver 'new' with higher epoch of '0' is created hence current receiver 'old' with epoch '0' is \
         getting disconnected. If you are recreating the receiver, make sure a higher epoch is used.",
    );
}

/// The owner is not affected.
pub async fn a_lower_epoch_is_refused_and_told_who_is_there<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut owner = open(&fixture, request("owner", Some(23))).await;
    let (epoch, by, message) = refused(refusal(&fixture, request("late", Some(20))).await);
    assert_eq!((epoch, by), (Some(23), named("owner")));
    assert_says(
        &message,
        "Receiver 'owner' with a higher epoch '23' already exists. Receiver 'late' with epoch 20 cannot be \
         created. Make sure you are creating receiver with increasing epoch value to ensure connectivity, or \
         ensure all old epoch receivers are closed or disconnected.",
    );
    send_numbers(&fixture, [0]).await;
    assert_eq!(numbers(&receive(&mut owner, 1).await), [0]);
}

/// An owner that waits on an idle partition learns of its disconnection all the same.
pub async fn a_waiting_owner_is_woken_when_it_is_disconnected<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut old = open(&fixture, request("old", Some(1))).await;
    let (alarm, mut events) = (Alarm::new(), Vec::new());
    let mut waiting = old.receive(&mut events, 10);
    assert!(alarm.poll(&mut waiting).is_pending(), "there is nothing to receive yet");
    let _new = open(&fixture, request("new", Some(2))).await;
    let error = alarm.finish(&mut waiting).await.expect_err("the owner was disconnected");
    let (epoch, by, _) = disconnected(error);
    assert_eq!((epoch, by), (Some(2), named("new")));
}

/// Even when events come and the successor leaves.
pub async fn a_disconnected_receiver_stays_disconnected<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut old = open(&fixture, request("old", Some(1))).await;
    let new = open(&fixture, request("new", Some(2))).await;
    disconnected(ending(&mut old).await.1);
    send_numbers(&fixture, 0..3).await;
    new.close().await;
    for _ in 0..3 {
        let (events, error) = ending(&mut old).await;
        let (epoch, by, _) = disconnected(error);
        assert_eq!((epoch, by), (Some(2), named("new")));
        assert_eq!(numbers(&events), [], "nothing follows the end");
    }
}

/// Fencing: the old owner receives none of it.
pub async fn what_comes_after_a_takeover_reaches_only_the_new_owner<F: SourceFixture>() {
    let fixture = F::new(1).await;
    send_numbers(&fixture, 0..3).await;
    let mut old = open(&fixture, request("old", Some(1))).await;
    assert_eq!(numbers(&receive(&mut old, 1).await), [0]);
    let start = StartPosition::after(SequenceNumber(0));
    let mut new = open(&fixture, OpenRequest { start, ..request("new", Some(2)) }).await;
    send_numbers(&fixture, 3..6).await;
    let fetched_ahead = numbers(&ending(&mut old).await.0);
    assert!(fetched_ahead.iter().all(|number| *number < 3), "{fetched_ahead:?}");
    assert_eq!(numbers(&receive(&mut new, 5).await), [1, 2, 3, 4, 5]);
}

/// The close must not remove the successor.
pub async fn closing_a_disconnected_receiver_leaves_its_successor_alone<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut old = open(&fixture, request("old", Some(5))).await;
    let mut new = open(&fixture, request("new", Some(6))).await;
    disconnected(ending(&mut old).await.1);
    old.close().await;
    refused(refusal(&fixture, request("late", Some(5))).await);
    send_numbers(&fixture, [0]).await;
    assert_eq!(numbers(&receive(&mut new, 1).await), [0]);
}

/// A lower one, too: the hub remembers no epoch of receivers that are gone.
pub async fn a_closed_owner_leaves_room_for_any_epoch<F: SourceFixture>() {
    let fixture = F::new(1).await;
    open(&fixture, request("first", Some(9))).await.close().await;
    let owner = open(&fixture, request("second", Some(2))).await;
    let (epoch, by, _) = refused(refusal(&fixture, request("third", Some(1))).await);
    assert_eq!((epoch, by), (Some(2), named("second")));
    owner.close().await;
}

/// As after a crash of its process.
pub async fn a_dropped_owner_leaves_room_for_any_epoch<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut owner = open(&fixture, request("first", Some(9))).await;
    assert!(Alarm::new().poll(&mut owner.receive(&mut Vec::new(), 1)).is_pending());
    drop(owner);
    open_soon(&fixture, request("second", Some(2))).await.close().await;
}

/// Each of them receives all events.
pub async fn five_receivers_without_epoch_each_receive_everything<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut receivers = five(&fixture).await;
    send_numbers(&fixture, 0..4).await;
    for receiver in &mut receivers {
        assert_eq!(numbers(&receive(receiver, 4).await), [0, 1, 2, 3]);
    }
}

/// None of the five is affected.
pub async fn a_sixth_receiver_without_epoch_is_refused_and_told_the_five<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut receivers = five(&fixture).await;
    match refusal(&fixture, request("f", None)).await {
        OpenError::TooManyReceivers { message } => assert_says(
            &message,
            "Exceeded the maximum number of allowed receivers per partition in a consumer group which is 5. \
             List of connected receivers - a, b, c, d, e",
        ),
        error => panic!("refused for another reason: {error}"),
    }
    send_numbers(&fixture, [0]).await;
    for receiver in &mut receivers {
        assert_eq!(numbers(&receive(receiver, 1).await), [0]);
    }
}

/// Exactly one other.
pub async fn closing_one_of_five_lets_another_in<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut receivers = five(&fixture).await;
    receivers.remove(2).close().await;
    receivers.push(open(&fixture, request("f", None)).await);
    let error = refusal(&fixture, request("g", None)).await;
    assert!(matches!(error, OpenError::TooManyReceivers { .. }), "{error}");
}

/// Owners have priority, and are not affected.
pub async fn a_receiver_without_epoch_is_refused_beside_an_owner<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut owner = open(&fixture, request("owner", Some(0))).await;
    let (epoch, by, message) = refused(refusal(&fixture, request("reader", None)).await);
    assert_eq!(epoch, Some(0));
    assert!(by.is_none() || by == named("owner"), "the text does not contain the name: {by:?}");
    assert_says(
        &message,
        "At least one receiver for the endpoint is created with epoch of '0', and so non-epoch receiver is not \
         allowed. Either reconnect with a higher epoch, or make sure all epoch receivers are closed or \
         disconnected.",
    );
    send_numbers(&fixture, [0]).await;
    assert_eq!(numbers(&receive(&mut owner, 1).await), [0]);
}

/// At once, if the owner closed.
pub async fn a_receiver_without_epoch_opens_once_the_owner_has_left<F: SourceFixture>() {
    let fixture = F::new(1).await;
    send_numbers(&fixture, [0]).await;
    open(&fixture, request("owner", Some(3))).await.close().await;
    let mut reader = open(&fixture, request("reader", None)).await;
    assert_eq!(numbers(&receive(&mut reader, 1).await), [0]);
}

/// Each of them learns the name and epoch of the owner.
pub async fn an_epoch_disconnects_all_receivers_without_one<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut receivers = five(&fixture).await;
    let mut owner = open(&fixture, request("owner", Some(0))).await;
    for (receiver, name) in receivers.iter_mut().zip(["a", "b", "c", "d", "e"]) {
        let (epoch, by, message) = disconnected(ending(receiver).await.1);
        assert_eq!((epoch, by), (Some(0), named("owner")));
        let expected = format!(
            "New receiver 'owner' with higher epoch of '0' is created hence current receiver '{name}' with epoch '"
        );
        assert_says(&message, &expected);
    }
    send_numbers(&fixture, [0]).await;
    assert_eq!(numbers(&receive(&mut owner, 1).await), [0]);
}

/// Owners of one group or partition do not affect others.
pub async fn groups_and_partitions_have_owners_of_their_own<F: SourceFixture>() {
    let fixture = F::new(2).await;
    let mut owner = open(&fixture, request("owner", Some(9))).await;
    let elsewhere = OpenRequest { partition: PartitionId(1), ..request("low", Some(1)) };
    let _low = open(&fixture, elsewhere).await;
    let another = OpenRequest { group: fixture.second_group(), ..request("high", Some(10)) };
    let _high = open(&fixture, another).await;
    send_numbers(&fixture, [0]).await;
    assert_eq!(numbers(&receive(&mut owner, 1).await), [0]);
}

/// In every message, and the error has no name.
pub async fn a_receiver_without_a_name_is_shown_as_nil<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut old = open(&fixture, request("", Some(1))).await;
    let (epoch, by, message) = refused(refusal(&fixture, request("", Some(0))).await);
    assert_eq!((epoch, by), (Some(1), None));
    assert_says(
        &message,
        "Receiver 'nil' with a higher epoch '1' already exists. Receiver 'nil' with epoch 0 cannot be created.",
    );
    let new = open(&fixture, request("", Some(2))).await;
    let (epoch, by, message) = disconnected(ending(&mut old).await.1);
    assert_eq!((epoch, by), (Some(2), None));
    assert_says(
        &message,
        "New receiver 'nil' with higher epoch of '2' is created hence current receiver 'nil' with epoch '1' is \
         getting disconnected.",
    );
    new.close().await;
    let mut readers = Vec::new();
    for _ in 0..5 {
        readers.push(open(&fixture, request("", None)).await);
    }
    let message = refusal(&fixture, request("", None)).await.to_string();
    assert!(message.contains("List of connected receivers - nil, nil, nil, nil, nil"), "{message}");
}

/// A wrong request of another receiver does not disconnect the owner.
pub async fn a_start_that_does_not_exist_disconnects_nobody<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut owner = open(&fixture, request("owner", Some(1))).await;
    let start = StartPosition::at(SequenceNumber(1_000));
    let error = refusal(&fixture, OpenRequest { start: start.clone(), ..request("lost", Some(2)) }).await;
    assert!(matches!(error, OpenError::InvalidPosition { .. }), "{error}");
    // A former owner gets the error about its epoch first, whatever its start position.
    refused(refusal(&fixture, OpenRequest { start, ..request("late", Some(0)) }).await);
    send_numbers(&fixture, [0]).await;
    assert_eq!(numbers(&receive(&mut owner, 1).await), [0]);
}
