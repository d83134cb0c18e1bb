//! Tests of the epoch rules for receivers, and of receivers that vanish without a detach.

use super::*;
use crate::source::{ReceiveError, SourceError};

const START: Monotonic = Monotonic(5_000_000_000);
const AFTER: Duration = Duration::from_secs(600);
const MOMENT: Duration = Duration::from_nanos(1);

fn epoch(number: u64) -> Option<Epoch> {
    Some(Epoch::from_stored(number))
}

/// Admits a receiver and adds it.
fn open(receivers: &mut Receivers, name: &str, epoch: Option<Epoch>) -> Arc<Admission> {
    receivers.admit(name, epoch).expect("it may come in");
    receivers.enter(name.into(), epoch, START)
}

fn five() -> (Receivers, Vec<Arc<Admission>>) {
    let mut receivers = Receivers::default();
    let admissions = ["a", "b", "", "d", "e"].map(|name| open(&mut receivers, name, None));
    (receivers, admissions.into())
}

fn names(receivers: &Receivers) -> Vec<&str> {
    receivers.iter().map(|admission| admission.name()).collect()
}

/// The epoch and the name of the receiver that took over, and the message.
fn disconnected(admission: &Admission) -> (Option<u64>, Option<String>, String) {
    match admission.error() {
        Some(ReceiveError::Disconnected { epoch, by, message }) => (epoch.map(Epoch::get), by, message),
        other => panic!("not disconnected, but {other:?}"),
    }
}

/// The epoch and the name of the present owner, and the message.
fn refused(answer: Result<(), OpenError>) -> (Option<u64>, Option<String>, String) {
    match answer {
        Err(OpenError::Refused { epoch, by, message }) => (epoch.map(Epoch::get), by, message),
        other => panic!("not refused, but {other:?}"),
    }
}

fn lost(admission: &Admission) -> String {
    match admission.error() {
        Some(ReceiveError::Source(error @ SourceError::Unavailable(_))) => error.to_string(),
        other => panic!("not lost, but {other:?}"),
    }
}

#[test]
fn a_name_counts_up_to_64_characters() {
    for (given, known) in
        [("", 0), ("a", 1), (&"a".repeat(64), 64), (&"a".repeat(65), 64), (&"日".repeat(99), 64)]
    {
        assert_eq!(known_name(given).chars().count(), known);
        assert!(given.starts_with(known_name(given)));
    }
}

#[test]
fn where_nobody_reads_any_epoch_opens() {
    for epoch in [None, epoch(0), epoch(1), epoch(u64::MAX)] {
        let mut receivers = Receivers::default();
        assert!(receivers.is_empty());
        let admission = open(&mut receivers, "owner", epoch);
        assert!(!receivers.is_empty());
        assert_eq!((admission.name(), admission.epoch()), ("owner", epoch));
        assert!(admission.error().is_none(), "{admission:?}");
    }
}

#[test]
fn an_equal_or_higher_epoch_disconnects_the_owner_and_says_who() {
    for (new_epoch, text) in [(7, "7"), (8, "8")] {
        let mut receivers = Receivers::default();
        let old = open(&mut receivers, "old", epoch(7));
        let new = open(&mut receivers, "new", epoch(new_epoch));
        let message = format!(
            "New receiver 'new' with higher epoch of '{text}' is created hence current receiver 'old' with \
             epoch '7' is getting disconnected. If you are recreating the receiver, make sure a higher epoch \
             is used."
        );
        assert_eq!(disconnected(&old), (Some(new_epoch), Some("new".into()), message));
        assert!(new.error().is_none());
        assert_eq!(names(&receivers), ["new"]);
    }
}

#[test]
fn a_lower_epoch_is_refused_and_disconnects_nobody() {
    let mut receivers = Receivers::default();
    let owner = open(&mut receivers, "owner", epoch(23));
    let message = "Receiver 'owner' with a higher epoch '23' already exists. Receiver 'late' with epoch 22 \
                   cannot be created. Make sure you are creating receiver with increasing epoch value to ensure \
                   connectivity, or ensure all old epoch receivers are closed or disconnected.";
    let answer = refused(receivers.admit("late", epoch(22)));
    assert_eq!(answer, (Some(23), Some("owner".into()), message.into()));
    assert!(owner.error().is_none());
    assert_eq!(names(&receivers), ["owner"]);
}

#[test]
fn asking_disconnects_nobody() {
    let mut receivers = Receivers::default();
    let owner = open(&mut receivers, "owner", epoch(1));
    receivers.admit("next", epoch(2)).unwrap();
    assert!(owner.error().is_none());
}

#[test]
fn up_to_five_read_without_epoch_and_a_sixth_is_told_their_names() {
    let (mut receivers, admissions) = five();
    assert_eq!(MAX_RECEIVERS_WITHOUT_EPOCH, 5);
    assert!(admissions.iter().all(|admission| admission.error().is_none()));
    match receivers.admit("f", None) {
        Err(OpenError::TooManyReceivers { message }) => assert_eq!(
            message,
            "Exceeded the maximum number of allowed receivers per partition in a consumer group which is 5. \
             List of connected receivers - a, b, nil, d, e."
        ),
        other => panic!("not refused, but {other:?}"),
    }
    receivers.leave(&admissions[1]);
    open(&mut receivers, "f", None);
    assert_eq!(names(&receivers), ["a", "", "d", "e", "f"]);
}

#[test]
fn none_without_epoch_reads_beside_an_owner() {
    let mut receivers = Receivers::default();
    let owner = open(&mut receivers, "owner", epoch(3));
    let message = "At least one receiver for the endpoint is created with epoch of '3', and so non-epoch \
                   receiver is not allowed. Either reconnect with a higher epoch, or make sure all epoch \
                   receivers are closed or disconnected.";
    let answer = refused(receivers.admit("reader", None));
    assert_eq!(answer, (Some(3), Some("owner".into()), message.into()));
    assert!(owner.error().is_none());
}

#[test]
fn an_epoch_disconnects_all_without_one() {
    let (mut receivers, admissions) = five();
    open(&mut receivers, "owner", epoch(0));
    assert_eq!(names(&receivers), ["owner"]);
    for (admission, name) in admissions.iter().zip(["a", "b", "nil", "d", "e"]) {
        let message = format!(
            "New receiver 'owner' with higher epoch of '0' is created hence current receiver '{name}' with \
             epoch '' is getting disconnected. If you are recreating the receiver, make sure a higher epoch \
             is used."
        );
        assert_eq!(disconnected(admission), (Some(0), Some("owner".into()), message));
    }
}

#[test]
fn whoever_gave_no_name_is_shown_as_nil_and_told_as_none() {
    let mut receivers = Receivers::default();
    let old = open(&mut receivers, "", epoch(4));
    let (number, by, message) = refused(receivers.admit("", epoch(3)));
    assert_eq!((number, by), (Some(4), None));
    assert!(
        message.starts_with("Receiver 'nil' with a higher epoch '4' already exists. Receiver 'nil' with")
    );
    assert_eq!(refused(receivers.admit("reader", None)).1, None);
    open(&mut receivers, "", epoch(4));
    let (number, by, message) = disconnected(&old);
    assert_eq!((number, by), (Some(4), None));
    assert!(
        message.starts_with("New receiver 'nil' with higher epoch of '4' is created hence current receiver")
    );
    assert!(message.contains("current receiver 'nil' with epoch '4'"), "{message}");
}

#[test]
fn once_the_owner_has_left_any_epoch_opens() {
    for epoch_after in [None, epoch(0), epoch(9)] {
        let mut receivers = Receivers::default();
        let owner = open(&mut receivers, "owner", epoch(9));
        receivers.leave(&owner);
        assert!(receivers.is_empty());
        assert!(owner.error().is_none(), "it left by itself");
        open(&mut receivers, "next", epoch_after);
    }
}

#[test]
fn whoever_was_disconnected_leaves_its_successor_alone_and_hears_the_first_ending() {
    let mut receivers = Receivers::default();
    let old = open(&mut receivers, "same", epoch(1));
    let new = open(&mut receivers, "same", epoch(1));
    receivers.leave(&old);
    assert_eq!(names(&receivers), ["same"]);
    open(&mut receivers, "third", epoch(5));
    assert_eq!(disconnected(&old).0, Some(1));
    assert_eq!(disconnected(&new).0, Some(5));
}

#[test]
fn a_cut_ends_all_links_and_says_why() {
    let (mut receivers, admissions) = five();
    receivers.disconnect_all(&Arc::from("the hub was restarted"));
    assert!(receivers.is_empty());
    for admission in admissions {
        assert_eq!(lost(&admission), "the hub is not available: the hub was restarted");
    }
}

#[test]
fn a_receiver_that_vanished_stops_counting_after_ten_minutes_and_not_before() {
    assert_eq!(DEFAULT_VANISH_AFTER, AFTER);
    let mut receivers = Receivers::default();
    let owner = open(&mut receivers, "x", epoch(9));
    assert_eq!(receivers.forget_vanished(START + AFTER, AFTER), 0);
    assert!(owner.error().is_none());
    assert!(receivers.admit("reader", None).is_err());
    assert_eq!(receivers.forget_vanished(START + AFTER + MOMENT, AFTER), 1);
    assert!(receivers.is_empty());
    open(&mut receivers, "reader", None);
}

#[test]
fn one_that_comes_back_after_it_vanished_learns_why() {
    let mut receivers = Receivers::default();
    let (owner, unnamed) = (open(&mut receivers, "x", None), open(&mut receivers, "", None));
    assert_eq!(receivers.forget_vanished(START + AFTER + MOMENT, AFTER), 2);
    assert_eq!(
        lost(&owner),
        "the hub is not available: no sign of life from receiver 'x' for 600 s; it was removed"
    );
    assert_eq!(error_texts::vanished("x", Duration::from_millis(61_900)), told_after("x", 61));
    assert!(lost(&unnamed).ends_with(&told_after("nil", 600)));
    let next = open(&mut receivers, "next", epoch(1));
    receivers.leave(&owner);
    owner.heard(START + AFTER * 2);
    assert!(owner.error().is_some(), "whoever has vanished stays so");
    assert!(next.error().is_none());
}

fn told_after(name: &str, seconds: u64) -> String {
    format!("no sign of life from receiver '{name}' for {seconds} s; it was removed")
}

#[test]
fn a_sign_of_life_counts_from_its_time_and_a_late_one_takes_nothing_back() {
    let (mut receivers, admissions) = five();
    let heard = START + Duration::from_secs(100);
    admissions[3].heard(heard);
    admissions[3].heard(START);
    assert_eq!(receivers.forget_vanished(START + AFTER + MOMENT, AFTER), 4);
    assert_eq!(names(&receivers), ["d"]);
    assert_eq!(receivers.forget_vanished(heard + AFTER, AFTER), 0);
    assert_eq!(receivers.forget_vanished(heard + AFTER + MOMENT, AFTER), 1);
}

#[test]
fn a_waiting_receiver_does_not_vanish_and_is_heard_when_its_wait_ends() {
    let mut receivers = Receivers::default();
    let owner = open(&mut receivers, "x", epoch(1));
    let (first, second) = (owner.waiting(), owner.waiting());
    assert_eq!(receivers.forget_vanished(START + AFTER * 3, AFTER), 0);
    drop(first);
    assert_eq!(receivers.forget_vanished(START + AFTER * 6, AFTER), 0);
    assert_eq!(receivers.forget_vanished(START + AFTER * 8, AFTER), 0, "one call still waits");
    drop(second);
    let looked = START + AFTER * 10;
    assert_eq!(receivers.forget_vanished(looked, AFTER), 0, "the wait ended since the last check");
    assert_eq!(receivers.forget_vanished(looked + AFTER, AFTER), 0);
    assert_eq!(receivers.forget_vanished(looked + AFTER + MOMENT, AFTER), 1);
}
