//! Tests of the replay, with two small conversations that were written for this test in the format of the
//! recordings.
//!
//! `sample/tiny-1.json` sends one event without a partition or a key; `sample/tiny-2.json` receives it from partition 1.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

use std::path::Path;

use ephor_recordings::play_group;
use ephor_recordings::recording::{Group, read_folder};
use ephor_recordings::report::{Explanations, Outcome, Report};

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/player/sample");

/// Plays the sample after its texts were changed.
fn play(change: impl Fn(&str, String) -> String) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    for name in ["tiny-1.json", "tiny-2.json"] {
        let text = std::fs::read_to_string(Path::new(SAMPLE).join(name)).unwrap();
        std::fs::write(folder.path().join(name), change(name, text)).unwrap();
    }
    play_group(&one_group(folder.path())).unwrap()
}

fn one_group(folder: &Path) -> Group {
    let mut groups = read_folder(folder).unwrap();
    assert_eq!(groups.len(), 1, "both conversations belong to one test");
    groups.remove(0)
}

/// The line of the first frame that contains all of these texts.
fn line_of(name: &str, texts: &[&str]) -> usize {
    let text = std::fs::read_to_string(Path::new(SAMPLE).join(name)).unwrap();
    let index = text.lines().position(|line| texts.iter().all(|text| line.contains(text)));
    index.expect("the sample has such a frame") + 1
}

fn without_line(text: String, number: usize) -> String {
    text.lines()
        .enumerate()
        .filter(|(index, _)| index + 1 != number)
        .map(|(_, line)| format!("{line}\n"))
        .collect()
}

fn kinds(outcome: &Outcome) -> Vec<&str> {
    outcome.differences.iter().map(|difference| difference.kind.as_str()).collect()
}

#[test]
fn an_event_arrives_in_the_partition_that_the_service_chose() {
    let outcome = play(|_, text| text);
    assert_eq!(outcome.conversations, 2);
    assert_eq!(outcome.frames, 33);
    let wrong =
        ["(missing)", "(extra)", "receiver transfer.body", "transfer.message-annotations", "disposition"];
    let kinds = kinds(&outcome);
    assert!(!kinds.iter().any(|kind| wrong.iter().any(|wrong| kind.contains(wrong))), "{kinds:?}");
}

#[test]
fn another_value_is_reported_with_its_conversation_frame_and_field() {
    let outcome = play(|_, text| text.replace("\"ChannelMax\":4999", "\"ChannelMax\":4998"));
    let line = line_of("tiny-2.json", &["\"in\"", "\"Open\""]);
    let text = format!("tiny-2, frame {line}, connection open.channel-max: service 4998, ours 4999");
    assert!(
        outcome.differences.iter().any(|difference| difference.to_string() == text),
        "{:?}",
        outcome.differences
    );
}

#[test]
fn another_number_of_an_event_is_reported() {
    // The number 0 as a small long, then the next key of the annotations; see the payload of the sample.
    let (zero, one) = ("nVtYmVyVQCjDH", "nVtYmVyVQGjDH");
    let outcome = play(|name, text| {
        assert_eq!(text.contains(zero), name == "tiny-2.json", "{name}");
        text.replace(zero, one)
    });
    let kinds = kinds(&outcome);
    assert!(kinds.contains(&"receiver transfer.message-annotations.x-opt-sequence-number"), "{kinds:?}");
}

#[test]
fn an_answer_that_the_service_did_not_give_is_reported() {
    let line = line_of("tiny-1.json", &["\"in\"", "\"Disposition\"", "\"First\":1"]);
    let outcome = play(|name, text| if name == "tiny-1.json" { without_line(text, line) } else { text });
    let extra = outcome.differences.iter().find(|difference| difference.kind == "sender disposition (extra)");
    let extra = extra.expect("one such difference");
    assert_eq!((extra.service.as_str(), extra.ours.as_str()), ("nothing", "disposition state accepted"));
}

#[test]
fn an_answer_that_does_not_come_is_reported_and_costs_no_time() {
    let line = line_of("tiny-2.json", &["\"in\"", "\"Transfer\"", "\"receive\""]);
    let outcome = play(|name, text| match name {
        "tiny-2.json" => {
            let line = text.lines().nth(line - 1).unwrap();
            text.replace(line, &format!("{line}\n{line}"))
        }
        _ => text,
    });
    let missing =
        outcome.differences.iter().find(|difference| difference.kind == "receiver transfer (missing)");
    assert_eq!(missing.expect("one such difference").ours, "nothing");
}

#[test]
fn a_token_that_the_service_refused_is_refused_here() {
    let outcome = play(|_, text| {
        let status = "\"ApplicationProperties\":{\"status-code\":202";
        assert!(text.contains(status));
        text.replace(status, "\"ApplicationProperties\":{\"status-code\":401")
    });
    // The payload still says 202: ours is the difference.
    let status = outcome
        .differences
        .iter()
        .find(|difference| difference.kind == "$cbs transfer.application-properties.status-code")
        .expect("one such difference");
    assert_eq!((status.service.as_str(), status.ours.as_str()), ("int 202", "int 401"));
}

#[test]
fn an_empty_recording_is_counted_and_named() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["tiny-1.json", "tiny-2.json"] {
        std::fs::copy(Path::new(SAMPLE).join(name), folder.path().join(name)).unwrap();
    }
    std::fs::write(folder.path().join("tiny-3.json"), "\n").unwrap();
    let outcome = play_group(&one_group(folder.path())).unwrap();
    assert_eq!((outcome.conversations, &outcome.empty[..]), (2, &["tiny-3".to_owned()][..]));
    let report = Report::of(outcome, &Explanations::default()).to_string();
    assert!(report.contains("tiny-3: empty, "), "{report}");
    assert!(report.contains("\n3 files: 2 conversations played, 1 empty, "), "{report}");
}

#[test]
fn a_broken_recording_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("broken-1.json"), "{\"Time\":\"now\"}\n").unwrap();
    let error = read_folder(folder.path()).unwrap_err().to_string();
    assert!(error.contains("broken-1.json, line 1: "), "{error}");
}

#[test]
fn the_list_of_explained_differences_is_well_formed() {
    Explanations::parse(include_str!("../../explained.txt")).unwrap();
}
