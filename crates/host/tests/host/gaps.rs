//! Tests of gaps in a log: every event is delivered, and many gaps flood neither the log output nor the
//! processor.

use crate::common::action_recorder::{ActionRecorder, P0, What, seconds, send, start, until_finished};
use crate::recording_processor::{Call, Recorder};
use ephor::{EventProcessorOptions, OnInvalidPosition};
use ephor_testkit::TestFleet;

/// The number of reports about gaps before they are summarised, and the summary.
const BOUND: usize = 11;

/// Sends `events` events with two missing numbers after each, and one more.
fn send_with_gaps(fleet: &TestFleet, events: u64) {
    for _ in 0..events {
        send(fleet, P0, 2);
        fleet.hub().lose_power(|_| 1);
    }
    send(fleet, P0, 1);
}

fn told(recorder: &ActionRecorder) -> usize {
    recorder.of(P0).iter().filter(|entry| matches!(entry.what, What::Told(_))).count()
}

#[tokio::test(start_paused = true)]
async fn many_gaps_are_summarised() {
    for on_invalid_position in [OnInvalidPosition::Earliest, OnInvalidPosition::Latest] {
        let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
        send_with_gaps(&fleet, 50);
        let options = EventProcessorOptions { on_invalid_position, ..recorder.options() };
        start(&mut fleet, "a", options, &recorder.scribe()).await;
        until_finished(&fleet, &recorder, P0, 150).await;
        fleet.pass(seconds(120)).await;
        assert_eq!(recorder.delivered(P0), (0..=50).map(|n| n * 3).collect::<Vec<u64>>());
        let reports = recorder.reports("Partition");
        assert_eq!(reports.len(), BOUND, "{reports:#?}");
        let summary = &reports[BOUND - 1].text;
        assert!(summary.contains("80 more events are gone in 40 gaps from 31 to 149"), "{summary}");
        assert_eq!(told(&recorder), BOUND, "the processor hears the same");
    }
}

#[tokio::test(start_paused = true)]
async fn while_gaps_go_on_only_summaries_come_and_none_is_left_unreported_at_the_end() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    send(&fleet, P0, 1);
    let mut last = 0;
    for _ in 0..10 {
        send_with_gaps(&fleet, 20);
        last += 61;
        until_finished(&fleet, &recorder, P0, last).await;
        fleet.pass(seconds(20)).await;
    }
    let reports = recorder.reports("Partition");
    let of_gaps = |text: &str| text.contains("gone");
    let before = reports.iter().filter(|report| of_gaps(&report.text)).count();
    assert!(before <= BOUND + 3, "{reports:#?}");
    fleet.stop("a").await;
    let all: Vec<String> = recorder.reports("Partition").into_iter().map(|report| report.text).collect();
    let gone: u64 = all.iter().filter(|text| of_gaps(text)).map(|text| number_before(text)).sum();
    assert_eq!(gone, 10 * 20 * 2, "{all:#?}");
    // The next owner names single ones again.
    recorder.clear();
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    send_with_gaps(&fleet, 1);
    until_finished(&fleet, &recorder, P0, last + 4).await;
    let reports = recorder.reports("Partition");
    assert!(reports.iter().any(|report| report.text.contains("2 events are gone")), "{reports:#?}");
}

#[tokio::test(start_paused = true)]
async fn gaps_are_reported_while_an_event_after_them_fails() {
    let mut fleet = TestFleet::new(1).unwrap();
    send_with_gaps(&fleet, 50);
    let fails = |call: &Call| matches!(call, Call::Batch(events) if events == &[150]);
    let recorder =
        Recorder::scripted(
            move |_, call| async move { if fails(&call) { Err("poison".into()) } else { Ok(()) } },
        );
    let options = EventProcessorOptions { on_error: recorder.on_error(), ..Default::default() };
    fleet.start("a", |host| host.options(options).processor(recorder.make())).await.unwrap();
    fleet.pass(seconds(120)).await;
    assert_eq!(recorder.finished(0).last(), Some(&147));
    let summary = "80 more events are gone in 40 gaps from 31 to 149";
    assert!(
        recorder.report_texts().iter().any(|text| text.contains(summary)),
        "{:#?}",
        recorder.report_texts()
    );
}

/// The number of events that a report says are gone.
fn number_before(text: &str) -> u64 {
    let words: Vec<&str> = text.split(' ').collect();
    let at = words.iter().position(|word| *word == "event" || *word == "events" || *word == "more").unwrap();
    words[at - 1].parse().unwrap()
}
