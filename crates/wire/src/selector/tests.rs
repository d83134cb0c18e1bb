//! Tests that the selector filters of every SDK are parsed, and that similar texts are refused.

use proptest::prelude::*;

use super::*;

fn sequence(number: u64, inclusive: bool) -> Start {
    Start::Sequence { number: SequenceNumber(number), inclusive }
}

fn offset(text: &str, inclusive: bool) -> Start {
    Start::Offset { offset: Offset::new(text), inclusive }
}

#[test]
fn every_selector_that_an_sdk_writes_is_read() {
    for (selector, start) in [
        ("amqp.annotation.x-opt-offset > '-1'", Start::Earliest),
        ("amqp.annotation.x-opt-offset > -1", Start::Earliest),
        ("amqp.annotation.x-opt-offset >= '-1'", Start::Earliest),
        ("amqp.annotation.x-opt-sequence-number > '-1'", Start::Earliest),
        ("amqp.annotation.x-opt-offset > '@latest'", Start::Latest { inclusive: false }),
        ("amqp.annotation.x-opt-offset > @latest", Start::Latest { inclusive: false }),
        ("amqp.annotation.x-opt-offset >= '@latest'", Start::Latest { inclusive: true }),
        ("amqp.annotation.x-opt-offset > '5'", offset("5", false)),
        ("amqp.annotation.x-opt-offset >= '5'", offset("5", true)),
        ("amqp.annotation.x-opt-offset > 12345", offset("12345", false)),
        ("amqp.annotation.x-opt-offset > '1:2:03'", offset("1:2:03", false)),
        ("amqp.annotation.x-opt-sequence-number >'12345'", sequence(12345, false)),
        ("amqp.annotation.x-opt-sequence-number >='12345'", sequence(12345, true)),
        ("  amqp.annotation.x-opt-sequence-number>=12345 ", sequence(12345, true)),
        (
            "amqp.annotation.x-opt-enqueued-time > '1700000000000'",
            Start::EnqueuedTime { time: Timestamp(1_700_000_000_000), inclusive: false },
        ),
        (
            "amqp.annotation.x-opt-enqueuedtimeutc > '1518731960545'",
            Start::EnqueuedTime { time: Timestamp(1_518_731_960_545), inclusive: false },
        ),
    ] {
        assert_eq!(Start::parse(selector), Ok(start), "{selector}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_in_the_words_of_the_service() {
    for selector in [
        "",
        "x-opt-offset > '5'",
        "amqp.annotation.x-opt-offset < '5'",
        "amqp.annotation.x-opt-offset = '5'",
        "amqp.annotation.x-opt-offset >",
        "amqp.annotation.x-opt-offset > ''",
        "amqp.annotation.x-opt-offset > '5",
        "amqp.annotation.x-opt-offset > '5' OR '6'",
        "amqp.annotation.x-opt-sequence-number > 'five'",
        "amqp.annotation.x-opt-enqueued-time > '@latest'",
        "amqp.annotation.x-opt-publisher > '5'",
    ] {
        assert_eq!(
            Start::parse(selector).unwrap_err().to_string(),
            format!("The filter '{selector}' is not a valid amqp filter for EventHub entities")
        );
    }
    let long = format!("amqp.annotation.x-opt-offset > '{}'", "5".repeat(MAX_SELECTOR_LENGTH));
    assert!(Start::parse(&long).unwrap_err().to_string().len() < 800);
}

fn filter(descriptor: &[u8], selector: &str) -> Vec<u8> {
    let mut set = Vec::new();
    let map = encode::begin(&mut set);
    encode::symbol(&mut set, "another:filter");
    encode::bool(&mut set, true);
    encode::symbol(&mut set, FILTER);
    set.extend_from_slice(descriptor);
    encode::string(&mut set, selector);
    encode::end_map(&mut set, map, 2);
    set
}

#[test]
fn every_event_is_after_a_negative_sequence_number() {
    for number in ["-1", "-5", "-9223372036854775808"] {
        for operator in [">", ">="] {
            let selector = format!("amqp.annotation.x-opt-sequence-number {operator} '{number}'");
            assert_eq!(Start::parse(&selector), Ok(Start::Earliest), "{selector}");
        }
    }
}

#[test]
fn all_three_descriptors_of_the_field_are_known() {
    let symbol = [b"\x00\xa3\x21".as_slice(), FILTER.as_bytes()].concat();
    for descriptor in [
        b"\x00\x80\x00\x00\x46\x8c\x00\x00\x00\x04".as_slice(),
        b"\x00\x80\x00\x00\x00\x13\x70\x00\x00\x0a",
        &symbol,
        b"",
    ] {
        let set = filter(descriptor, "amqp.annotation.x-opt-offset > '5'");
        assert_eq!(Start::from_filter(&set), Ok(offset("5", false)));
        assert!(Start::from_filter(&filter(descriptor, "nonsense")).is_err());
    }
}

#[test]
fn without_a_filter_everything_is_received() {
    for set in [b"".as_slice(), b"\x40", b"\xc1\x01\x00", b"\xc1\x05\x02\xa3\x01k\x40"] {
        assert_eq!(Start::from_filter(set), Ok(Start::Earliest));
    }
    assert!(Start::from_filter(b"\x45").is_err(), "a list is no map");
    let number = [b"\xc1\x25\x02\xa3\x21".as_slice(), FILTER.as_bytes(), b"\x43"].concat();
    assert!(Start::from_filter(&number).is_err(), "a selector that is a number says nothing");
}

#[test]
fn we_write_what_the_javascript_sdk_writes() {
    assert_eq!(Start::Earliest.selector(), "amqp.annotation.x-opt-offset > '-1'");
    let after: Start = StartPosition::after(SequenceNumber(7)).into();
    assert_eq!(after.selector(), "amqp.annotation.x-opt-sequence-number > '7'");
    let mut set = Vec::new();
    Start::Earliest.write_filter(&mut set);
    let expected = [
        b"\xc1\x53\x02\xa3\x21apache.org:selector-filter:string".as_slice(),
        b"\x00\x80\x00\x00\x46\x8c\x00\x00\x00\x04",
        b"\xa1\x23amqp.annotation.x-opt-offset > '-1'",
    ]
    .concat();
    assert_eq!(set, expected);
}

#[test]
fn a_position_of_the_log_is_found_for_every_start() {
    let last = Some(SequenceNumber(9));
    assert_eq!(Start::Latest { inclusive: true }.position(last), StartPosition::at(SequenceNumber(9)));
    assert_eq!(Start::Latest { inclusive: true }.position(None), StartPosition::Latest);
    assert_eq!(Start::Latest { inclusive: false }.position(last), StartPosition::Latest);
    let time = |inclusive| Start::EnqueuedTime { time: Timestamp(5), inclusive }.position(last);
    assert_eq!(time(false), StartPosition::EnqueuedTime(Timestamp(6)));
    assert_eq!(time(true), StartPosition::EnqueuedTime(Timestamp(5)));
}

fn any_position() -> impl Strategy<Value = StartPosition> {
    prop_oneof![
        Just(StartPosition::Earliest),
        Just(StartPosition::Latest),
        (any::<u64>(), any::<bool>())
            .prop_map(|(n, inclusive)| StartPosition::Sequence { number: SequenceNumber(n), inclusive }),
        ("[0-9:]{1,20}", any::<bool>())
            .prop_map(|(text, inclusive)| StartPosition::Offset { offset: Offset::new(&text), inclusive }),
        any::<i64>().prop_map(|time| StartPosition::EnqueuedTime(Timestamp(time))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_position_reads_back_as_it_was_written(position in any_position()) {
        let mut set = Vec::new();
        Start::from(position.clone()).write_filter(&mut set);
        prop_assert_eq!(Start::from_filter(&set).unwrap().position(None), position);
    }

    #[test]
    fn anything_is_read_or_refused(text in any::<String>(), bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = Start::parse(&text);
        let _ = Start::parse(&format!("amqp.annotation.x-opt-offset >{text}"));
        let _ = Start::from_filter(&bytes);
    }
}
